"""What do the values say? Limits, callers and decisions, without Redis."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app.algorithms import RULES
from ratelimit_app.limits import EPOCH_SECONDS, MAX_FILL_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit, Weighed


def limit(requests: int = 60, period_seconds: int = 60, burst: int = 20, **fields: Any) -> Limit:
    return Limit(
        id=fields.pop("id", 1),
        name=fields.pop("name", "x"),
        requests=requests,
        period_seconds=period_seconds,
        burst=burst,
        **fields,
    )


def weighed(of: Limit, *, debt: int = 0, wait: int | None = 0, charged: int = 0) -> Weighed:
    level = RULES[of.algorithm].level(of, (debt,), 0, 0)
    return Weighed(of, b"bucket", level, charged, wait)


# --- Limit -------------------------------------------------------------------------------------------


@given(requests=st.integers(1, 10**9), period=st.integers(1, MAX_FILL_SECONDS), burst=st.integers(1, 10**9))
def test_a_limit_is_never_faster_than_its_plan_and_slower_by_less_than_one_tick_a_token(requests, period, burst):
    interval = limit(requests, period, burst).interval_ticks
    exact = Fraction(period * TICKS_PER_SECOND, requests)
    assert exact <= interval < exact + 1


def test_the_fill_time_is_told_in_whole_seconds_rounded_up():
    assert limit(7, 3, 7).fill_seconds == 4  # 3 s and a few ticks
    assert limit(60, 60, 20).fill_seconds == 20
    assert limit(10**9, 1, 1).fill_seconds == 1


def test_the_longest_bucket_and_the_moment_it_is_full_fit_a_double_until_2040():
    longest = limit(1, MAX_FILL_SECONDS, 1).capacity_ticks
    assert longest <= 1 << 52
    fourteen_years = 14 * 365 * 86_400 * TICKS_PER_SECOND
    assert fourteen_years + longest < 1 << 53


def test_values_cannot_be_changed():
    for value in (limit(), Caller()):
        name = dataclasses.fields(value)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)
    for named in (Decision(allowed=True), weighed(limit()), weighed(limit()).level):
        with pytest.raises(AttributeError):
            setattr(named, named._fields[0], None)


# --- Caller ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "by_key", "by_user", "by_address"),
    [
        (Caller(bucket_identity="b", user_id="7", address="a"), ("key", "b"), ("user", "7"), ("address", "a")),
        (Caller(bucket_identity="b", address="a"), ("key", "b"), ("key", "b"), ("address", "a")),
        (Caller(user_id="7", address="a"), ("user", "7"), ("user", "7"), ("address", "a")),
        (Caller(address="a"), ("address", "a"), ("address", "a"), ("address", "a")),
        (Caller(), ("address", ""), ("address", ""), ("address", "")),
    ],
)
def test_a_limit_counts_the_nearest_thing_that_a_caller_has(caller, by_key, by_user, by_address):
    assert (caller.identity("key"), caller.identity("user"), caller.identity("address")) == (
        by_key,
        by_user,
        by_address,
    )


# --- Decision ----------------------------------------------------------------------------------------


def test_the_tightest_enforced_limit_is_the_one_that_is_told():
    wide, narrow, watched = limit(burst=20), limit(burst=5, id=2), limit(burst=1, id=3, mode="shadow")
    decision = Decision(allowed=True, weighed=(weighed(wide), weighed(narrow), weighed(watched)))
    assert decision.tightest is not None
    assert decision.tightest.limit is narrow
    assert (decision.remaining, decision.reset_at) == (5, EPOCH_SECONDS)


def test_a_decision_over_shadow_limits_alone_tells_nothing():
    decision = Decision(allowed=True, weighed=(weighed(limit(mode="shadow"), wait=5),))
    assert (decision.remaining, decision.reset_at, decision.tightest) == (None, None, None)
    assert len(decision.would_refuse) == 1


def test_would_refuse_counts_only_when_the_enforced_limits_allowed():
    refused = (weighed(limit(mode="shadow"), wait=5), weighed(limit(id=2), wait=7))
    assert Decision(allowed=False, weighed=refused).would_refuse == ()


@pytest.mark.parametrize(
    ("wait_ticks", "seconds"),
    [(1, 1), (TICKS_PER_SECOND, 1), (TICKS_PER_SECOND + 1, 2), (400 * TICKS_PER_SECOND // 1000, 1), (None, None)],
)
def test_retry_after_is_rounded_up_to_whole_seconds_and_at_least_one(wait_ticks, seconds):
    decision = Decision(allowed=False, weighed=(weighed(limit(), wait=wait_ticks),))
    assert decision.retry_after_seconds == seconds


def test_of_several_refusals_never_outweighs_any_wait():
    patient, never = limit(), limit(id=2)
    for order in ((patient, never), (never, patient)):
        waits = tuple(weighed(of, wait=None if of is never else 9) for of in order)
        decision = Decision(allowed=False, weighed=waits)
        assert (decision.refused_by, decision.retry_after_seconds) == (never, None)


def test_an_unchecked_refusal_names_the_limit_that_is_closed():
    closed = limit(id=2, on_failure="closed")
    decision = Decision(allowed=False, source="unchecked", unweighed=(limit(), closed))
    assert (decision.refused_by, decision.retry_after_seconds) == (closed, None)


@given(burst=st.integers(1, 50), debt=st.integers(0, 10**9))
def test_the_next_token_comes_when_it_is_said_and_not_a_second_earlier(burst, debt):
    of = limit(7, 3, burst)
    debt = min(debt, of.capacity_ticks)
    now = weighed(of, debt=debt)
    seconds = now.next_token_seconds
    later = weighed(of, debt=max(0, debt - seconds * TICKS_PER_SECOND))
    if debt == 0:
        assert seconds == 0
    else:
        assert later.remaining > now.remaining
        sooner = weighed(of, debt=max(0, debt - (seconds - 1) * TICKS_PER_SECOND))
        assert sooner.remaining == now.remaining or seconds == 1


def test_what_is_given_back_is_no_longer_charged():
    interval = limit().interval_ticks
    assert weighed(limit(), debt=3 * interval, charged=1).given_back() == weighed(limit(), debt=2 * interval)
    assert weighed(limit(), debt=3 * interval, charged=3).given_back() == weighed(limit())
