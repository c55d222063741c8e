"""Is each algorithm exact? Random histories in memory, held against models in fractions; and each one's bound.

Memory answers as Redis does (tests/test_parity.py). HYPOTHESIS_PROFILE=thorough plays ten times as many.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from ratelimit_app.algorithms import decide, decide_token_buckets
from ratelimit_app.limits import TICKS_PER_SECOND, Decision, Limit, Mode
from tests.exact_models import MODELS, ExactModel, beats_its_rate, most_in_any
from tests.twins import MIDNIGHT, InMemory, every_algorithm, limit

_HISTORIES = {"thorough": 5_000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 500)
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
many = settings(max_examples=_HISTORIES, deadline=None, suppress_health_check=_SLOW)

numbers = st.tuples(
    st.sampled_from([1, 2, 3, 7, 20]) | st.integers(1, 30),
    st.sampled_from([1, 3, 60]) | st.integers(1, 100_000),
    st.sampled_from([1, 2, 5, 10]) | st.integers(1, 30),
)
passing = st.sampled_from([0, 0, 0, 1, 9_999, 10_000, 10**7]) | st.integers(0, 10**8) | st.integers(0, 10**11)
costs = st.sampled_from([1, 1, 1, 0, 2, 3]) | st.integers(0, 31)
patiences = st.sampled_from([0, 10**7, 10**9])
#: Ask after a while, or (with no cost) again at the very tick at which the last refusal ends, or a tick off.
steps = st.lists(
    st.tuples(st.just("ask"), passing, costs, patiences)
    | st.tuples(st.just("wait"), st.sampled_from([-1, 0, 1]), st.just(0), st.just(0)),
    min_size=5,
    max_size=25,
)
#: The same questions again and again, as fast as the answers allow.
greedy = st.lists(st.tuples(passing, st.sampled_from([1, 1, 2, 5])), min_size=10, max_size=25)


class History:
    """One caller's life under one limit, and the model that knows better."""

    def __init__(self, algorithm: Any, values: tuple[int, int, int]) -> None:
        self.limit = limit(algorithm, *values)
        self.memory = InMemory()
        self.model: ExactModel = MODELS[algorithm](self.limit)
        self.now = MIDNIGHT + 1_234_567
        self.last: tuple[int, int, int] | None = None
        #: When each request that passed was really let go, after its delay, and what it cost.
        self.released: list[tuple[int, int]] = []

    def ask(self, cost: int, patience: int) -> Decision:
        now, model = self.now, self.model
        decision = self.memory.take(self.limit, at=now, cost=cost, patience_ticks=patience)
        [weighed] = decision.weighed
        assert decision.allowed == (cost <= self.limit.capacity and model.fits(now, cost, patience))
        self.last = None
        if decision.allowed:
            assert (weighed.wait_ticks, weighed.charged) == (0, cost)
            assert weighed.delay_ticks == model.delay(now)
            self.released.append((now + weighed.delay_ticks, cost))
            model.take(now, cost)
        elif cost > self.limit.capacity:
            assert weighed.wait_ticks is None
        else:
            assert weighed.wait_ticks
            self.last = cost, patience, now + weighed.wait_ticks
            self.assert_begins(now, now + weighed.wait_ticks, lambda moment: model.fits(moment, cost, patience))
        self.assert_level(decision, patience)
        return decision

    def ask_when_told(self, off_by: int) -> None:
        if self.last is not None:
            cost, patience, ends = self.last
            self.now = max(self.now, ends + off_by)
            event(f"asked when told, {off_by:+} ticks: {self.ask(cost, patience).allowed}")

    def assert_level(self, decision: Decision, patience: int) -> None:
        now, model, level = self.now, self.model, decision.weighed[0].level
        left = model.remaining(now, patience)
        assert level.remaining == left
        if level.next_ticks:
            self.assert_begins(now, now + level.next_ticks, lambda moment: model.remaining(moment, patience) > left)
        if level.full_ticks:
            assert not model.is_full(now)
            assert model.is_full(now + level.full_ticks)
            assert level.next_ticks <= level.full_ticks
        else:
            assert model.is_full(now)
            assert level.next_ticks == 0

    @staticmethod
    def assert_begins(now: int, begins: int, is_so: Any) -> None:
        """True from that tick on, and at no moment before it."""
        assert is_so(begins)
        earlier = {now, begins - 1, (now + begins) // 2, *range(now, begins, (begins - now) // 7 + 1)}
        assert not any(is_so(moment) for moment in earlier)


@every_algorithm
@given(values=numbers, script=steps)
@many
def test_every_decision_remaining_wait_and_delay_equals_an_exact_model(algorithm, values, script):
    history = History(algorithm, values)
    for kind, ticks, cost, patience in script:
        if kind == "wait":
            history.ask_when_told(ticks)
        else:
            history.now += ticks
            history.ask(cost, patience)
    assert_bound(history)


@every_algorithm
@given(values=numbers, script=greedy)
@settings(many, max_examples=_HISTORIES // 4)
def test_a_greedy_caller_never_gets_more_than_his_limit_in_any_interval(algorithm, values, script):
    history = History(algorithm, values)
    history.ask(history.limit.capacity, 0)
    for ticks, cost in script:
        history.now += ticks
        if not history.ask(min(cost, history.limit.capacity), 0).allowed:
            history.ask_when_told(0)
    assert_bound(history)


def assert_bound(history: History) -> None:
    bounds = {
        "token_bucket": assert_burst_and_rate,
        "leaky_bucket": assert_spaced,
        "fixed_window": assert_twice_at_an_edge,
        "sliding_window": assert_twice_at_an_edge,
        "sliding_log": assert_exactly_in_any_period,
    }
    bounds[history.limit.algorithm](history.limit, history.released)


def assert_burst_and_rate(of: Limit, released: list[tuple[int, int]]) -> None:
    assert not beats_its_rate(of, released)


def assert_spaced(of: Limit, released: list[tuple[int, int]]) -> None:
    for (moment, cost), (later, _cost) in itertools.pairwise(released):
        assert later - moment >= cost * of.interval_ticks


def assert_exactly_in_any_period(of: Limit, released: list[tuple[int, int]]) -> None:
    assert most_in_any(released, of.period_ticks) <= of.requests


def assert_twice_at_an_edge(of: Limit, released: list[tuple[int, int]]) -> None:
    assert most_in_any(released, of.period_ticks) <= 2 * of.requests
    for window in {moment // of.period_ticks for moment, _cost in released}:
        assert sum(cost for moment, cost in released if moment // of.period_ticks == window) <= of.requests


# --- The edge of a window, idling, slow and fast limits -------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "passing_at_the_edge"), [("fixed_window", 20), ("sliding_window", 10), ("sliding_log", 10)]
)
def test_two_bursts_around_the_edge_of_a_window(algorithm, passing_at_the_edge):
    ten, memory = limit(algorithm, 10, 60), InMemory()
    before, after = MIDNIGHT + 60 * TICKS_PER_SECOND - 1, MIDNIGHT + 60 * TICKS_PER_SECOND
    passed = sum(memory.take(ten, at=at).allowed for at in [before] * 15 + [after] * 15)
    assert passed == passing_at_the_edge


def test_a_token_bucket_gives_a_quiet_caller_his_burst_and_no_more_however_long_he_idled():
    ten, memory = limit("token_bucket", 1, 1, 10), InMemory()
    memory.take(ten, at=MIDNIGHT, cost=10)
    later = MIDNIGHT + 1_000 * TICKS_PER_SECOND
    assert sum(memory.take(ten, at=later).allowed for _ in range(25)) == 10


@every_algorithm
def test_one_a_year_and_ten_thousand_a_second_are_counted_to_the_tick(algorithm):
    yearly, fast = limit(algorithm, 1, 365 * 86_400, 1), limit(algorithm, 10_000, 1, 10_000, id=2)
    memory = InMemory()
    assert memory.take(yearly, at=MIDNIGHT).allowed
    [refused] = memory.take(yearly, at=MIDNIGHT + 1).weighed
    assert refused.wait_ticks
    ends = MIDNIGHT + 1 + refused.wait_ticks
    assert not memory.take(yearly, at=ends - 1).allowed
    assert memory.take(yearly, at=ends).allowed
    assert memory.take(fast, at=MIDNIGHT, cost=9_999).allowed
    assert memory.take(fast, at=MIDNIGHT, patience_ticks=TICKS_PER_SECOND).allowed
    assert not memory.take(fast, at=MIDNIGHT, patience_ticks=TICKS_PER_SECOND).allowed


@given(limits=st.lists(numbers, min_size=1, max_size=3), debts=st.lists(st.integers(0, 10**11), min_size=3), cost=costs)
@many
def test_a_decision_over_token_buckets_alone_is_what_the_rules_say_of_each(limits: Any, debts: Any, cost: int) -> None:
    modes: list[Mode] = ["enforce", "shadow", "enforce"]
    weighed = [
        Limit(id=number, name="", requests=requests, period_seconds=period, burst=burst, mode=modes[number])
        for number, (requests, period, burst) in enumerate(limits)
    ]
    debts = [min(debt, limit.capacity_ticks) for limit, debt in zip(weighed, debts)]  # noqa: B905
    names = [b"bucket %d" % limit.id for limit in weighed]
    for allowed in (True, False):
        assert decide_token_buckets(weighed, names, debts, allowed=allowed, cost=cost, now=7) == decide(
            weighed, names, [(debt,) for debt in debts], allowed=allowed, cost=cost, now=7
        )
