"""Does everything work on a cluster of three masters? Sync and async, through the limiter and through views."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ratelimit_app import buckets, changes, connections, denials, fallback, leases, limiter, testing
from ratelimit_app.limits import Caller, Limit
from ratelimit_app.models import Plan
from tests import asking, clusters
from tests.clusters import Cluster
from tests.doors import ASYNC, DRF, at, statuses
from tests.outages import redis_at
from tests.twins import every_algorithm

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

check = pytest.fixture(asking.check, params=asking.BOTH)
running = pytest.fixture(clusters.started, scope="module")


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """The cluster; the buckets are there, and gone afterwards."""
    with redis_at(running.url):
        yield running
        testing.delete_all()


def strangers() -> Iterator[Caller]:
    """Callers whom nobody knows, without end."""
    while True:
        yield Caller(key_id=1, plan_id=1, bucket_identity=uuid.uuid4().hex)


def one_of_each(cluster: Cluster, plan: Plan) -> list[Caller]:
    """A caller of this plan for each master, who holds its buckets."""
    found: dict[int, Caller] = {}
    for stranger in strangers():
        caller = asking.caller(plan, bucket_identity=stranger.bucket_identity)
        found.setdefault(cluster.serving(limiter.peek(caller).weighed[0].bucket).port, caller)
        if len(found) == len(cluster.masters):
            return list(found.values())
    raise AssertionError


def total_calls(cluster: Cluster) -> int:
    return sum(clusters.calls(node) for node in cluster.masters)


@every_algorithm
def test_every_algorithm_counts_on_every_master(algorithm, check, cluster, make_plan) -> None:
    # A leaky bucket refuses whom nobody holds.
    plan = make_plan(requests=3, period_seconds=3600, burst=3, algorithm=algorithm)
    for caller in one_of_each(cluster, plan):
        decisions = [check(caller, patience_seconds=10_000) for _ in range(5)]
        assert [decision.allowed for decision in decisions] == [True, True, True, False, False]
        assert {decision.source for decision in decisions} <= {"redis", "denied-cache"}


@every_algorithm
@at(DRF, ASYNC)
def test_every_algorithm_answers_at_the_doors(door, algorithm, cluster, make_plan, make_key, configure) -> None:
    configure(LONGEST_HOLD_SECONDS=0)
    plan = make_plan(requests=3, period_seconds=3600, burst=3, algorithm=algorithm)
    admitted = 1 if algorithm == "leaky_bucket" else 3  # who may not be held has to come one by one
    for _ in range(4):
        _row, key = make_key(plan)
        answers = [door.send(key) for _ in range(4)]
        assert statuses(answers) == [200] * admitted + [429] * (4 - admitted)
        assert answers[0]["X-RateLimit-Limit"] == "3"


def test_all_limits_of_one_key_cost_one_round_trip(check, cluster, make_plan) -> None:
    plan = make_plan(requests=10, period_seconds=3600, burst=10)
    for number in range(3):
        plan.limits.create(name=f"more-{number}", requests=10, period_seconds=60, burst=10)
    caller = asking.caller(plan)
    check(caller)
    before = total_calls(cluster)
    assert len(check(caller).weighed) == 4
    assert total_calls(cluster) == before + 1


def test_limits_that_count_by_different_things_live_on_different_masters(check, cluster, make_plan) -> None:
    plan = make_plan("Key", requests=1, period_seconds=3600, burst=5)
    plan.limits.create(name="address", requests=1, period_seconds=3600, burst=3, per="address")
    plan.limits.create(name="user", requests=1, period_seconds=3600, burst=50, per="user")
    for number in range(6):
        caller = asking.caller(plan, bucket_identity=f"k{number}", address=f"203.0.113.{number}", user_id=f"{number}")
        decisions = [check(caller) for _ in range(4)]
        assert [decision.allowed for decision in decisions] == [True, True, True, False]
        denials.forget()
        # The key had paid before the address refused: that was given back.
        left = {weighed.limit.name: weighed.remaining for weighed in limiter.peek(caller).weighed}
        assert left == {"key": 2, "address": 0, "user": 47}


def test_the_parts_of_the_platforms_cap_live_on_different_masters(check, cluster, make_plan) -> None:
    make_plan("Platform", 1, 3600, 100, audience="everyone", per="everyone", shards=10)
    plan = make_plan("Pro", requests=1, period_seconds=3600, burst=1_000)
    names = set()
    admitted = 0
    for number in range(150):
        denials.forget()  # so that each asks
        decision = check(asking.caller(plan, bucket_identity=f"k{number}"))
        names |= {weighed.bucket for weighed in decision.weighed if weighed.limit.per == "everyone"}
        admitted += decision.allowed
    assert len(names) == 10
    assert len({cluster.serving(name).port for name in names}) > 1
    assert 60 <= admitted <= 100  # each part has ten; who met an empty one was refused


def test_who_is_out_of_tokens_takes_none_of_the_platforms(check, cluster, make_plan) -> None:
    make_plan("Platform", 1, 3600, 5, audience="everyone", per="everyone", shards=1)
    plan = make_plan("Pro", requests=1, period_seconds=3600, burst=2)
    caller = asking.caller(plan)
    for _ in range(4):
        denials.forget()
        decision = check(caller)
    assert [weighed.limit.name for weighed in decision.weighed] == ["pro"]
    other = asking.caller(plan, bucket_identity="other")
    assert {weighed.limit.name: weighed.remaining for weighed in limiter.peek(other).weighed}["platform"] == 3


def test_refund_reset_and_peek_find_the_buckets(check, cluster, make_plan) -> None:
    plan = make_plan(requests=1, period_seconds=3600, burst=3)
    plan.limits.create(name="address", requests=1, period_seconds=3600, burst=3, per="address")
    caller = asking.caller(plan)
    decision = check(caller, cost=2)
    assert limiter.peek(caller).remaining == 1
    limiter.refund(decision)
    assert limiter.peek(caller).remaining == 3
    check(caller, cost=3)
    limiter.reset(caller)
    assert [weighed.remaining for weighed in limiter.peek(caller).weighed] == [3, 3]


def test_a_later_door_that_refuses_gives_back_what_an_earlier_one_took_on_another_master(
    check, cluster, make_plan
) -> None:
    everyone = make_plan("Address", 1, 3600, 5, audience="everyone", per="address")
    plan = make_plan("Key", 1, 3600, 1)
    caller = asking.caller(plan)
    first = check(caller, only_address=True)
    assert check(caller, earlier=first).allowed
    again = check(caller, only_address=True)
    assert not check(caller, earlier=again).allowed
    [address] = [weighed for weighed in limiter.peek(caller).weighed if weighed.limit.name == everyone.slug]
    assert address.remaining == 4


def test_masters_that_forgot_the_script_are_sent_it_again(check, cluster, make_plan) -> None:
    plan = make_plan(requests=1, period_seconds=3600, burst=10)
    callers = one_of_each(cluster, plan)
    for caller in callers:
        check(caller)
    for node in cluster.masters:
        clusters.ask(node, "SCRIPT", "FLUSH")
    for caller in callers:
        decision = check(caller)
        assert (decision.source, decision.remaining) == ("redis", 8)


def test_leases_are_taken_and_given_back(check, cluster, wait_until) -> None:
    limit = Limit(id=1, name="slow", requests=1, period_seconds=60, burst=1_002, lease=True)
    for stranger, _ in zip(strangers(), range(6), strict=False):
        for _ in range(50):
            leases.take((limit,), stranger)
        leases.give_back()
        wait_until(lambda caller=stranger: left(limit, caller) == 950)


def left(limit: Limit, caller: Caller) -> int | None:
    return buckets.take((limit,), caller, dry=True).remaining


def test_limits_that_lease_and_live_apart_are_decided_exactly(check, cluster) -> None:
    limits = (
        Limit(id=1, name="a", requests=1, period_seconds=60, burst=100, lease=True),
        Limit(id=2, name="b", requests=1, period_seconds=60, burst=100, lease=True, per="address"),
    )
    assert not leases.cover(limits)
    assert buckets.take(limits, asking.caller(Plan(pk=1))).source == "redis"


def test_gateways_count_each_other(cluster) -> None:
    fallback.beat()
    assert fallback.fleet_size() == 1
    buckets.heartbeat(7, lasts_seconds=10)
    fallback.beat()
    assert fallback.fleet_size() == 2


def test_a_change_that_one_process_announces_wakes_the_others_on_whichever_node_they_listen(
    cluster, wait_until
) -> None:
    subscriptions = [connections.Subscription(changes._channel()) for _ in range(6)]
    changes._act_on(what="plans", public_ids=None)
    assert [subscription.wait(10) for subscription in subscriptions] == [True] * 6
    for subscription in subscriptions:
        subscription.close()


def test_the_tests_of_a_project_begin_with_full_buckets(cluster, make_plan) -> None:
    plan = make_plan(requests=1, period_seconds=3600, burst=1)
    callers = one_of_each(cluster, plan)
    assert [limiter.check(caller).allowed for caller in callers] == [True] * 3
    assert testing.delete_all() == 3
    denials.forget()
    assert [limiter.check(caller).allowed for caller in callers] == [True] * 3


def test_nothing_is_left_without_an_expiry(cluster, make_plan, prefix) -> None:
    make_plan("Platform", 1, 3600, 100, audience="everyone", per="everyone", shards=5)
    plan = make_plan(requests=1, period_seconds=3600, burst=100)
    for number in range(20):
        limiter.check(asking.caller(plan, bucket_identity=f"k{number}"))
    fallback.beat()
    for node in cluster.masters:
        fallback.probe(f"127.0.0.1:{node.port}")
    for node in cluster.masters:
        with node.client() as client:
            names = list(client.scan_iter(match=f"{prefix}:*"))
            assert names
            assert all(client.pttl(name) > 0 for name in names)
