"""What would limits in shadow have done? By limit, and for one of them by key, beside what was refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from ratelimit_app import conf, stats
from ratelimit_app.models import PlanLimit, PlanVersion
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import NOTHING, grouped, percent, shown_as, written

DEFAULT_RANGE = "24h"
#: So many versions of plans are read to find since when limits are in shadow.
_VERSIONS = 1_000


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One limit that is tried out."""

    limit: PlanLimit
    query: str
    #: Since when and for how long it is in shadow; "" when it is not, or was before anything of it was written down.
    since: str
    would_block: str
    would_share: str
    blocked: str
    plan_checked: str
    plan_share: str
    newly_hurt: str


@dataclass(frozen=True, slots=True)
class CallerRow:
    """One caller that a limit would have refused something."""

    key_pk: int | None
    label: str
    #: Of the key; "" where there is none.
    name: str
    would_block: str
    blocked: str
    checked: str
    blocked_by_any: str
    is_newly_hurt: bool


@stats.one_look()
def page(chosen: Selection) -> dict[str, Any]:
    """What the report shows. The same few queries however many keys there are.

    The parameter `limit` of the URL is the id of a limit whose callers to list.
    """
    window, mode = chosen.window, conf.current().mode
    trials = stats.trials(window, everything=mode == "shadow")
    since = shadow_since({trial.limit.plan_id for trial in trials})
    wanted = chosen.parameters.get("limit", "")
    one = next((trial for trial in trials if str(trial.limit.pk) == wanted), None)
    listed = [trial for trial in trials if chosen.plan is None or trial.limit.plan_id == chosen.plan.pk]
    callers = stats.tried_callers(window, limit_id=one.limit.pk) if one else ()
    return {
        "mode": mode,
        "back_query": chosen.link(limit=None),
        "rows": [_row(trial, since, chosen) for trial in ([one] if one else listed)],
        "one": one,
        "is_gone": bool(wanted) and one is None,
        "callers": [_caller(row) for row in callers],
    }


def shadow_since(plan_ids: Iterable[int]) -> dict[int, datetime]:
    """Since when each limit is in shadow, as far as the history of its plan says; by the limit's id."""
    versions = PlanVersion.objects.filter(plan_id__in=plan_ids).order_by("plan_id", "-number")
    since: dict[int, datetime] = {}
    plan_id, newer = 0, set[int]()
    for of_plan, at, limits in versions.values_list("plan_id", "at", "limits")[:_VERSIONS]:
        in_shadow = {limit["id"] for limit in limits if limit["mode"] == PlanLimit.Mode.SHADOW}
        # Going back, a limit counts for as long as each version had it in shadow.
        newer = newer & in_shadow if of_plan == plan_id else in_shadow
        plan_id = of_plan
        since |= dict.fromkeys(newer, at)
    return since


def _row(trial: stats.Trial, since: dict[int, datetime], chosen: Selection) -> TrialRow:
    checked, at = trial.plan_checked, since.get(trial.limit.pk)
    return TrialRow(
        limit=trial.limit,
        query=chosen.link(limit=str(trial.limit.pk)),
        since=_("since %(at)s (%(time)s)") % {"at": written(at), "time": timesince(at, chosen.now)} if at else "",
        would_block=grouped(trial.would_block),
        would_share=percent(trial.would_block / checked) if checked else NOTHING,
        blocked=grouped(trial.blocked),
        plan_checked=grouped(checked),
        plan_share=percent(trial.plan_blocked / checked) if checked else NOTHING,
        newly_hurt=grouped(trial.newly_hurt),
    )


def _caller(row: stats.TriedCaller) -> CallerRow:
    labels = {stats.NO_KEY: _("callers without a key"), stats.OTHERS: _("others, that no longer fitted")}
    label = shown_as(row.key.public_id) if row.key else labels.get(row.identity, _("a deleted key"))
    return CallerRow(
        key_pk=row.key.pk if row.key else None,
        label=label,
        name=row.key.name if row.key else "",
        would_block=grouped(row.would_block),
        blocked=grouped(row.blocked),
        checked=grouped(row.checked),
        blocked_by_any=grouped(row.blocked_by_any),
        is_newly_hurt=row.is_newly_hurt and row.key is not None,
    )
