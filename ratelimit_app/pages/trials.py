"""What would limits in shadow have done, beside what their plans did?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q, Sum

from ratelimit_app import stats
from ratelimit_app.models import Plan, PlanLimit, RefusalMinute
from ratelimit_app.pages.readings import SUMS, counts, usage

#: Of so many limits, those that would have blocked most, the cards are made.
_MOST_LIMITS = 100


@dataclass(frozen=True, slots=True)
class Trial:
    """A limit in shadow, or one that the setting MODE keeps from refusing."""

    limit: PlanLimit
    would_block: int
    #: What got through or was blocked on the limit's plan.
    plan_traffic: stats.Traffic
    #: Keys of the plan that limits in shadow would have blocked, and that no limit blocked.
    newly_hit: int
    #: Keys of the plan that sent anything.
    active: int
    #: The first minute of the window in which it would have blocked; None when there is none.
    since: datetime | None


def trials(window: stats.Window, plan: Plan | None, *, most: int) -> tuple[Trial, ...]:
    """Limits that would have blocked somebody, most first, then those in shadow that would not. Three queries.

    The first kind need not be in shadow themselves: under the setting MODE "shadow" no limit refuses.
    """
    would = _would_block(window)
    limits = PlanLimit.objects.filter(Q(pk__in=would) | Q(mode=PlanLimit.Mode.SHADOW)).select_related("plan")
    if plan is not None:
        limits = limits.filter(plan=plan)
    first = sorted(limits, key=lambda limit: (-would[limit.pk][0] if limit.pk in would else 0, limit.pk))[:most]
    by_plan = _by_plan(window, sorted({limit.plan_id for limit in first}))
    found = []
    for limit in first:
        would_block, since = would.get(limit.pk, (0, None))
        traffic, newly_hit, active = by_plan[limit.plan_id]
        found.append(Trial(limit, would_block, traffic, newly_hit, active, since))
    return tuple(found)


def _would_block(window: stats.Window) -> Mapping[int, tuple[int, datetime]]:
    rows = (
        RefusalMinute.objects.filter(minute__gte=window.start, minute__lt=window.end, would_refuse__gt=0)
        .values("limit_id")
        .annotate(would_sum=Sum("would_refuse"), since=Min("minute"))
        .order_by("-would_sum", "limit_id")
    )
    return {row["limit_id"]: (int(row["would_sum"]), row["since"]) for row in rows[:_MOST_LIMITS]}


def _by_plan(window: stats.Window, plan_ids: Sequence[int]) -> Mapping[int, tuple[stats.Traffic, int, int]]:
    """(traffic, keys newly hit, keys active) of each plan."""
    if not plan_ids:
        return {}
    keys = (
        usage(window, None)
        .filter(plan_id__in=plan_ids)
        .exclude(identity__in=[stats.NO_KEY, stats.OTHERS])
        .values("plan_id", "identity")
        .annotate(**SUMS)
    )
    wanted: dict[str, Any] = {}
    for plan_id in plan_ids:
        own = Q(plan_id=plan_id)
        wanted |= {f"{name}_{plan_id}": Sum(name, filter=own) for name in SUMS}
        wanted[f"active_{plan_id}"] = Count("identity", filter=own)
        wanted[f"hit_{plan_id}"] = Count("identity", filter=own & Q(would_block_sum__gt=0, blocked_sum=0))
    row = keys.aggregate(**wanted)
    return {
        plan_id: (
            stats.Traffic(at=window.start, **counts({name: row[f"{name}_{plan_id}"] for name in SUMS})),
            row[f"hit_{plan_id}"],
            row[f"active_{plan_id}"],
        )
        for plan_id in plan_ids
    }
