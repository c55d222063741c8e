"""What would limits in shadow have done, beside what their plans did?"""

from __future__ import annotations

from dataclasses import dataclass

from ratelimit_app import stats
from ratelimit_app.models import Plan, PlanLimit
from ratelimit_app.pages import readings

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


def trials(window: stats.Window, plan: Plan | None, *, most: int) -> tuple[Trial, ...]:
    """Limits that would have blocked somebody, most first, then those in shadow that would not.

    The first kind need not be in shadow themselves: under the setting MODE "shadow" no limit refuses.
    """
    found = [
        shadow
        for shadow in stats.shadow_limits(window, limit=_MOST_LIMITS)
        if shadow.limit and (plan is None or shadow.limit.plan_id == plan.pk)
    ]
    return tuple(_trial(window, shadow) for shadow in found[:most])


def _trial(window: stats.Window, shadow: stats.ShadowLimit) -> Trial:
    assert shadow.limit is not None
    plan = shadow.limit.plan
    return Trial(
        limit=shadow.limit,
        would_block=shadow.would_block,
        plan_traffic=readings.total(window, plan),
        newly_hit=stats.keys_newly_hit(window, plan_id=plan.pk),
        active=stats.keys_active(window, plan_id=plan.pk),
    )
