"""Does a boost multiply what a caller may do, everywhere, and end by itself with nothing gained or lost?"""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app import key_cache, limiter
from ratelimit_app.limits import MAX_FILL_SECONDS, MAX_LOGGED, TICKS_PER_SECOND, Caller, Limit
from ratelimit_app.models import APIKey
from tests.doors import every_door
from tests.gateway import gateways
from tests.outages import REFUSING, redis_at
from tests.twins import ALGORITHMS, MIDNIGHT, both_twins, limit

HOUR = timedelta(hours=1)
SECOND = TICKS_PER_SECOND
LONG = 3_600 * SECOND


def boost(row: APIKey, *, factor: int = 10, lasts: timedelta = HOUR) -> None:
    APIKey.objects.boost(row, factor=factor, until=timezone.now() + lasts, reason="a sale")


# --- The arithmetic --------------------------------------------------------------------------------------


@both_twins
@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket"])
def test_a_bucket_keeps_its_used_share_when_a_boost_begins_and_ends(twin, algorithm):
    buckets, plain = twin(), limit(algorithm, requests=6, period_seconds=60, burst=12)
    boosted = plain.boosted(5)
    held = {"patience_ticks": LONG} if algorithm == "leaky_bucket" else {}
    assert buckets.take(plain, at=MIDNIGHT, cost=3, **held).remaining == 9
    assert buckets.take(boosted, at=MIDNIGHT, dry=True, **held).remaining == 45
    assert buckets.take(boosted, at=MIDNIGHT, cost=30, **held).remaining == 15
    assert buckets.take(plain, at=MIDNIGHT, dry=True, **held).remaining == 3


@both_twins
def test_a_drained_bucket_stays_drained_and_fills_as_many_times_as_fast(twin):
    buckets, plain = twin(), limit("token_bucket", requests=6, period_seconds=60, burst=12)
    boosted = plain.boosted(5)
    buckets.take(plain, at=MIDNIGHT, cost=12)
    assert not buckets.take(boosted, at=MIDNIGHT).allowed
    assert buckets.take(boosted, at=MIDNIGHT + 2 * SECOND, dry=True).remaining == 1
    assert buckets.take(boosted, at=MIDNIGHT + 10 * SECOND, cost=5).allowed
    assert not buckets.take(plain, at=MIDNIGHT + 10 * SECOND).allowed
    assert buckets.take(plain, at=MIDNIGHT + 20 * SECOND).allowed


@both_twins
@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window", "sliding_log"])
def test_windows_and_logs_keep_what_was_counted(twin, algorithm):
    buckets, plain = twin(), limit(algorithm, requests=3, period_seconds=60)
    boosted = plain.boosted(2)
    assert buckets.take(plain, at=MIDNIGHT, cost=3).allowed
    assert not buckets.take(plain, at=MIDNIGHT).allowed
    assert buckets.take(boosted, at=MIDNIGHT, cost=3).allowed
    over = buckets.take(plain, at=MIDNIGHT + 1)
    assert (over.allowed, over.remaining) == (False, 0)
    assert over.weighed[0].wait_ticks is not None
    assert buckets.take(plain, at=MIDNIGHT + 1 + over.weighed[0].wait_ticks).allowed


@given(
    algorithm=st.sampled_from(ALGORITHMS),
    requests=st.integers(1, 10_000),
    period_seconds=st.integers(1, 86_400),
    burst=st.integers(3, 10_000),
    factor=st.integers(2, 100),
    lease=st.booleans(),
)
def test_whatever_is_boosted_can_still_be_counted_exactly(algorithm, requests, period_seconds, burst, factor, lease):
    if burst * period_seconds > requests * MAX_FILL_SECONDS:
        return
    leases = lease and algorithm == "token_bucket" and requests <= 10 * period_seconds * (burst - 2)
    plain = limit(algorithm, requests=requests, period_seconds=period_seconds, burst=burst, lease=leases)
    boosted = plain.boosted(factor)
    assert plain.capacity <= boosted.capacity
    assert boosted.capacity_ticks < 2**53
    if algorithm == "sliding_window":
        assert boosted.requests * boosted.period_ticks // 10_000 < 2**53
    if algorithm == "sliding_log":
        assert boosted.requests <= max(MAX_LOGGED, requests)
    elif algorithm != "sliding_window":
        assert boosted.requests == requests * factor


@pytest.mark.parametrize(("per", "capacity"), [("key", 30), ("user", 30), ("address", 3), ("everyone", 3)])
def test_only_limits_per_key_and_per_user_are_boosted(per, capacity):
    assert Limit(id=1, name="a", requests=3, period_seconds=60, burst=3, per=per).boosted(10).capacity == capacity


def test_an_edit_during_a_boost_keeps_the_used_share_of_the_boosted_limit():
    old = limit("fixed_window", requests=10, period_seconds=60)
    edited = limit("fixed_window", requests=20, period_seconds=60, generation=2, earlier=(old,)).boosted(3)
    assert (edited.capacity, edited.earlier[0].capacity) == (60, 30)


# --- The key ---------------------------------------------------------------------------------------------


@every_door
@pytest.mark.django_db(transaction=True)
def test_a_boost_counts_at_once_and_for_every_key_on_the_bucket(door, plan, make_key):
    row, old = make_key(plan)
    _new, new = APIKey.objects.rotate(row)
    assert door.drain(old) == 3

    boost(row)
    limiter.reset(row.as_caller())

    answers = [door.send(text) for text in (old, new)]
    assert [answer["X-RateLimit-Limit"] for answer in answers] == ["30", "30"]
    assert [answer["X-RateLimit-Remaining"] for answer in answers] == ["29", "28"]
    assert door.drain(new) == 28
    APIKey.objects.end_boost(row)
    answer = door.send(old)
    assert (answer.status_code, answer["X-RateLimit-Limit"]) == (429, "3")


@pytest.mark.django_db(transaction=True)
def test_a_boost_ends_on_time_in_a_process_that_hears_nothing(
    plan, make_key, configure, wait_until, django_assert_num_queries
):
    configure(CACHE_TTL_SECONDS=3600)
    row, text = make_key(plan)
    boost(row, lasts=timedelta(seconds=1))
    known = key_cache.find(text)
    assert known is not None
    assert known.boosted.boost == 10
    with django_assert_num_queries(0):
        wait_until(lambda: known.caller.boost == 1)
        assert key_cache.find(text) is known
    row.refresh_from_db()
    assert (row.boost_factor, row.boost, row.as_caller()) == (10, 1, known.plain)


@pytest.mark.django_db(transaction=True)
def test_a_boost_reaches_every_process_and_ends_in_each(make_plan, make_key, process_environment, wait_until):
    row, text = make_key(make_plan(requests=1, period_seconds=3600, burst=1_000))

    def left(gateway) -> int:
        return int(gateway.ask("request", path="/plain/ping/", key=text)["remaining"])

    with gateways(2, process_environment, POLL_SECONDS=0.2) as fleet:
        assert [left(gateway) <= 999 for gateway in fleet] == [True, True]
        boost(row)
        for gateway in fleet:
            wait_until(lambda gateway=gateway: left(gateway) > 9_000, seconds=40)
        boost(row, lasts=timedelta(seconds=2))
        for gateway in fleet:
            wait_until(lambda gateway=gateway: left(gateway) <= 999, seconds=40)


@pytest.mark.django_db(transaction=True)
def test_a_boost_holds_while_redis_is_down(plan, make_key, configure):
    row, text = make_key(plan)
    boost(row)
    known = key_cache.find(text)
    assert known is not None
    with redis_at(REFUSING, FLEET_SIZE=1):
        assert [limiter.check(known.caller).allowed for _ in range(31)] == [True] * 30 + [False]


@pytest.mark.django_db
def test_levels_tell_of_every_limit_what_is_left_and_charge_nothing(make_plan, make_key):
    plan = make_plan("Pro", burst=10)
    plan.limits.create(name="login", requests=1, period_seconds=60, burst=2, scope="login")
    plan.limits.create(name="cap", requests=9, period_seconds=60, burst=90, per="everyone")
    plan.limits.create(name="address", requests=9, period_seconds=60, burst=90, per="address")
    row, _ = make_key(plan)
    boost(row, factor=2)
    row.refresh_from_db()
    limiter.check(row.as_caller(), cost=5)
    for _ in range(2):
        levels = {weighed.limit.name: weighed.remaining for weighed in limiter.levels(row.as_caller())}
        assert levels == {"pro": 15, "login": 4}


@pytest.mark.django_db
def test_a_boost_that_makes_no_sense_is_refused(plan, make_key):
    row, _ = make_key(plan)
    for factor, until in ((1, timezone.now() + HOUR), (101, timezone.now() + HOUR), (2, timezone.now())):
        with pytest.raises(ValueError):
            APIKey.objects.boost(row, factor=factor, until=until, reason="")
    for fields in ({"boost_factor": 2}, {"boost_factor": 0}, {"boost_factor": 101, "boost_ends_at": timezone.now()}):
        with pytest.raises(IntegrityError), transaction.atomic():
            APIKey.objects.filter(pk=row.pk).update(**fields)


def test_a_caller_without_a_boost_is_the_caller_it_always_was():
    assert Caller(key_id=1) == Caller(key_id=1, boost=1)
