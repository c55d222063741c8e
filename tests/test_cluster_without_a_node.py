"""What do callers meet while a node of the cluster is gone that nobody replaces?"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from ratelimit_app import breaker, buckets, connections, denials, fallback, leases, limiter, plan_cache
from ratelimit_app.limits import Caller, Limit
from ratelimit_app.models import Plan
from tests import asking, brokers, clusters
from tests.clusters import Cluster
from tests.outages import redis_at, redis_is_asked

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

broker = pytest.fixture(brokers.chosen)
counted = pytest.fixture(asking.counted)

BURST = 20
#: Far more than a failover takes, for a machine that is ten times slower.
PATIENCE_SECONDS = 90


@pytest.fixture
def alone(tmp_path_factory) -> Iterator[Cluster]:
    """Three masters that nobody replaces."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), has_replicas=False)
    with redis_at(cluster.url, FLEET_SIZE=1):
        yield cluster
    cluster.stop()


def test_a_master_that_comes_back_is_asked_again_and_charged(alone, make_plan, wait_until) -> None:
    plan = make_plan(requests=1, period_seconds=36_000, burst=BURST)
    by_port = asking.callers_of(alone, plan)
    victim = alone.masters[0]
    own, other = by_port[victim.port][0], by_port[alone.masters[1].port][0]
    victim.kill()
    assert [limiter.check(own).source for _ in range(5)] == ["local"] * 5
    assert not redis_is_asked()
    assert limiter.check(other).source == "redis"
    victim.start()  # it has forgotten everything but which slots it holds
    wait_until(redis_is_asked, seconds=PATIENCE_SECONDS)
    assert limiter.check(own).source == "redis"
    assert limiter.peek(own).remaining == BURST - 6


def test_an_open_breaker_makes_no_call_to_its_node_and_all_calls_to_the_others(alone, make_plan) -> None:
    plan = make_plan(requests=1, period_seconds=36_000, burst=1_000)
    by_port = asking.callers_of(alone, plan)
    victim = alone.masters[0]
    own, other = by_port[victim.port][0], by_port[alone.masters[1].port][0]
    limiter.check(other)
    victim.pause()
    with redis_at(alone.url, TIMEOUT_SECONDS=0.05, CONNECT_TIMEOUT_SECONDS=0.05):
        for _ in range(breaker.FAILURES_IN_A_ROW):
            assert limiter.check(own).source == "local"
        assert list(connections.shunned) == [f"127.0.0.1:{victim.port}"]
        before = clusters.calls(alone.masters[1])
        began = time.monotonic()
        for _ in range(100):
            assert limiter.check(own).failure in ("timeout", "refused")
        assert time.monotonic() - began < 100 * 0.05  # what a hundred timeouts would take at least
        for _ in range(10):
            assert limiter.check(other).source == "redis"
    assert clusters.calls(alone.masters[1]) >= before + 10
    victim.resume()


def test_a_decision_over_two_nodes_is_made_by_the_one_that_lives_and_from_memory(alone, make_plan, wait_until) -> None:
    """The key's bucket is on a node that lives, the address's on one that died."""
    plan = make_plan("Key", requests=1, period_seconds=36_000, burst=5)
    plan.limits.create(name="address", requests=1, period_seconds=36_000, burst=3, per="address")
    caller = torn_apart(alone, plan)
    alone.serving(bucket_of(caller, "address")).kill()

    decisions = [limiter.check(caller) for _ in range(4)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False]
    assert {decision.source for decision in decisions} == {"local"}
    assert decisions[-1].refused_by is not None
    assert decisions[-1].refused_by.name == "address"
    # What the fourth had taken from the key was given back.
    [key] = limits_of(plan, "key")
    assert buckets.take((key,), caller, dry=True).remaining == 2


def test_a_limit_that_refuses_on_a_node_that_lives_needs_no_other(alone, make_plan) -> None:
    plan = make_plan("Key", requests=1, period_seconds=36_000, burst=1)
    plan.limits.create(name="address", requests=1, period_seconds=36_000, burst=3, per="address")
    caller = torn_apart(alone, plan)
    [key] = limits_of(plan, "key")
    buckets.take((key,), caller)
    alone.serving(bucket_of(caller, "address")).kill()
    decision = limiter.check(caller)
    assert (decision.allowed, decision.source) == (False, "redis")


def test_a_refusal_stands_though_another_node_is_gone_and_that_one_is_soon_not_asked(alone, make_plan) -> None:
    make_plan("Platform", 1, 36_000, 1, audience="everyone", per="everyone", shards=1)
    plan = make_plan("Key", requests=1, period_seconds=36_000, burst=50)
    caller = torn_apart(alone, plan, "key", "platform")
    assert limiter.check(caller).allowed  # all that the platform has
    home = alone.serving(bucket_of(caller, "key"))
    home.kill()
    for _ in range(breaker.FAILURES_IN_A_ROW):
        denials.forget()
        decision = limiter.check(caller)
        assert (decision.allowed, decision.source) == (False, "redis")
    assert list(connections.shunned) == [f"127.0.0.1:{home.port}"]


def test_a_process_that_begins_without_the_cluster_asks_as_soon_as_some_nodes_are_there(
    alone, make_plan, wait_until, prefix
) -> None:
    plan = make_plan("Key", requests=1, period_seconds=36_000, burst=50)
    callers = [asking.caller(plan, bucket_identity=f"caller-{number}") for number in range(20)]
    of_gateways = alone.serving(f"{prefix}:gateways")
    for node in alone.masters:
        node.pause()
    with redis_at(alone.url, TIMEOUT_SECONDS=0.05, CONNECT_TIMEOUT_SECONDS=0.05):
        for caller in callers[:5]:
            assert limiter.check(caller).source == "local"
        assert not redis_is_asked()
        for node in alone.masters:
            if node is not of_gateways:  # two, or the cluster would take itself for down before long
                node.resume()
    with redis_at(alone.url):
        wait_until(lambda: "" not in connections.shunned, seconds=PATIENCE_SECONDS)
    of_gateways.resume()


def test_async_code_meets_the_same(alone, make_plan) -> None:
    plan = make_plan("Key", requests=1, period_seconds=36_000, burst=5)
    plan.limits.create(name="address", requests=1, period_seconds=36_000, burst=3, per="address", on_failure="closed")
    caller = torn_apart(alone, plan)
    plan_cache.table()
    alone.serving(bucket_of(caller, "address")).kill()
    decision = asyncio.run(limiter.acheck(caller))
    assert (decision.allowed, decision.source) == (False, "unchecked")
    [key] = limits_of(plan, "key")
    assert buckets.take((key,), caller, dry=True).remaining == 5


def limits_of(plan: Plan, name: str) -> list[Limit]:
    return [limit for limit in plan_cache.table().limits[plan.pk] if limit.name == name]


def bucket_of(caller: Caller, name: str) -> bytes:
    return next(weighed.bucket for weighed in limiter.peek(caller).weighed if weighed.limit.name == name)


def torn_apart(cluster: Cluster, plan: Plan, one: str = "key", other: str = "address") -> Caller:
    """A caller for whom two limits are counted on different nodes."""
    for number in range(1_000):
        caller = asking.caller(plan, bucket_identity=f"caller-{number}")
        if cluster.serving(bucket_of(caller, one)) is not cluster.serving(bucket_of(caller, other)):
            return caller
    raise AssertionError


def test_what_memory_granted_is_charged_where_it_can_be(alone, make_plan, wait_until) -> None:
    """A node that stays away does not keep what is owed to the others."""
    plan = make_plan(requests=1, period_seconds=36_000, burst=BURST)
    by_port = asking.callers_of(alone, plan)
    away, back = alone.masters[:2]
    away.kill()
    back.kill()
    for caller in (by_port[away.port][0], by_port[back.port][0]):
        for _ in range(5):
            assert limiter.check(caller).source == "local"
    back.start()
    wait_until(lambda: list(connections.shunned) == [f"127.0.0.1:{away.port}"], seconds=PATIENCE_SECONDS)
    fallback.settle(seconds=5)
    assert limiter.peek(by_port[back.port][0]).remaining == BURST - 5
    assert list(fallback._process.owing.values()) == [by_port[away.port][0]]


def test_the_count_of_gateways_outlives_its_node(alone, prefix, wait_until) -> None:
    with redis_at(alone.url, FLEET_SIZE=0):
        fallback.beat()
        buckets.heartbeat(7, lasts_seconds=10)
        fallback.beat()
        assert fallback.fleet_size() == 2
        alone.serving(f"{prefix}:gateways").kill()
        with pytest.raises(connections.Unavailable):
            fallback.beat()
        assert fallback.fleet_size() == 2


def test_leased_tokens_go_back_to_the_nodes_that_live(alone) -> None:
    limit = Limit(id=1, name="slow", requests=1, period_seconds=60, burst=1_002, lease=True)
    callers = [Caller(key_id=number, bucket_identity=f"caller-{number}") for number in range(12)]
    for caller in callers:
        for _ in range(50):
            leases.take((limit,), caller)
    away = alone.masters[0]
    away.kill()
    with contextlib.suppress(connections.Unavailable):
        leases.give_back()
    living = [caller for caller in callers if alone.serving(buckets.name_of(limit, caller)) is not away]
    assert 0 < len(living) < len(callers)
    for caller in living:
        assert buckets.take((limit,), caller, dry=True).remaining == 950
