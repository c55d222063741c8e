"""What may lease, and how are tokens that were taken ahead of time spent?"""

from __future__ import annotations

import random
import time

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from ratelimit_app import buckets, leases
from ratelimit_app.leases import lease as lease_module
from ratelimit_app.limits import LEASE_TICKS, Caller, Limit
from ratelimit_app.models import PlanLimit
from tests import leasing
from tests.leasing import CALLER, FAST, SLOW, left

asked = pytest.fixture(leasing.asked)
still = pytest.fixture(leasing.still)


@pytest.mark.parametrize(("requests", "period_seconds", "reserve"), [(1, 60, 2), (1_000, 1, 101), (15, 1, 3)])
def test_the_shared_bucket_does_without_what_a_lease_s_life_gains(requests, period_seconds, reserve) -> None:
    limit = Limit(id=1, name="l", requests=requests, period_seconds=period_seconds, burst=reserve + 5, lease=True)
    assert limit.reserve == reserve
    assert limit.capacity == 5
    assert limit.capacity_ticks + LEASE_TICKS < limit.burst * limit.interval_ticks


def test_the_bound_holds_for_each_shard_by_itself() -> None:
    limit = Limit(id=1, name="l", requests=1_000, period_seconds=1, burst=100, per="everyone", shards=10, lease=True)
    for part in limit.parts:
        assert part.capacity_ticks + LEASE_TICKS < part.burst * part.interval_ticks


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"algorithm": "sliding_window"}, "lease", "Only a token bucket"),
        ({"algorithm": "leaky_bucket"}, "lease", "Only a token bucket"),
        ({"requests": 1_000, "period_seconds": 1, "burst": 101}, "burst", "must be 102 at least"),
        ({"burst": 2}, "burst", "must be 3 at least"),
        ({"per": "everyone", "shards": 10, "burst": 29}, "burst", "must be 30 at least"),
    ],
)
def test_a_lease_that_cannot_keep_the_bound_is_refused_by_the_form_and_the_database(plan, fields, field, text) -> None:
    row = PlanLimit(plan=plan, name="leased", **{"requests": 1, "period_seconds": 60, "burst": 100, **fields})
    row.full_clean()
    row.lease = True
    with pytest.raises(ValidationError) as refused:
        row.full_clean()
    assert text in refused.value.message_dict[field][0]
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    [
        {"requests": 1_000, "period_seconds": 1, "burst": 102},
        {"burst": 3},
        {"per": "everyone", "shards": 10, "burst": 30},
        {"requests": 1_000_000_000, "period_seconds": 1, "burst": 2_000_000_000},
        {"requests": 1_000_000_000, "period_seconds": 225_000_000, "burst": 2_000_000_000},
    ],
)
def test_a_lease_that_keeps_the_bound_is_accepted(plan, fields) -> None:
    row = PlanLimit(plan=plan, name="leased", lease=True, **{"requests": 1, "burst": 100, **fields})
    row.full_clean()
    row.save()
    assert all(part.capacity >= 1 for part in row.as_limit().parts)


# --- Spending ----------------------------------------------------------------------------------


def test_most_decisions_need_no_redis(asked, still) -> None:
    answers = [leases.take((SLOW,), CALLER) for _ in range(500)]
    assert all(answer.allowed for answer in answers)
    assert len(asked) < 50
    assert max(asked) <= SLOW.capacity // 20
    assert {answer.source for answer in answers} == {"redis", "lease"}


def test_the_first_request_of_a_caller_takes_no_more_than_it_costs(asked) -> None:
    answer = leases.take((SLOW,), CALLER, cost=3)
    assert (answer.source, answer.remaining, asked) == ("redis", 997, [3])


def test_a_leased_answer_says_what_is_left(asked, still) -> None:
    answers = [leases.take((SLOW,), CALLER) for _ in range(100)]
    assert [answer.remaining for answer in answers] == list(range(999, 899, -1))
    assert [weighed.charged for answer in answers for weighed in answer.weighed] == [1] * 100
    assert answers[-1].cost == 1
    assert answers[-1].decided_ticks >= answers[0].decided_ticks


def test_every_token_is_spent_once_and_none_is_lost(asked, still) -> None:
    answers = [leases.take((SLOW,), CALLER) for _ in range(1_100)]
    assert [answer.allowed for answer in answers] == [True] * 1_000 + [False] * 100
    assert left(SLOW) == [0]


def test_costs_are_mixed_without_losing_tokens(still) -> None:
    rng = random.Random(7)
    spent = 0
    for _ in range(2_000):
        cost = rng.choice([0, 1, 1, 2, 5, 60])
        spent += cost * leases.take((SLOW,), CALLER, cost=cost).allowed
    while leases.take((SLOW,), CALLER).allowed:
        spent += 1
    leases.give_back()
    assert spent + left(SLOW)[0] in (999, 1_000)  # what went back lacks a few milliseconds each time


def test_a_cost_above_the_burst_is_refused_for_ever(asked) -> None:
    answer = leases.take((SLOW,), CALLER, cost=1_001)
    assert not answer.allowed
    assert answer.retry_after_seconds is None
    assert leases.take((SLOW,), CALLER).allowed


def test_what_is_there_is_taken_when_a_batch_is_not(asked, still) -> None:
    for _ in range(300):
        leases.take((SLOW,), CALLER)
    leases.give_back()
    there = left(SLOW)[0] - 5
    assert buckets.take((SLOW,), CALLER, cost=there).allowed  # another process
    asked.clear()
    assert sum(leases.take((SLOW,), CALLER).allowed for _ in range(20)) == 5
    assert asked[0] > 5
    assert asked[1] <= 5


def test_callers_and_limits_do_not_share_a_lease(still) -> None:
    other = Limit(id=9, name="other", requests=1, period_seconds=60, burst=1_002, lease=True)
    for _ in range(100):
        assert leases.take((SLOW,), CALLER).allowed
        assert leases.take((SLOW,), Caller(plan_id=1, bucket_identity="two")).allowed
        assert leases.take((other,), CALLER).allowed
    leases.give_back()
    assert left(SLOW) == left(other) == left(SLOW, caller=Caller(bucket_identity="two")) == [900]


def test_a_lease_over_two_limits_takes_from_both(asked, still) -> None:
    tight = Limit(id=9, name="tight", requests=1, period_seconds=60, burst=202, lease=True)
    answers = [leases.take((SLOW, tight), CALLER) for _ in range(250)]
    assert [answer.allowed for answer in answers] == [True] * 200 + [False] * 50
    assert answers[-1].refused_by == tight
    assert len(asked) < 100
    assert left(SLOW, tight) == [800, 0]


def test_only_enforced_limits_that_all_lease_are_covered() -> None:
    exact = Limit(id=9, name="exact", requests=1, period_seconds=60, burst=100)
    shadow = Limit(id=9, name="shadow", requests=1, period_seconds=60, burst=100, lease=True, mode="shadow")
    assert leases.cover((SLOW,))
    assert leases.cover((SLOW, FAST))
    assert not leases.cover((SLOW, exact))
    assert not leases.cover((exact,))
    assert not leases.cover((SLOW, shadow))


# --- Refusals ----------------------------------------------------------------------------------


def test_a_refusal_says_when_to_come_back_and_is_remembered_for_a_moment(asked, monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1_000.0)
    assert buckets.take((SLOW,), CALLER, cost=1_000).allowed
    asked.clear()
    first, second = leases.take((SLOW,), CALLER), leases.take((SLOW,), CALLER)
    assert asked == [1]
    assert (first.source, second.source) == ("redis", "lease")
    assert first.retry_after_seconds == second.retry_after_seconds == 60
    assert second.remaining == 0
    assert first.wait_seconds is not None
    assert second.wait_seconds is not None
    assert second.wait_seconds < first.wait_seconds
    assert not leases.take((SLOW,), CALLER, cost=2).allowed  # of another cost nothing is known
    assert asked == [1, 2]


def test_after_exactly_the_wait_the_next_request_passes(wait_until) -> None:
    limit = Limit(id=9, name="l", requests=20, period_seconds=1, burst=10, lease=True)
    for _ in range(20):
        while (answer := leases.take((limit,), CALLER)).allowed:
            pass
        again = leases.take((limit,), CALLER)
        assert answer.wait_seconds is not None
        assert again.wait_seconds is not None
        assert 0 < again.wait_seconds <= lease_module.LEASE_SECONDS + 0.001
        time.sleep(again.wait_seconds)
        assert leases.take((limit,), CALLER).allowed
