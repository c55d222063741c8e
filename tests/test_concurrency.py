"""Does the bound hold for a fleet? Processes and threads on one key, over HTTP, in twenty rounds."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from ratelimit_app import debts, denials
from ratelimit_app.limits import Caller, Decision, Level, Limit, Weighed
from tests.doors import ASYNC, DRF, DRF_LATE, PLAIN
from tests.gateway import Gateway, gateways

ROUNDS = 20
VIEWS = [door.path + "ping/" for door in (DRF, PLAIN, DRF_LATE, ASYNC)]


def _warm_up(fleet: list[Gateway], key: str) -> None:
    """Have everything imported, so that the race is for the buckets."""
    for view in VIEWS:
        for gateway in fleet:
            gateway.tell("request", path=view, key=key)
        for gateway in fleet:
            gateway.hear()


@pytest.mark.django_db(transaction=True)
def test_c13_parallel_requests_never_get_more_than_the_burst(make_plan, make_key, process_environment):
    """20 threads in each of 2 processes, one request each, all at once on a cold key."""
    plan = make_plan(requests=1, period_seconds=3600, burst=10)
    with gateways(2, process_environment) as fleet:
        _warm_up(fleet, make_key(plan)[1])
        for number in range(ROUNDS):
            key = make_key(plan)[1]
            for gateway in fleet:
                gateway.tell(
                    "burst", path=VIEWS[number % len(VIEWS)], key=key, threads=20, start_at=time.monotonic() + 0.1
                )
            answers = [answer for gateway in fleet for answer in gateway.hear()]
            assert sorted(status for status, _ in answers) == [200] * 10 + [429] * 30
            left = sorted(int(remaining) for status, remaining in answers if status == 200)
            assert left == list(range(10))


@pytest.mark.django_db(transaction=True)
def test_eight_processes_never_pass_more_than_burst_and_rate_allow(make_plan, make_key, process_environment):
    burst, rate = 20, 20
    plan = make_plan(requests=rate, period_seconds=1, burst=burst)
    with gateways(8, process_environment) as fleet:
        _warm_up(fleet, make_key(plan)[1])
        for number in range(ROUNDS):
            key = make_key(plan)[1]
            start_at = time.monotonic() + 0.1
            for gateway in fleet:
                gateway.tell("flood", path=VIEWS[number % len(VIEWS)], key=key, seconds=0.4, start_at=start_at)
            floods = [gateway.hear() for gateway in fleet]
            elapsed = max(flood["last_at"] for flood in floods) - min(flood["first_at"] for flood in floods)
            admitted, refused = (sum(flood["statuses"].get(s, 0) for flood in floods) for s in ("200", "429"))
            assert {status for flood in floods for status in flood["statuses"]} <= {"200", "429"}
            assert admitted <= burst + rate * elapsed
            assert admitted >= burst
            assert refused, "nobody asked for more than there was: the round proves nothing"


def test_threads_that_remember_at_the_same_time_break_no_decision(monkeypatch):
    """What is remembered is full, so that each of them drops the oldest, switched in the most awkward moments."""
    monkeypatch.setattr(debts, "_REMEMBERED", 5)
    monkeypatch.setattr(denials, "_REMEMBERED", 5)
    limit = Limit(id=1, name="x", requests=60, period_seconds=60, burst=20)
    failures: list[Exception] = []

    def remember(thread: int) -> None:
        for number in range(5_000):
            name = f"{thread}.{number}"
            weighed = Weighed(limit, name.encode(), Level(0, 1, 10_000_000), 0, 10_000_000)
            decision = Decision(allowed=False, weighed=(weighed,), decided_ticks=10**12)
            try:
                debts.note(decision)
                denials.note(decision, Caller(key_id=1, plan_id=1, bucket_identity=name), asked_at=time.monotonic())
            except Exception as failure:
                failures.append(failure)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=remember, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    assert not failures
