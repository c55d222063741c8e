"""Where do the pages get their numbers? Here, and nowhere else: rows per minute, for all plans or for one.

Each function costs one query, or two, however many keys there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.db.models.functions import TruncHour

from ratelimit_app import stats
from ratelimit_app.models import APIKey, DecisionMinute, Plan, UsageMinute

#: Counts are on their way for so long: at most ten seconds, if nothing is wrong.
SETTLING = timedelta(seconds=15)
_MINUTE = timedelta(minutes=1)
#: The sums that `counts` reads.
SUMS = {
    "allowed_sum": Sum("allowed"),
    "blocked_sum": Sum("refused"),
    "would_block_sum": Sum("would_refuse"),
    "unchecked_sum": Sum("unchecked"),
    "failed_closed_sum": Sum("failed_closed"),
    "local_sum": Sum("local"),
}


@dataclass(frozen=True, slots=True)
class Outage:
    """Neighbouring minutes in which requests were not decided by Redis."""

    start: datetime
    #: The first moment that was good again; of one that goes on, the end of its last minute.
    end: datetime
    unchecked: int
    failed_closed: int
    local: int

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


def minutes(window: stats.Window, plan: Plan | None) -> tuple[stats.Traffic, ...]:
    """Traffic of all callers per minute, oldest first; minutes without any are left out."""
    rows: QuerySet[Any, Any] = usage(window, plan).values("minute").annotate(**SUMS).order_by("minute")
    return tuple(stats.Traffic(at=row["minute"], **counts(row)) for row in rows)


def in_buckets(window: stats.Window, parts: Iterable[stats.Traffic]) -> tuple[stats.Traffic, ...]:
    """The same traffic, one entry per bucket of the window, the empty ones included."""
    buckets: dict[int, list[stats.Traffic]] = {}
    for part in parts:
        buckets.setdefault(_bucket(window, part.at), []).append(part)
    return tuple(stats.total(buckets.get(number, ()), at=at) for number, at in enumerate(window.starts))


def per_second(parts: Sequence[stats.Traffic], *, now: datetime) -> float:
    """The rate in the newest whole minute; 0 when the window does not reach until now."""
    latest = now - _MINUTE - SETTLING
    for part in reversed(parts):
        if part.at <= latest:
            return part.checked / 60 if latest - part.at < _MINUTE else 0.0
    return 0.0


def outages(parts: Sequence[stats.Traffic]) -> tuple[Outage, ...]:
    """Spans of minutes in which Redis did not decide everything; a good minute in between does not end one."""
    found: list[Outage] = []
    for part in parts:
        if not (part.unchecked or part.failed_closed or part.local):
            continue
        now = Outage(part.at, part.at + _MINUTE, part.unchecked, part.failed_closed, part.local)
        if found and part.at - found[-1].end <= _MINUTE:
            last = found.pop()
            now = Outage(
                last.start,
                now.end,
                last.unchecked + now.unchecked,
                last.failed_closed + now.failed_closed,
                last.local + now.local,
            )
        found.append(now)
    return tuple(found)


def total(window: stats.Window, plan: Plan | None) -> stats.Traffic:
    """Traffic of all callers in the whole window."""
    return stats.Traffic(at=window.start, **counts(usage(window, plan).aggregate(**SUMS)))


def callers(window: stats.Window, plan: Plan | None, *, most: int) -> tuple[stats.CallerTraffic, ...]:
    """The callers that were blocked most; among equals those that sent most."""
    rows = _by_caller(window, plan).order_by("-blocked_sum", "-allowed_sum", "identity")[:most]
    return _with_keys(window, rows)


def of_callers(window: stats.Window, plan: Plan | None, identities: Sequence[str]) -> dict[str, stats.Traffic]:
    """What each of these callers got in the window; those that got nothing are left out."""
    rows = _by_caller(window, plan).filter(identity__in=identities).order_by("identity")
    return {row["identity"]: stats.Traffic(at=window.start, **counts(row)) for row in rows}


def keys_over(window: stats.Window, plan: Plan | None, *, percent: int) -> stats.KeysOver:
    """How many keys were blocked more than `percent` of what they sent."""
    keys = _by_caller(window, plan).exclude(identity__in=[stats.NO_KEY, stats.OTHERS])
    # Whole numbers on both sides: a share in floats would depend on the database.
    counted = keys.annotate(excess=F("blocked_sum") * (100 - percent) - F("allowed_sum") * percent).aggregate(
        active=Count("identity"), over=Count("identity", filter=Q(excess__gt=0))
    )
    return stats.KeysOver(over=counted["over"], active=counted["active"])


def since_when(
    window: stats.Window, plan: Plan | None, caller: stats.CallerTraffic, *, percent: int
) -> tuple[datetime, datetime] | None:
    """The first and the last minute of the caller's newest run of minutes over `percent`; None without any."""
    run: list[datetime] = []
    rows: QuerySet[Any, Any] = usage(window, plan).filter(identity=caller.identity).values("minute").annotate(**SUMS)
    for row in rows.order_by("-minute"):
        if row["blocked_sum"] * (100 - percent) > row["allowed_sum"] * percent:
            run.append(row["minute"])
        elif run:
            break
    return (run[-1], run[0]) if run else None


def times(window: stats.Window) -> tuple[Times, ...]:
    """How long decisions took in each bucket of the window, for all plans together; and last, in all of it."""
    rows = DecisionMinute.objects.filter(minute__gte=window.start, minute__lt=window.end)
    if window.bucket_seconds % 3600 == 0:  # added up by the database: a week has 300,000 rows
        rows = rows.annotate(part=TruncHour("minute", tzinfo=UTC))
    else:
        rows = rows.annotate(part=F("minute"))
    histograms: dict[int | None, Counter[int]] = {}
    for row in rows.values("part", "at_most_microseconds").annotate(sum=Sum("decisions")).order_by("part"):
        for bucket in (_bucket(window, row["part"]), None):
            histograms.setdefault(bucket, Counter())[row["at_most_microseconds"]] += int(row["sum"])
    starts: list[tuple[int | None, datetime]] = [*enumerate(window.starts), (None, window.start)]
    return tuple(_times(at, histograms.get(bucket, Counter())) for bucket, at in starts)


# --- Of rows -----------------------------------------------------------------------------------


def usage(window: stats.Window, plan: Plan | None) -> QuerySet[Any, Any]:
    """The rows of a window, for all plans or for one."""
    rows = UsageMinute.objects.filter(minute__gte=window.start, minute__lt=window.end)
    return rows.filter(plan_id=plan.pk) if plan else rows


def _by_caller(window: stats.Window, plan: Plan | None) -> Any:
    last_blocked_at = Max("minute", filter=Q(refused__gt=0))
    return usage(window, plan).values("identity").annotate(**SUMS, last_blocked_at=last_blocked_at)


def _with_keys(window: stats.Window, rows: Iterable[Mapping[str, Any]]) -> tuple[stats.CallerTraffic, ...]:
    found = list(rows)
    identities = [row["identity"] for row in found if row["identity"] not in (stats.NO_KEY, stats.OTHERS)]
    keys = APIKey.objects.filter(bucket_identity__in=identities).select_related("plan").order_by("pk")
    newest = {key.bucket_identity: key for key in keys}
    return tuple(
        stats.CallerTraffic(
            identity=row["identity"],
            traffic=stats.Traffic(at=window.start, **counts(row)),
            last_blocked_at=row["last_blocked_at"],
            key=newest.get(row["identity"]),
        )
        for row in found
    )


def counts(row: Mapping[str, Any]) -> dict[str, int]:
    """The sums of a row, as the fields of `stats.Traffic`."""
    # They arrive as Decimal from some databases, and as None where there are no rows.
    return {name.removesuffix("_sum"): int(row.get(name) or 0) for name in SUMS}


def _bucket(window: stats.Window, at: datetime) -> int:
    return int((at - window.start).total_seconds()) // window.bucket_seconds


def _times(at: datetime, histogram: Counter[int]) -> Times:
    decisions = histogram.total()
    return Times(at, decisions, _quantile(histogram, percent=50), _quantile(histogram, percent=99))


def _quantile(histogram: Counter[int], *, percent: int) -> int | None:
    """The smallest bound that at least `percent` of the decisions did not exceed."""
    decisions, seen = histogram.total(), 0
    for at_most, count in sorted(histogram.items()):
        seen += count
        if seen and seen * 100 >= decisions * percent:
            return at_most
    return None
