"""What do callers meet when a master of the cluster dies? The others' callers nothing, its own their limits' choice."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ratelimit_app import denials, limiter
from ratelimit_app.limits import Decision
from tests import asking, brokers, clusters
from tests.clusters import Cluster
from tests.outages import redis_at
from tests.servers import RedisServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

broker = pytest.fixture(brokers.chosen)
counted = pytest.fixture(asking.counted)

BURST = 20
#: Far more than a failover takes, for a machine that is ten times slower.
PATIENCE_SECONDS = 90


@pytest.fixture
def running(tmp_path_factory) -> Iterator[Cluster]:
    """A cluster of this test's own."""
    yield from clusters.started(tmp_path_factory)


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    # Long, so that a busy machine is no failure of a node that lives.
    with redis_at(running.url, FLEET_SIZE=1, TIMEOUT_SECONDS=4.0, CONNECT_TIMEOUT_SECONDS=4.0):
        yield running


def break_by_killing(node: RedisServer) -> None:
    node.kill()


def break_by_stalling(node: RedisServer) -> None:
    node.pause()


@pytest.mark.parametrize("break_", [break_by_killing, break_by_stalling])
def test_a_master_that_dies_under_load_harms_no_caller_of_the_others_and_its_own_for_a_while(
    break_, cluster, make_plan, wait_until, counted
) -> None:
    plan = make_plan(requests=1, period_seconds=36_000, burst=BURST)
    by_port = asking.callers_of(cluster, plan)
    victim, heir = cluster.masters[0], cluster.replicas[0]
    own, others = by_port[victim.port], [c for port in by_port if port != victim.port for c in by_port[port]]

    with asking.Load([*own, *others]) as load:
        wait_until(lambda: all(load.admitted(caller) == BURST for caller in [*own, *others]), seconds=30)
        break_(victim)
        wait_until(lambda: any(decision.source == "local" for decision in load.decisions[own[0]]), seconds=30)
        wait_until(lambda: clusters.role(heir) == "master", seconds=PATIENCE_SECONDS)
        promoted_at = time.monotonic()
        # A probe a second at most, and what it takes to ask.
        wait_until(lambda: all(is_decided(load.last(caller)) for caller in own), seconds=PATIENCE_SECONDS)
        took = time.monotonic() - promoted_at
    assert not load.errors
    assert took < 30, "recovery is a matter of a second"
    for caller in others:
        assert {decision.source for decision in load.decisions[caller]} <= {"redis", "denied-cache"}
        assert load.admitted(caller) == BURST
    for caller in own:  # a burst from Redis, one from memory, and what the heir had not heard of, one at most
        assert BURST < load.admitted(caller) <= 3 * BURST
    totals = counted()
    assert totals["local"] > 0
    assert sum(len(decisions) for decisions in load.decisions.values()) == totals["allowed"] + totals["refused"]


def is_decided(decision: Decision | None) -> bool:
    return decision is not None and decision.source in ("redis", "denied-cache")


def test_a_planned_failover_loses_no_count(cluster, make_plan, wait_until) -> None:
    plan = make_plan(requests=1, period_seconds=36_000, burst=2_000, on_failure="closed")
    by_port = asking.callers_of(cluster, plan)
    victim, heir = cluster.masters[0], cluster.replicas[0]
    own = by_port[victim.port]
    with asking.Load(own) as load:
        wait_until(lambda: all(load.admitted(caller) > 50 for caller in own), seconds=30)
        clusters.fail_over(heir)
        wait_until(lambda: all(is_decided(load.last(caller)) for caller in own), seconds=PATIENCE_SECONDS)
    assert not load.errors
    for caller in own:
        remaining = limiter.peek(caller).remaining
        assert remaining is not None
        # The master holds questions up meanwhile: one that nobody waited for any longer may be charged.
        assert remaining <= 2_000 - load.admitted(caller)


def test_what_the_heir_had_not_heard_of_is_at_most_one_burst(cluster, make_plan, wait_until) -> None:
    """The replica hangs while a caller spends everything, and the master dies before it could tell."""
    plan = make_plan(requests=1, period_seconds=36_000, burst=BURST, on_failure="closed")
    by_port = asking.callers_of(cluster, plan, each=1)
    victim, heir = cluster.masters[0], cluster.replicas[0]
    [own] = by_port[victim.port]
    admitted = sum(limiter.check(own).allowed for _ in range(5))
    wait_until(lambda: clusters.ask(heir, "DBSIZE") == clusters.ask(victim, "DBSIZE") > 0)
    heir.pause()
    assert clusters.ask(victim, "CLIENT", "KILL", "TYPE", "replica")
    admitted += sum(limiter.check(own).allowed for _ in range(BURST))
    assert admitted == BURST
    victim.kill()
    heir.resume()
    wait_until(lambda: clusters.role(heir) == "master", seconds=PATIENCE_SECONDS)

    def is_decided_again() -> bool:
        nonlocal admitted
        denials.forget()
        decision = limiter.check(own)
        admitted += decision.allowed
        return decision.source == "redis"

    wait_until(is_decided_again, seconds=PATIENCE_SECONDS)
    while limiter.check(own).allowed:
        admitted += 1
    assert BURST < admitted <= 2 * BURST
