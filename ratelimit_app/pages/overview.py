"""What do the people on call see first? What needs attention, five figures, charts, the callers that are hurt.

Numbers that machines read (coordinates, attributes, links) are left as they are; those for people are grouped the way
their language does it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from ratelimit_app import alerts, conf, stats
from ratelimit_app.models import Plan
from ratelimit_app.pages import attention, drawings, figures, readings, tables, thresholds
from ratelimit_app.pages.chart import chart
from ratelimit_app.pages.frame import RANGE_LABELS
from ratelimit_app.pages.freshness import is_late
from ratelimit_app.pages.outages import outage_page, outage_rows
from ratelimit_app.pages.selection import Selection, before
from ratelimit_app.pages.text import duration, exactly, moment

#: Callers in the table: at first, and when all are asked for; and among how many the worst is looked for at first.
MOST_CALLERS = 5
ALL_CALLERS = 200
LOOKED_AT = 50
MOST_SHADOWS = 3
_DAY, _WEEK = 86400, 7 * 86400


@stats.one_look()
def page(chosen: Selection, *, newest: datetime | None, links_outages: bool) -> dict[str, Any]:
    """What the page shows. The same few queries however many keys there are.

    `newest` is when the newest data arrived.
    """
    window, plan, now = chosen.window, chosen.plan, chosen.now
    buckets = readings.buckets(window, plan)
    sums = stats.total(buckets, at=window.start)
    outages = readings.outages(window, now=now)
    times = readings.times(window)
    keys = readings.keys_over(window, plan)
    all_callers = chosen.parameters.get("callers") == "all"
    callers = readings.callers(window, plan, most=ALL_CALLERS if all_callers else LOOKED_AT)
    worst = attention.worst_of(callers)
    # Asked on a good day too: what a page costs must not depend on how bad it is.
    identity = worst.identity if worst else stats.OTHERS
    since = readings.since_when(window, plan, identity)
    sentences = [
        *attention.switched_off(conf.current().mode),
        *attention.late(newest, now=now, is_late=is_late(newest, now=now)),
        *attention.blocked(keys, worst, since, chosen),
        *attention.unchecked(outages, sums, chosen, page=outage_page(outages) if links_outages else ""),
        *attention.slow(times, chosen),
        *attention.dropped(stats.dropped(window)),
        *attention.alerted(alerts.open_alerts(), now=now),
    ]
    shown = callers if all_callers else callers[:MOST_CALLERS]
    seconds = (window.end - window.start).total_seconds()
    return {
        "sentences": sentences,
        "is_bad": any(sentence.tone == "bad" for sentence in sentences),
        "clear_since": moment(window.start, now=now) if seconds <= _DAY else "",
        "figures": _figures(chosen, sums, outages, times[-1], keys),
        "is_empty": not (sums.checked or sums.unchecked or sums.failed_closed),
        "charts": {
            "requests": drawings.requests_chart(window, buckets, outages, now=now),
            "share": drawings.share_chart(window, buckets, percent=thresholds.blocked_percent(), now=now),
            "times": drawings.times_chart(
                window, times[:-1], budget_microseconds=thresholds.budget_microseconds(), now=now
            ),
        },
        "drawing": chart(window, buckets, sums),
        "spans": tables.span_rows(chosen, buckets),
        "times": tables.times_rows(chosen, times[:-1]),
        "outages": outage_rows(outages, chosen),
        "longest_range": chosen.link_to_range(list(RANGE_LABELS)[-1]),
        "callers": tables.caller_rows(shown, now=now),
        "earlier_heading": _("%(time)s before") % {"time": duration(seconds)},
        "all_callers": all_callers,
        "callers_link": chosen.link(callers=None if all_callers else "all") + "#rl-callers",
        "keys": keys,
        "percent_blocked": exactly(thresholds.key_blocked_percent()) if thresholds.key_blocked_percent() else "",
        "share_width": tables.SHARE_WIDTH,
        "shadows": _shadows(window, plan),
    }


def _shadows(window: stats.Window, plan: Plan | None) -> list[tables.ShadowCard]:
    """The limits in shadow that would have blocked most."""
    found = [trial for trial in stats.trials(window) if plan is None or trial.limit.plan_id == plan.pk]
    found.sort(key=lambda trial: (-trial.would_block, trial.limit.pk))
    active = stats.keys_active_by_plan(window)
    return [tables.shadow_card(trial, active=active[trial.limit.plan_id]) for trial in found[:MOST_SHADOWS]]


def _figures(
    chosen: Selection,
    sums: stats.Traffic,
    outages: tuple[readings.Outage, ...],
    times: readings.Times,
    keys: int,
) -> list[figures.Figure]:
    window, plan = chosen.window, chosen.plan
    seconds = (window.end - window.start).total_seconds()
    back, when = seconds, _("the time before")
    if seconds <= _WEEK:
        back, when = (_DAY, _("a day ago")) if seconds <= _DAY else (_WEEK, _("a week ago"))
    day_ago = readings.total(before(window, seconds=back), plan)
    keys_before = readings.keys_over(before(window, seconds=seconds), plan)
    return [
        figures.checked(sums, day_ago, per_second=readings.per_second(plan, now=chosen.now), when=when),
        figures.blocked(sums, day_ago, when=when),
        figures.decision_time(times),
        figures.unchecked(sums, outages),
        figures.keys_over(
            keys,
            keys_before,
            chosen,
            active=readings.keys_active(window, plan),
            when=_("the %(time)s before") % {"time": duration(seconds)},
        ),
    ]
