"""What did one key get, and why? The queries behind the pages about keys, answered as values.

Counts hang on the bucket identity, so a key and those it replaced are one here. Each function costs
one query, or two, however many keys and rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.db.models.functions import TruncHour

from ratelimit_app import stats
from ratelimit_app.models import DroppedMinute, PlanLimit, Refusal, RefusalMinute, UsageMinute

HOURS = 24


@dataclass(frozen=True, slots=True)
class Hour:
    """What a caller got in one hour."""

    allowed: int = 0
    blocked: int = 0


@dataclass(frozen=True, slots=True)
class RouteRefusals:
    """How often one limit refused a caller on one route."""

    route: str
    limit_id: int
    #: What the limit is called now; "" when it was deleted.
    limit_name: str
    blocked: int
    would_block: int


def last_day(identities: Sequence[str], *, now: datetime) -> dict[str, tuple[Hour, ...]]:
    """The last 24 hours of each caller, oldest first, the one that is still filling included."""
    first = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    rows = (
        UsageMinute.objects.filter(identity__in=identities, minute__gte=first)
        .annotate(hour=TruncHour("minute", tzinfo=UTC))
        .values("identity", "hour")
        .annotate(allowed_sum=Sum("allowed"), blocked_sum=Sum("refused"))
        .order_by()
    )
    days = {identity: [Hour()] * HOURS for identity in identities}
    for row in rows:
        place = int((row["hour"] - first).total_seconds()) // 3600
        if 0 <= place < HOURS:
            days[row["identity"]][place] = Hour(int(row["allowed_sum"]), int(row["blocked_sum"]))
    return {identity: tuple(hours) for identity, hours in days.items()}


def traffic(identity: str, within: stats.Window) -> tuple[stats.Traffic, ...]:
    """Traffic of one caller, one entry per bucket of the window, the empty ones included."""
    columns = {
        "allowed": "allowed",
        "refused": "blocked",
        "would_refuse": "would_block",
        "unchecked": "unchecked",
        "failed_closed": "failed_closed",
        "local": "local",
    }
    sums: dict[int, dict[str, int]] = {}
    rows = UsageMinute.objects.filter(identity=identity, minute__gte=within.start, minute__lt=within.end)
    for minute, *counts in rows.values_list("minute", *columns):
        bucket = int((minute - within.start).total_seconds()) // within.bucket_seconds
        summed = sums.setdefault(bucket, dict.fromkeys(columns.values(), 0))
        for name, count in zip(columns.values(), counts, strict=True):
            summed[name] += count
    return tuple(stats.Traffic(at=at, **sums.get(bucket, {})) for bucket, at in enumerate(within.starts))


def refusals_by_route(identity: str, within: stats.Window, *, limit: int = 20) -> tuple[RouteRefusals, ...]:
    """Where one caller was refused, most often first. Allowed requests are counted without their route."""
    rows = list(
        RefusalMinute.objects.filter(identity=identity, minute__gte=within.start, minute__lt=within.end)
        .values("route", "limit_id")
        .annotate(blocked_sum=Sum("refused"), would_block_sum=Sum("would_refuse"))
        .order_by("-blocked_sum", "-would_block_sum", "route", "limit_id")[:limit]
    )
    names = dict(PlanLimit.objects.filter(pk__in={row["limit_id"] for row in rows}).values_list("pk", "name"))
    return tuple(
        RouteRefusals(
            route=row["route"],
            limit_id=row["limit_id"],
            limit_name=names.get(row["limit_id"], ""),
            blocked=int(row["blocked_sum"]),
            would_block=int(row["would_block_sum"]),
        )
        for row in rows
    )


def recent_refusals(identity: str, *, limit: int = 50) -> tuple[Refusal, ...]:
    """The newest refusals of one caller that were kept in full."""
    return tuple(Refusal.objects.filter(identity=identity).order_by("-at")[:limit])


def refused_in_its_minute(refusal: Refusal) -> int:
    """How often the same limit refused the same caller on the same route in the minute of a refusal."""
    minute = refusal.at.replace(second=0, microsecond=0)
    counted: dict[str, Any] = RefusalMinute.objects.filter(
        identity=refusal.identity, minute=minute, limit_id=refusal.limit_id, route=refusal.route
    ).aggregate(refused=Sum("refused"))
    return int(counted["refused"] or 0)


def refusals_not_kept(*, since: datetime) -> int:
    """How many refusals of anybody were counted, but not kept in full."""
    counted = DroppedMinute.objects.filter(kind="samples", minute__gte=since).aggregate(dropped=Sum("dropped"))
    return int(counted["dropped"] or 0)
