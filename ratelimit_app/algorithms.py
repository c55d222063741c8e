"""How do the algorithms count? The same rules that the script follows in Redis, as pure functions.

A *reading* is what is stored of one bucket, brought up to a moment: a few whole numbers. From a
reading follow the wait, the level, and the reading after a charge. Moments and spans are in ticks.

    token bucket      (debt,)                               ticks until the bucket is full
    leaky bucket      (debt,)                               ticks until the queue is empty
    fixed window      (current,)                            tokens of this window
    sliding window    (current, previous)                   tokens of this and the last window
    sliding log       (used, oldest, freeing, newest)       tokens, and the moments of three of them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ratelimit_app.limits import TICKS_PER_MILLISECOND, Algorithm, Decision, Level, Limit, Weighed

Reading = Sequence[int]

#: Makes a named tuple without the function of Python that its class would call for it.
_made: Any = tuple.__new__


class Rules(Protocol):
    """What each algorithm knows."""

    @property
    def width(self) -> int:
        """How many numbers a reading has."""

    def wait(self, limit: Limit, reading: Reading, now: int, cost: int, patience: int) -> int | None:
        """Ticks until `cost` fits: 0 when it does, None when it never can."""

    def charged(self, limit: Limit, reading: Reading, now: int, cost: int) -> Reading:
        """The reading after `cost`, which fits, was taken."""

    def level(self, limit: Limit, reading: Reading, now: int, patience: int) -> Level:
        """How much is left, and when there is more."""


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Holds `burst` tokens and gains `requests` a period: quiet callers may burst, none beats the rate."""

    width: int = 1

    def wait(self, limit: Limit, reading: Reading, now: int, cost: int, patience: int) -> int | None:
        charge = cost * limit.interval_ticks
        if charge > limit.capacity_ticks:
            return None
        return max(0, reading[0] + charge - limit.capacity_ticks)

    def charged(self, limit: Limit, reading: Reading, now: int, cost: int) -> Reading:
        return (reading[0] + cost * limit.interval_ticks,)

    def level(self, limit: Limit, reading: Reading, now: int, patience: int) -> Level:
        debt = reading[0]
        interval = limit.interval_ticks
        return Level((limit.capacity_ticks - debt) // interval, (debt - 1) % interval + 1 if debt else 0, debt)


@dataclass(frozen=True, slots=True)
class LeakyBucket:
    """A queue of at most `burst` requests that leave at the rate; a request waits for those before it.

    Its debt is the delay of the next request. Who would have to wait longer than his patience is
    refused and takes no place.
    """

    width: int = 1

    def wait(self, limit: Limit, reading: Reading, now: int, cost: int, patience: int) -> int | None:
        charge = cost * limit.interval_ticks
        if charge > limit.capacity_ticks:
            return None
        return max(0, reading[0] - patience, reading[0] + charge - limit.capacity_ticks)

    def charged(self, limit: Limit, reading: Reading, now: int, cost: int) -> Reading:
        return (reading[0] + cost * limit.interval_ticks,)

    def level(self, limit: Limit, reading: Reading, now: int, patience: int) -> Level:
        debt, interval = reading[0], limit.interval_ticks
        within_patience = (patience - debt) // interval + 1 if debt <= patience else 0
        remaining = min(within_patience, (limit.capacity_ticks - debt) // interval)
        next_one = self.wait(limit, (debt + remaining * interval,), now, 1, patience) or 0
        # Beyond the debt there is nothing more to gain: the rest is for the more patient.
        return Level(remaining=remaining, next_ticks=next_one if next_one <= debt else 0, full_ticks=debt)


@dataclass(frozen=True, slots=True)
class FixedWindow:
    """`requests` in each window of a period, counted from 1 January 2026: cheap, but 2x at a window's edge."""

    width: int = 1

    def wait(self, limit: Limit, reading: Reading, now: int, cost: int, patience: int) -> int | None:
        if cost > limit.capacity:
            return None
        return 0 if reading[0] + cost <= limit.capacity else limit.period_ticks - now % limit.period_ticks

    def charged(self, limit: Limit, reading: Reading, now: int, cost: int) -> Reading:
        return (reading[0] + cost,)

    def level(self, limit: Limit, reading: Reading, now: int, patience: int) -> Level:
        to_the_end = limit.period_ticks - now % limit.period_ticks if reading[0] else 0
        return Level(remaining=max(0, limit.capacity - reading[0]), next_ticks=to_the_end, full_ticks=to_the_end)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Estimates the last period as this window plus the overlapping share of the one before.

    The share is taken in whole milliseconds, rounded up: the estimate never falls short.
    """

    width: int = 2

    def wait(self, limit: Limit, reading: Reading, now: int, cost: int, patience: int) -> int | None:
        most, period_ms = limit.capacity, limit.period_seconds * 1_000
        current, previous = reading
        into_window = now % limit.period_ticks
        if cost > most:
            return None
        left = period_ms - into_window // TICKS_PER_MILLISECOND
        if previous * left + (current + cost) * period_ms <= most * period_ms:
            return 0
        if current + cost <= most:
            fits_with = (most - current - cost) * period_ms // previous
            return (period_ms - fits_with) * TICKS_PER_MILLISECOND - into_window
        fits_with = (most - cost) * period_ms // current
        return limit.period_ticks + max(0, period_ms - fits_with) * TICKS_PER_MILLISECOND - into_window

    def charged(self, limit: Limit, reading: Reading, now: int, cost: int) -> Reading:
        return (reading[0] + cost, reading[1])

    def level(self, limit: Limit, reading: Reading, now: int, patience: int) -> Level:
        current, previous = reading
        period_ms, into_window = limit.period_seconds * 1_000, now % limit.period_ticks
        left = period_ms - into_window // TICKS_PER_MILLISECOND
        remaining = max(0, limit.capacity - current - -(-previous * left // period_ms))
        full = 0
        if current or previous:
            full = limit.period_ticks * (2 if current else 1) - into_window
        next_one = 0
        if remaining < limit.capacity:
            next_one = self.wait(limit, reading, now, remaining + 1, patience) or 0
        return Level(remaining=remaining, next_ticks=next_one, full_ticks=full)


@dataclass(frozen=True, slots=True)
class SlidingLog:
    """Remembers the moment of every token of the last period: exact, and about ten bytes a token."""

    width: int = 4

    def wait(self, limit: Limit, reading: Reading, now: int, cost: int, patience: int) -> int | None:
        used, _oldest, freeing, _newest = reading
        if cost > limit.capacity:
            return None
        return 0 if used + cost <= limit.capacity else freeing + limit.period_ticks - now

    def charged(self, limit: Limit, reading: Reading, now: int, cost: int) -> Reading:
        used, oldest, freeing, _newest = reading
        if cost == 0:
            return reading
        return (used + cost, oldest if used else now, freeing, now)

    def level(self, limit: Limit, reading: Reading, now: int, patience: int) -> Level:
        used, oldest, _freeing, newest = reading
        if not used:
            return Level(remaining=limit.capacity, next_ticks=0, full_ticks=0)
        return Level(
            remaining=max(0, limit.capacity - used),
            next_ticks=oldest + limit.period_ticks - now,
            full_ticks=newest + limit.period_ticks - now,
        )


RULES: dict[Algorithm, Rules] = {
    "token_bucket": TokenBucket(),
    "leaky_bucket": LeakyBucket(),
    "fixed_window": FixedWindow(),
    "sliding_window": SlidingWindow(),
    "sliding_log": SlidingLog(),
}


def decide(
    limits: Sequence[Limit],
    buckets: Sequence[bytes],
    readings: Sequence[Reading],
    *,
    allowed: bool,
    cost: int,
    now: int,
    patience: int = 0,
    dry: bool = False,
) -> Decision:
    """The decision over limits whose readings, from before it, are known; `allowed` is what was done."""
    weighed = []
    for limit, bucket, reading in zip(limits, buckets, readings, strict=True):
        rules = RULES[limit.algorithm]
        wait = rules.wait(limit, reading, now, cost, patience)
        delay = reading[0] if wait == 0 and limit.algorithm == "leaky_bucket" else 0
        charged = cost if allowed and wait == 0 and not dry else 0
        if charged:
            reading = rules.charged(limit, reading, now, cost)
        weighed.append(Weighed(limit, bucket, rules.level(limit, reading, now, patience), charged, wait, delay))
    return Decision(allowed, tuple(weighed), "redis", cost, now)


def decide_token_buckets(
    limits: Sequence[Limit], buckets: Sequence[bytes], debts: Sequence[int], *, allowed: bool, cost: int, now: int
) -> Decision:
    """What `decide` says of token buckets that were not only weighed.

    Nearly every request is decided here, so the rules of `TokenBucket` stand here in one piece: a third of the time.
    """
    weighed = []
    for limit, bucket, debt in zip(limits, buckets, debts):  # noqa: B905 - `strict` costs as much as the rest of it
        interval, capacity = limit.interval_ticks, limit.capacity_ticks
        charge, charged = cost * interval, 0
        wait: int | None = 0
        if debt + charge > capacity:
            wait = debt + charge - capacity if charge <= capacity else None
        elif allowed:
            charged, debt = cost, debt + charge
        level = _made(Level, ((capacity - debt) // interval, (debt - 1) % interval + 1 if debt else 0, debt))
        weighed.append(_made(Weighed, (limit, bucket, level, charged, wait, 0)))
    return cast("Decision", _made(Decision, (allowed, tuple(weighed), "redis", cost, now, "", "", (), False)))
