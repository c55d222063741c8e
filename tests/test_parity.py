"""Do Redis and memory decide alike? The same random histories on both, answer by answer.

HYPOTHESIS_PROFILE=thorough plays ten times as many histories.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ratelimit_app.limits import TICKS_PER_SECOND, Decision, Limit
from tests.twins import ALGORITHMS, MIDNIGHT, InMemory, InRedis, edited, every_algorithm, limit, standing

_HISTORIES = {"thorough": 20_000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 2_000)
_SLOW = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)
many = settings(
    max_examples=_HISTORIES,
    deadline=None,
    suppress_health_check=_SLOW,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)

numbers = st.tuples(
    st.sampled_from([1, 2, 3, 5, 7, 20]), st.sampled_from([1, 3, 7, 60, 86_400]), st.sampled_from([1, 2, 5, 10, 20])
)
#: Also a step back of the clock, and the moments around a millisecond and a second.
passing = st.sampled_from([0, 0, 1, 9_999, 10_000, 3_333_333, 10**7, 10**9, -1, -(10**7), -(10**9)]) | st.integers(
    0, 10**8
)
costs = st.sampled_from([1, 1, 1, 1, 0, 2, 3, 25])
patiences = st.sampled_from([0, 0, 10**7, 10**9])
others = st.tuples(st.sampled_from(ALGORITHMS), numbers, st.sampled_from(["enforce", "enforce", "shadow"]))
others_too = st.lists(others, max_size=2)
steps = st.lists(
    st.tuples(st.sampled_from(["take"] * 14 + ["peek", "refund", "edit"]), passing, costs, patiences, others),
    min_size=3,
    max_size=16,
)


class History:
    """One caller's life, lived twice."""

    def __init__(self, limits: list[Limit]) -> None:
        self.redis, self.memory = InRedis(), InMemory()
        self.limits = limits
        self.now = MIDNIGHT
        self.decisions: list[tuple[Decision, Decision]] = []

    def ask(self, cost: int, patience_ticks: int, *, dry: bool) -> None:
        asked: dict[str, Any] = {"at": self.now, "cost": cost, "patience_ticks": patience_ticks, "dry": dry}
        in_redis = self.redis.take(*self.limits, **asked)
        in_memory = self.memory.take(*self.limits, **asked)
        assert in_redis.allowed == in_memory.allowed
        assert standing(in_redis) == standing(in_memory)
        # Neither contradicts itself: what was done in the script is what its readings say.
        assert in_redis.allowed == all(w.wait_ticks == 0 for w in in_redis.weighed if w.limit.mode == "enforce")
        self.decisions.append((in_redis, in_memory))

    def refund(self, which: int) -> None:
        if self.decisions:
            in_redis, in_memory = self.decisions.pop(which % len(self.decisions))
            self.redis.refund(in_redis, at=self.now)
            self.memory.refund(in_memory, at=self.now)

    def edit(self, place: int, *, algorithm: Any, requests: int, period_seconds: int, burst: int) -> None:
        place %= len(self.limits)
        self.limits[place] = edited(
            self.limits[place], algorithm=algorithm, requests=requests, period_seconds=period_seconds, burst=burst
        )


def play(first: Any, more: list[Any], script: list[Any]) -> None:
    history = History(
        [
            limit(algorithm, *values, id=number, mode=mode)
            for number, (algorithm, values, mode) in enumerate([first, *more], start=1)
        ]
    )
    for kind, ticks, cost, patience_ticks, (algorithm, values, _mode) in script:
        history.now += ticks
        if kind == "edit":
            requests, period_seconds, burst = values
            history.edit(cost, algorithm=algorithm, requests=requests, period_seconds=period_seconds, burst=burst)
        elif kind == "refund":
            history.refund(cost)
        else:
            history.ask(cost, patience_ticks, dry=kind == "peek")


@every_algorithm
@given(values=numbers, mode=st.sampled_from(["enforce", "enforce", "shadow"]), more=others_too, script=steps)
@many
def test_redis_and_memory_give_the_same_answers_to_the_same_questions(algorithm, values, mode, more, script):
    play((algorithm, values, mode), more, script)


@every_algorithm
@pytest.mark.parametrize("other", ALGORITHMS)
def test_an_edit_from_any_algorithm_to_any_other_keeps_the_used_share(algorithm, other):
    for used in range(21):
        history = History([limit(algorithm, 20, 60, 20)])
        history.ask(used, 10**10, dry=False)
        history.edit(0, algorithm=other, requests=10, period_seconds=60, burst=10)
        history.ask(0, 10**10, dry=True)
        left = history.decisions[-1][0].weighed[0].remaining
        assert left == (20 - used) // 2


@every_algorithm
def test_an_edit_of_the_period_alone_rounds_nothing_away(algorithm):
    for used in range(1, 100):
        history = History([limit(algorithm, 100, 60, 100)])
        history.ask(used, 10**10, dry=False)
        history.limits[0] = edited(history.limits[0], period_seconds=120)
        history.ask(0, 10**10, dry=True)
        assert history.decisions[-1][0].weighed[0].remaining == 100 - used


def test_a_share_carried_over_is_the_same_in_memory_at_the_largest_numbers_too():
    history = History([limit("sliding_window", 10_000_000, 900_000, 1)])
    history.ask(3_333_333, 0, dry=False)
    for requests, period_seconds in ((9_999_999, 450_000), (1_000_000_000, 9_000), (7, 10 * TICKS_PER_SECOND)):
        history.now += 123_456_789
        history.limits[0] = replace(
            edited(history.limits[0], requests=requests, period_seconds=period_seconds), mode="enforce"
        )
        history.ask(1, 0, dry=False)
