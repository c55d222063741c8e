"""What did one key get, and why? The queries behind the pages about keys, answered as values.

Counts hang on the bucket identity, so a key and those it replaced are one here. Each function costs
the same few queries, however many keys and rows there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Sum

from ratelimit_app.models import DroppedMinute, PlanLimit, Refusal, RefusalMinute
from ratelimit_app.resolutions import REFUSALS, USAGE
from ratelimit_app.stats.rows import BUCKET, sums
from ratelimit_app.stats.windows import Range, Window, window

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
    day = window(Range("", HOURS * 3600, 3600), now=now.astimezone(UTC))
    days = {identity: [Hour()] * HOURS for identity in identities}
    for row in sums(USAGE, day, by=[BUCKET, "identity"], identity__in=identities):
        hours, place = days[row["identity"]], max(0, row[BUCKET])
        so_far = hours[place]
        hours[place] = Hour(so_far.allowed + row["allowed"], so_far.blocked + row["refused"])
    return {identity: tuple(hours) for identity, hours in days.items()}


def refusals_by_route(identity: str, within: Window, *, limit: int = 20) -> tuple[RouteRefusals, ...]:
    """Where one caller was refused, most often first. Allowed requests are counted without their route."""
    counts: dict[tuple[str, int], Counter[str]] = {}
    for row in sums(REFUSALS, within, by=["route", "limit_id"], identity=identity):
        counted = {"blocked": row["refused"], "would_block": row["would_refuse"]}
        counts.setdefault((row["route"], row["limit_id"]), Counter()).update(counted)
    some = {key: count for key, count in counts.items() if count.total()}
    most = sorted(some, key=lambda key: (-some[key]["blocked"], -some[key]["would_block"], key))[:limit]
    names = dict(PlanLimit.objects.filter(pk__in={limit_id for _, limit_id in most}).values_list("pk", "name"))
    return tuple(
        RouteRefusals(route=route, limit_id=limit_id, limit_name=names.get(limit_id, ""), **some[route, limit_id])
        for route, limit_id in most
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
