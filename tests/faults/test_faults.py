"""What do requests meet, however Redis fails? An answer in time, no call once that is known, and limits again after it.

Nothing here depends on how fast the machine is: calls are counted, and times only guard against hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from django.conf import settings

from ratelimit_app import breaker, changes, connections, limiter, plan_cache
from tests.faults import kinds, sockets
from tests.faults.kinds import Fault, World
from tests.faults.proxy import Proxy
from tests.faults.requests_at_once import AT_ONCE, EventLoop, Threads
from tests.outages import redis_at, redis_is_asked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

TIMEOUT_SECONDS = 0.25
"""Of one reply and of one connection; half of what the slow server takes."""
BURST = 40
SEEN_BY_NOBODY = ("stopped", "refusing", "black-hole")
"""Faults during which the proxy sees no probe."""
HANG_SECONDS = 30
"""Far more than any answer, recovery or clean-up takes."""


@pytest.fixture(params=[Threads, EventLoop], ids=["threads", "asyncio"])
def senders(request):
    with request.param() as started:
        yield started


@pytest.fixture
def world(redis_server):
    server = redis_server("--enable-debug-command", "yes", "--enable-protected-configs", "yes")
    with Proxy(server.port) as proxy:
        sockets.watch(proxy.port)
        with redis_at(
            proxy.url, TIMEOUT_SECONDS=TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS=TIMEOUT_SECONDS, FLEET_SIZE=1
        ):
            yield World(server, proxy)
        limiter.reset_breaker()


@pytest.fixture
def keys(make_plan, make_key):
    """One for each choice of what happens while Redis cannot decide."""
    made = {}
    for choice in ("local", "open", "closed"):
        made[choice] = make_key(make_plan(choice, 3_600, 3_600, BURST, on_failure=choice))[1]
    return made


def probing():
    return [thread for thread in threading.enumerate() if thread.name == "ratelimit_app.breaker"]


def watching():
    return [thread for thread in threading.enumerate() if thread.name == "ratelimit_app.changes"]


def live_gateways(world: World):
    return world.tell("ZCARD", f"{settings.RATELIMIT_APP['PREFIX']}:gateways")


class Asked:
    """What requests asked of the server, and what was probed, since it was made."""

    def __init__(self, world: World) -> None:
        self._proxy = world.proxy
        self._connections = sockets.made_by_requests(world.proxy.port)
        self._asked = Counter(world.proxy.asked)

    @property
    def connections(self) -> int:
        return sockets.made_by_requests(self._proxy.port) - self._connections

    def of(self, what: str) -> int:
        return self._proxy.asked[what] - self._asked[what]


@pytest.mark.parametrize("fault", kinds.ALL, ids=str)
def test_requests_are_answered_without_redis_and_with_it_again_when_it_is_mended(
    fault: Fault, world: World, senders, keys, wait_until
):
    def everything_works():
        return all(answer.is_exact for answer in senders.send([keys["open"]] * 2))

    plan_cache.table()
    senders.send(list(keys.values()))  # who the callers are is known from here on
    wait_until(everything_works, seconds=HANG_SECONDS)
    broken_at = time.monotonic()

    with fault.broken(world):
        # Until it is known: each request asks once at most, and those on their way meet the same failure.
        asked = Asked(world)
        answers = senders.send([*keys.values()] * 8)
        assert limiter._process_breaker.is_open
        # What was open may be cut off first; a probe then meets the fault itself.
        wait_until(lambda: limiter._process_breaker.reason in fault.reasons, seconds=HANG_SECONDS)
        assert asked.of("take") <= breaker.FAILURES_IN_A_ROW - 1 + AT_ONCE
        assert asked.connections <= breaker.FAILURES_IN_A_ROW - 1 + AT_ONCE

        wait_until(lambda: world.proxy.has_counted_everything, seconds=HANG_SECONDS)
        # From then on: no call, no connection, no probe of a request's own.
        asked, began = Asked(world), time.monotonic()
        answers += senders.send([*keys.values()] * 40)
        elapsed = time.monotonic() - began
        assert (asked.of("take"), asked.of("refund"), asked.connections) == (0, 0, 0)
        assert asked.of("probe") <= 2 + elapsed / (0.9 * breaker.FIRST_PAUSE_SECONDS)

        by_key = {choice: Counter(a.status for a in answers if a.key == key) for choice, key in keys.items()}
        assert by_key["open"] == {200: 48}
        assert by_key["closed"] == {503: 48}
        assert by_key["local"].keys() <= {200, 429}
        assert 1 <= by_key["local"][200] <= BURST + (time.monotonic() - broken_at) + 1
        assert not any(answer.is_exact for answer in answers)  # nothing true could be said
        assert max(answer.seconds for answer in answers) < HANG_SECONDS
        asked, began = Asked(world), time.monotonic()

    wait_until(everything_works, seconds=HANG_SECONDS)
    assert asked.of("probe") <= 2 + (time.monotonic() - began) / (0.9 * breaker.FIRST_PAUSE_SECONDS)
    assert senders.send([keys["closed"]])[0].status == 200
    wait_until(lambda: not probing(), seconds=HANG_SECONDS)
    wait_until(lambda: sockets.open_to(world.proxy.port) <= AT_ONCE + 1, seconds=HANG_SECONDS)


def test_probes_are_a_second_apart_at_most_and_the_first_that_is_answered_ends_it():
    pauses = []
    failures = iter([True, True, True, True, True, False])

    class NoPause(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            return False

    def probe(node):
        if next(failures):
            raise connections.Unavailable("timeout")

    probed = breaker.Breaker(probe=probe)
    probed._stopped = NoPause()
    for _ in range(breaker.FAILURES_IN_A_ROW):
        probed.failed(connections.Unavailable("timeout"))
    assert "" in probed._threads
    probed._threads[""].join(HANG_SECONDS)
    assert not probed.is_open
    longest = [0.25, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert all(0.9 * most <= pause <= most for pause, most in zip(pauses, longest, strict=True))


@pytest.mark.parametrize("fault", kinds.ALL, ids=str)
def test_the_thread_that_watches_for_edits_outlives_it_and_keeps_no_connection_of_it(
    fault: Fault, world: World, configure, wait_until
):
    with redis_at(world.proxy.url, POLL_SECONDS=0.05):  # with its own timeouts
        changes.watch()
        wait_until(lambda: live_gateways(world) == 1, seconds=HANG_SECONDS)
        (thread,) = watching()
        with fault.broken(world):
            asked = Asked(world)
            wait_until(lambda: fault.name in SEEN_BY_NOBODY or asked.of("probe") > 1, seconds=HANG_SECONDS)
        world.tell("DEL", f"{settings.RATELIMIT_APP['PREFIX']}:gateways")
        wait_until(lambda: live_gateways(world) == 1, seconds=HANG_SECONDS)
        assert watching() == [thread]
        wait_until(lambda: sockets.open_to(world.proxy.port) <= 2, seconds=HANG_SECONDS)
        changes.stop()
    wait_until(lambda: sockets.open_to(world.proxy.port) == 0, seconds=HANG_SECONDS)


def test_a_server_that_takes_200_ms_is_too_slow_for_the_timeouts_that_are_the_default(world, keys, senders):
    senders.send(list(keys.values()))
    world.proxy.delay_seconds = 0.2
    with redis_at(world.proxy.url, TIMEOUT_SECONDS=0.005, CONNECT_TIMEOUT_SECONDS=0.02):
        answers = senders.send([*keys.values()] * 8)
    assert not any(answer.is_exact for answer in answers)
    assert {answer.status for answer in answers if answer.key == keys["closed"]} == {503}


def test_an_earlier_limits_charge_is_not_given_back_to_a_server_that_is_not_asked(world, make_plan, make_key):
    """The breaker opened between two limits of one request; the caller keeps one charge too many."""
    plan = make_plan("closed", 60, 60, 20, on_failure="closed")
    caller = make_key(plan)[0].as_caller()
    earlier = limiter.check(caller, scope="")
    later = plan.limits.create(name="later", requests=60, period_seconds=60, burst=20, on_failure="closed")
    plan_cache.forget()
    with kinds.named("refusing").broken(world):
        for _ in range(breaker.FAILURES_IN_A_ROW):
            limiter.check(caller)
        asked = Asked(world)
        decision = limiter.check(caller, earlier=earlier)
        assert (decision.allowed, decision.refused_by and decision.refused_by.id) == (False, later.pk)
        assert (asked.of("refund"), asked.connections) == (0, 0)


def test_a_machine_without_another_thread_costs_no_request_its_answer(world, keys, senders, monkeypatch, wait_until):
    """As when a container's limit of processes is reached."""
    senders.send(list(keys.values()))
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("ratelimit_app"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with redis_at(world.proxy.url, POLL_SECONDS=1.0), kinds.named("refusing").broken(world):
        answers = senders.send([*keys.values()] * 4)
        assert {answer.status for answer in answers if answer.key != keys["closed"]} <= {200, 429}
        assert {answer.status for answer in answers if answer.key == keys["closed"]} == {503}
        assert redis_is_asked()
        monkeypatch.undo()
        senders.send([*keys.values()] * 4)
        assert not redis_is_asked()
        assert watching()
    changes.stop()
