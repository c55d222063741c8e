"""What should each algorithm answer? Models in fractions, that remember every request and reckon from them alone.

Nothing here shares a formula with the product: a bucket is replayed, a queue has departures, windows
and logs are counted over the whole past.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from ratelimit_app.limits import TICKS_PER_MILLISECOND, TICKS_PER_SECOND, Limit


class ExactModel:
    """One caller's past under one limit: (moment, cost) of each request that passed, in order of time."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.passed: list[tuple[int, int]] = []

    def room(self, now: int) -> Fraction:
        """How many tokens there are at `now`, which is not before the last request."""
        raise NotImplementedError

    def fits(self, now: int, cost: int, patience: int) -> bool:
        return cost <= self.room(now)

    def remaining(self, now: int, patience: int) -> int:
        return max(0, self.room(now).__floor__())

    def delay(self, now: int) -> Fraction:
        return Fraction(0)

    def is_full(self, now: int) -> bool:
        return self.room(now) == self.limit.capacity

    def take(self, now: int, cost: int) -> None:
        self.passed.append((now, cost))


class ExactTokenBucket(ExactModel):
    """Tokens come back one an interval; the interval is the period over the requests, rounded up to a tick."""

    def room(self, now: int) -> Fraction:
        tokens, last = Fraction(self.limit.burst), 0
        for moment, cost in (*self.passed, (now, 0)):
            gained = Fraction(moment - last, self.limit.interval_ticks)
            tokens, last = min(Fraction(self.limit.burst), tokens + gained) - cost, moment
        return tokens


class ExactQueue(ExactModel):
    """A leaky bucket: each token departs one interval after the one before it, and the next request starts then."""

    def start(self, now: int) -> Fraction:
        free = Fraction(0)
        for moment, cost in self.passed:
            free = max(free, Fraction(moment)) + cost * self.limit.interval_ticks
        return max(free, Fraction(now))

    def delay(self, now: int) -> Fraction:
        return self.start(now) - now

    def room(self, now: int) -> Fraction:
        return self.limit.burst - self.delay(now) / self.limit.interval_ticks

    def fits(self, now: int, cost: int, patience: int) -> bool:
        return self.delay(now) <= patience and cost <= self.room(now)

    def remaining(self, now: int, patience: int) -> int:
        """How many requests at once would be let in, one after the other."""
        imagined = type(self)(self.limit)
        imagined.passed = list(self.passed)
        served = 0
        while imagined.fits(now, 1, patience):
            imagined.take(now, 1)
            served += 1
        return served


class ExactFixedWindow(ExactModel):
    """Counts by window, from 1 January 2026."""

    def used(self, window: int) -> int:
        counted = Counter[int]()
        for moment, cost in self.passed:
            counted[moment // self.limit.period_ticks] += cost
        return counted[window]

    def room(self, now: int) -> Fraction:
        return Fraction(self.limit.requests - self.used(now // self.limit.period_ticks))


class ExactSlidingWindow(ExactFixedWindow):
    """This window, and of the last one the part that the last period overlaps, in whole milliseconds."""

    def room(self, now: int) -> Fraction:
        window, into_ms = now // self.limit.period_ticks, now % self.limit.period_ticks // TICKS_PER_MILLISECOND
        overlap = 1 - Fraction(into_ms, self.limit.period_seconds * 1_000)
        return self.limit.requests - self.used(window) - self.used(window - 1) * overlap


class ExactLog(ExactModel):
    """A token is used for exactly one period from its moment on."""

    def room(self, now: int) -> Fraction:
        return Fraction(
            self.limit.requests
            - sum(cost for moment, cost in self.passed if now - self.limit.period_ticks < moment <= now)
        )


MODELS: dict[str, type[ExactModel]] = {
    "token_bucket": ExactTokenBucket,
    "leaky_bucket": ExactQueue,
    "fixed_window": ExactFixedWindow,
    "sliding_window": ExactSlidingWindow,
    "sliding_log": ExactLog,
}


def most_in_any(passed: list[tuple[int, int]], span_ticks: int) -> int:
    """The most tokens that passed in any half-open interval of this length."""
    return max(
        (sum(cost for moment, cost in passed if began <= moment < began + span_ticks) for began, _cost in passed),
        default=0,
    )


def beats_its_rate(limit: Limit, passed: list[tuple[int, int]]) -> bool:
    """Whether in any interval more passed than the burst and what the plan's own rate, unrounded, gains in it."""
    rate = Fraction(limit.requests, limit.period_seconds * TICKS_PER_SECOND)
    for first, (began, _cost) in enumerate(passed):
        total = 0
        for ended, cost in passed[first:]:
            total += cost
            if total > limit.burst + rate * (ended - began):
                return True
    return False
