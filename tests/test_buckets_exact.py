"""Are the buckets exact? Random histories against a bucket counted in fractions, and against the bound.

HYPOTHESIS_PROFILE=thorough plays ten times as many histories.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from ratelimit_app import buckets
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit
from tests import stored

storage = pytest.fixture(stored.storage, params=stored.WAYS, autouse=True)

_HISTORIES = {"thorough": 10_000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 1_000)
_SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)
many = settings(max_examples=_HISTORIES, deadline=None, suppress_health_check=_SLOW)

#: Real time must not refill a bucket whose clock stands still.
FLOOR_MS = 3_600_000
MAX_CAPACITY_TICKS = 1 << 52
#: April 2040: until then a moment plus the longest debt is exact in a double.
LAST_MOMENT = 1 << 52


# --- The model: tokens in a bucket, as fractions, that come back at 1 per interval -----------------


@dataclass
class ExactBucket:
    burst: int
    interval_ticks: int
    tokens: Fraction
    at: int

    def advance(self, now: int) -> None:
        self.tokens = min(Fraction(self.burst), self.tokens + Fraction(now - self.at, self.interval_ticks))
        self.at = now

    @property
    def used_share(self) -> Fraction:
        return 1 - self.tokens / self.burst

    @property
    def debt_ticks(self) -> Fraction:
        return (self.burst - self.tokens) * self.interval_ticks


@dataclass
class ExactLimit:
    limit: Limit
    #: By generation, as far as it was ever asked.
    generations: dict[int, ExactBucket] = field(default_factory=dict)
    #: (moment, cost) of what it let pass since the last edit or refund.
    passed: list[tuple[int, int]] = field(default_factory=list)

    @property
    def untouched_edits(self) -> int:
        known = [generation for generation in self.generations if generation <= self.limit.generation]
        return self.limit.generation - max(known) if known else 0

    def edit(self, **numbers: Any) -> None:
        old = self.limit
        earlier = (replace(old, earlier=()), *old.earlier)[:3]
        self.limit = replace(old, **numbers, generation=old.generation + 1, earlier=earlier)
        self.passed.clear()

    def bucket(self, now: int, debt_ticks_found: int) -> ExactBucket:
        """The bucket in force. What an edit carries over may be rounded by one tick, and by no more."""
        generation = self.limit.generation
        if generation in self.generations:
            self.generations[generation].advance(now)
            return self.generations[generation]
        burst, interval = self.limit.burst, self.limit.interval_ticks
        bucket = ExactBucket(burst, interval, Fraction(burst), now)
        older = [known for known in self.generations if known < generation]
        if older:
            last = self.generations[max(older)]
            last.advance(now)
            bucket.tokens = burst - burst * last.used_share
            assert abs(debt_ticks_found - bucket.debt_ticks) < 2, "the used share was not kept"
            bucket.tokens = burst - Fraction(debt_ticks_found, interval)
        self.generations[generation] = bucket
        return bucket


# --- Random limits and histories -------------------------------------------------------------------


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    requests = draw(st.sampled_from([1, 2, 3, 7, 60, 1_000, 1_000_000]) | st.integers(1, 2_000))
    period = draw(st.sampled_from([1, 3, 60, 86_400]) | st.integers(1, 100_000))
    interval = -(-period * TICKS_PER_SECOND // requests)
    burst = draw(st.sampled_from([1, 2, 3, 10]) | st.integers(1, 40) | st.just(2_000_000_000))
    return {"requests": requests, "period_seconds": period, "burst": min(burst, MAX_CAPACITY_TICKS // interval)}


plans = st.lists(st.tuples(numbers(), st.sampled_from(["enforce", "enforce", "shadow"])), min_size=1, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 30_000_000) | st.integers(0, 10**13), st.integers(0, 4)),
        st.tuples(st.just("take most"), st.integers(0, 3), st.integers(-1, 1)),
        st.tuples(st.just("wait exactly"), st.integers(-1, 1), st.none()),
        st.tuples(st.just("edit"), st.integers(0, 2), numbers()),
        st.tuples(st.just("refund"), st.integers(0, 30), st.none()),
    ),
    min_size=1,
    max_size=25,
)


class History:
    """One caller's life: what Redis decides, held against the model at every step."""

    def __init__(self, plan: list[tuple[dict[str, Any], Any]]) -> None:
        self.caller = Caller(bucket_identity=uuid.uuid4().hex)
        self.limits = [
            ExactLimit(Limit(id=number, name=f"limit-{number}", mode=mode, **values))
            for number, (values, mode) in enumerate(plan, start=1)
        ]
        self.now = int((time.time() - EPOCH_SECONDS) * TICKS_PER_SECOND)
        self.decisions: list[Decision] = []

    def pass_time(self, ticks: int) -> None:
        self.now = min(LAST_MOMENT, self.now + ticks)

    def take(self, cost: int) -> Decision:
        decision = buckets.take(
            tuple(exact.limit for exact in self.limits), self.caller, cost=cost, now_ticks=self.now, floor_ms=FLOOR_MS
        )
        states = [
            exact.bucket(self.now, weighed.level.full_ticks - weighed.charged * weighed.limit.interval_ticks)
            for exact, weighed in zip(self.limits, decision.weighed, strict=True)
        ]
        fits = [state.tokens >= cost for state in states]
        allowed = all(fit for fit, exact in zip(fits, self.limits, strict=True) if exact.limit.mode == "enforce")
        assert decision.allowed == allowed
        for exact, state, weighed, fit in zip(self.limits, states, decision.weighed, fits, strict=True):
            assert weighed.refused == (not fit)
            if cost > state.burst:
                assert weighed.wait_ticks is None
            else:
                assert weighed.wait_ticks == max(Fraction(0), (cost - state.tokens) * state.interval_ticks)
            if allowed and fit:  # a shadow limit is charged as if it were enforced
                state.tokens -= cost
                exact.passed.append((self.now, cost))
            assert weighed.remaining == state.tokens // 1
            assert weighed.level.full_ticks == state.debt_ticks
        self.decisions.append(decision)
        return decision

    def refund(self, number: int) -> None:
        if not self.decisions:
            return
        decision = self.decisions.pop(number % len(self.decisions))
        buckets.refund(decision, now_ticks=self.now, floor_ms=FLOOR_MS)
        for exact, weighed in zip(self.limits, decision.weighed, strict=True):
            if weighed.charged:
                bucket = exact.generations[weighed.limit.generation]
                bucket.advance(self.now)
                bucket.tokens = min(Fraction(bucket.burst), bucket.tokens + decision.cost)
                exact.passed.clear()  # what a late refund gives back had come back by itself

    def wait_exactly(self, off_by: int) -> None:
        """Ask again at the very tick at which the last refusal ends, or one before or after it."""
        last = self.decisions[-1] if self.decisions else None
        waits = [weighed.wait_ticks for weighed in last.refusals] if last else []
        if last and waits and None not in waits:
            self.pass_time(max(0, max(wait for wait in waits if wait is not None) + off_by))
            event(f"waited exactly, allowed: {self.take(last.cost).allowed}")


@given(plan=plans, steps=steps)
@many
def test_every_decision_remaining_and_wait_equals_an_exact_model(plan, steps):
    history = History(plan)
    for kind, first, second in steps:
        if kind == "take":
            history.pass_time(first)
            history.take(second)
        elif kind == "take most":
            bucket = history.limits[0].limit
            history.pass_time(first)
            history.take(max(0, bucket.burst + second))
        elif kind == "wait exactly":
            history.wait_exactly(first)
        elif kind == "edit":
            exact = history.limits[first % len(history.limits)]
            if exact.untouched_edits < 3:  # so many earlier generations are remembered
                exact.edit(**second)
        else:
            history.refund(first)
    for exact in history.limits:
        assert_bound(exact)


@given(values=numbers(), cost=st.integers(1, 5), off_by=st.sampled_from([-1, 0, 1]))
@settings(many, max_examples=_HISTORIES // 3)
def test_the_wait_that_is_told_ends_at_that_very_tick(values, cost, off_by):
    history = History([(values, "enforce")])
    [exact] = history.limits
    cost = min(cost, exact.limit.burst)
    history.take(exact.limit.burst)
    wait = history.take(cost).weighed[0].wait_ticks
    assert wait
    assume(history.now + wait < LAST_MOMENT)
    history.pass_time(wait + off_by)
    assert history.take(cost).allowed == (off_by >= 0)


def assert_bound(exact: ExactLimit) -> None:
    """In every interval, at most the burst and what the plan's rate, unrounded, gains in it."""
    rate = Fraction(exact.limit.requests, exact.limit.period_seconds * TICKS_PER_SECOND)
    for first, (began, _cost) in enumerate(exact.passed):
        passed = 0
        for ended, cost in exact.passed[first:]:
            passed += cost
            assert passed <= exact.limit.burst + rate * (ended - began)


@given(values=numbers(), gaps=st.lists(st.integers(0, 5), min_size=30, max_size=60), seed=st.integers(1, 10**6))
@settings(many, max_examples=_HISTORIES // 3)
def test_a_greedy_caller_never_passes_more_than_burst_plus_rate_in_any_interval(values, gaps, seed):
    history = History([(values, "enforce")])
    [exact] = history.limits
    history.take(exact.limit.burst)
    for gap in gaps:
        history.pass_time(gap * exact.limit.interval_ticks * (seed % 7 + 1) // 9)
        history.take(1)
    assert_bound(exact)
