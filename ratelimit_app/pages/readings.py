"""Where do the pages get their numbers? From `stats`, for all plans or for one, in the form in which pages show them.

Each function costs a few queries, however many keys there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ratelimit_app import stats
from ratelimit_app.models import Plan
from ratelimit_app.pages import thresholds

#: Counts are on their way for so long: at most ten seconds, if nothing is wrong.
SETTLING = timedelta(seconds=15)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which some gateways could not ask Redis. Its counts are those of all plans."""

    start: datetime
    #: Now, when it goes on.
    end: datetime
    goes_on: bool
    #: Why, in a word or a few, as in the log.
    reasons: str
    unchecked: int
    failed_closed: int
    local: int
    #: The id of a span of it, which its page is found by.
    span_pk: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True)
class Times:
    """How long decisions took in a bucket of time: upper bounds of the quantiles."""

    at: datetime
    decisions: int
    p50_microseconds: int | None
    p99_microseconds: int | None


def buckets(window: stats.Window, plan: Plan | None) -> tuple[stats.Traffic, ...]:
    """Traffic of all callers, one entry per bucket, the empty ones included."""
    return stats.traffic(window, plan_id=_id(plan))


def total(window: stats.Window, plan: Plan | None) -> stats.Traffic:
    """Traffic of all callers in the whole window."""
    return stats.total(buckets(window, plan), at=window.start)


def per_second(plan: Plan | None, *, now: datetime) -> float:
    """The rate in the newest whole minute."""
    end = datetime.fromtimestamp((now - SETTLING).timestamp() // 60 * 60, tz=UTC)
    return total(stats.Window(end - _MINUTE, end, 60), plan).checked / 60


def outages(window: stats.Window, *, now: datetime) -> tuple[Outage, ...]:
    """Outages that reach into the window, newest first."""
    return tuple(outage(found, now=now) for found in stats.outages(window, now=now))


def outage(found: stats.Outage, *, now: datetime) -> Outage:
    """An outage in the form in which pages show it."""
    return Outage(
        start=found.started_at,
        end=found.ended_at or now,
        goes_on=found.ended_at is None,
        reasons=", ".join([*found.errors, *filter(None, found.servers)]),
        unchecked=found.unchecked,
        failed_closed=found.failed_closed,
        local=found.local,
        span_pk=found.span_pk,
    )


def callers(window: stats.Window, plan: Plan | None, *, most: int) -> tuple[stats.CallerTraffic, ...]:
    """The callers that were blocked most; among equals those that sent most."""
    return stats.top_callers(window, limit=most, plan_id=_id(plan))


def keys_over(window: stats.Window, plan: Plan | None) -> int:
    """How many keys were blocked more than they should be."""
    return stats.keys_over(
        window,
        percent=thresholds.key_blocked_percent(),
        least_requests=thresholds.least_requests(),
        plan_id=_id(plan),
    )


def keys_active(window: stats.Window, plan: Plan | None) -> int:
    """How many keys sent anything."""
    return stats.keys_active(window, plan_id=_id(plan))


def since_when(window: stats.Window, plan: Plan | None, identity: str) -> tuple[datetime, datetime] | None:
    """When the key's newest run of buckets over the threshold begins and ends; None without any."""
    run: list[datetime] = []
    for part in reversed(stats.traffic(window, plan_id=_id(plan), identity=identity)):
        if thresholds.exceeds(part, percent=thresholds.key_blocked_percent()):
            run.append(part.at)
        elif run and part.checked:
            break
    return (run[-1], run[0] + timedelta(seconds=window.bucket_seconds)) if run else None


def times(window: stats.Window) -> tuple[Times, ...]:
    """How long decisions took in each bucket of the window, for all plans together; and last, in all of it."""
    parts: Sequence[stats.DecisionTimes] = [*stats.decision_times_over_time(window), stats.decision_times(window)]
    return tuple(
        Times(at, part.decisions, part.p50_microseconds, part.p99_microseconds)
        for at, part in zip([*window.starts, window.start], parts, strict=True)
    )


def _id(plan: Plan | None) -> int | None:
    return plan.pk if plan else None
