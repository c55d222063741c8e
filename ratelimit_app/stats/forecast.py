"""Whom would other numbers refuse? Recorded minutes, put through a plan's limits once more.

A model, not a promise: arrivals do not react to refusals, a minute's requests are taken as evenly
spread and as costing one token each, and a leaky bucket as one whose callers wait. The work is
bounded: only some of the plan's callers are replayed, those blocked most and the busiest of late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ratelimit_app import resolutions
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Limit
from ratelimit_app.models import UsageMinute
from ratelimit_app.stats.callers import NO_KEY, OTHERS, sample
from ratelimit_app.stats.traffic import total, traffic
from ratelimit_app.stats.windows import RANGES, window

#: So many callers are replayed: a day of theirs is 72,000 rows at most.
REPLAYED = 50
_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the limits of a plan refused in the last 24 hours, and what others would have."""

    #: Requests of all callers on the plan that limits decided.
    checked: int
    #: Of these, refused.
    blocked: int
    #: Let through because nothing could decide: not part of the reckoning.
    unchecked: int
    #: Callers that were replayed, and how many of the requests were theirs.
    callers: int
    replayed: int
    #: What the model refuses with the limits as they are, and with the others; the callers that were
    #: not replayed count as recorded in both.
    blocked_before: int
    blocked_after: int
    #: Replayed callers that the model refuses something with the other limits alone, and who were not refused.
    newly_hit: int

    @property
    def is_complete(self) -> bool:
        """Whether all that was decided was replayed."""
        return self.replayed >= self.checked


def can_be_replayed(limit: Limit) -> bool:
    """Whether what is recorded of a caller says enough: it does not say on which routes, nor from where."""
    return limit.per in ("key", "user") and not limit.scope and not limit.methods


def forecast(plan_id: int, *, before: Iterable[Limit], after: Iterable[Limit], now: datetime) -> Forecast:
    """What limits would have done in the last 24 hours; those that cannot be replayed must not be given."""
    old, new = tuple(before), tuple(after)
    within = window(RANGES["24h"], now=now)
    sums = total(traffic(within, plan_id=plan_id), at=within.start)
    chosen = [each for each in sample(within, limit=REPLAYED, plan_id=plan_id) if each not in (NO_KEY, OTHERS)]
    recorded: dict[str, list[tuple[int, int, int]]] = {}
    rows = UsageMinute.objects.filter(
        plan_id=plan_id, identity__in=chosen, minute__gte=within.start, minute__lt=within.end
    ).order_by("identity", "minute")
    for identity, minute, allowed, refused in rows.values_list("identity", "minute", "allowed", "refused"):
        recorded.setdefault(identity, []).append((resolutions.seconds_of(minute), allowed, refused))
    replayed = blocked = blocked_before = blocked_after = newly_hit = 0
    for minutes in recorded.values():
        arrivals = [(at, allowed + refused) for at, allowed, refused in minutes]
        was, would = sum(refused for _at, _allowed, refused in minutes), replay(arrivals, new)
        would_have_been = replay(arrivals, old)
        replayed += sum(count for _at, count in arrivals)
        blocked += was
        blocked_before += would_have_been
        blocked_after += would
        newly_hit += would > 0 and not was and not would_have_been
    others = max(0, sums.blocked - blocked)
    return Forecast(
        checked=sums.checked,
        blocked=sums.blocked,
        unchecked=sums.unchecked,
        callers=len(recorded),
        replayed=replayed,
        blocked_before=others + blocked_before,
        blocked_after=others + blocked_after,
        newly_hit=newly_hit,
    )


def replay(arrivals: Iterable[tuple[int, int]], limits: Sequence[Limit]) -> int:
    """How many of one caller's requests the limits refuse: (when a minute began, requests in it), oldest first."""
    meters, refused = [_meter(limit) for limit in limits], 0
    for at, count in arrivals:
        passed = min([count, *(meter.room(at - EPOCH_SECONDS) for meter in meters)])
        for meter in meters:
            meter.take(passed)
        refused += count - passed
    return refused


class _Meter(Protocol):
    def room(self, at: int) -> int:
        """How many requests fit into the minute that begins then."""

    def take(self, count: int) -> None:
        """Let so many pass in that minute."""


class _Bucket:
    def __init__(self, limit: Limit) -> None:
        self._limit, self._debt, self._at = limit, 0, 0

    def room(self, at: int) -> int:
        self._debt = max(0, self._debt - (at - self._at) * TICKS_PER_SECOND)
        self._at = at
        gained = _MINUTE * TICKS_PER_SECOND
        return (self._limit.capacity_ticks + gained - self._debt) // self._limit.interval_ticks

    def take(self, count: int) -> None:
        self._debt += count * self._limit.interval_ticks


class _FixedWindow:
    def __init__(self, limit: Limit) -> None:
        self._limit, self._window, self._used = limit, -1, 0

    def room(self, at: int) -> int:
        period = self._limit.period_seconds
        if period < _MINUTE:
            return _a_minute(self._limit)
        if at // period != self._window:
            self._window, self._used = at // period, 0
        return self._limit.capacity - self._used

    def take(self, count: int) -> None:
        self._used += count


class _Sliding:
    def __init__(self, limit: Limit) -> None:
        self._limit, self._used, self._at = limit, 0, 0
        self._passed: deque[tuple[int, int]] = deque()

    def room(self, at: int) -> int:
        self._at = at
        if self._limit.period_seconds < _MINUTE:
            return _a_minute(self._limit)
        while self._passed and self._passed[0][0] <= at - self._limit.period_seconds:
            self._used -= self._passed.popleft()[1]
        return self._limit.capacity - self._used

    def take(self, count: int) -> None:
        self._passed.append((self._at, count))
        self._used += count


def _a_minute(limit: Limit) -> int:
    return limit.capacity * _MINUTE // limit.period_seconds


def _meter(limit: Limit) -> _Meter:
    if limit.is_bucket:
        return _Bucket(limit)
    return _FixedWindow(limit) if limit.algorithm == "fixed_window" else _Sliding(limit)
