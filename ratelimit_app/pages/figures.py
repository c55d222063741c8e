"""Which five numbers say how it goes? Each with what to compare it to, and a link to what is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ratelimit_app import stats
from ratelimit_app.pages import thresholds
from ratelimit_app.pages.readings import Outage, Times
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import duration, exactly, grouped, milliseconds, percent, short, signed
from ratelimit_app.usage import LATENCY_BOUNDS


@dataclass(frozen=True, slots=True)
class Figure:
    """One number at the top of the page."""

    label: str
    #: As people read it.
    text: str
    #: As machines read it.
    value: float
    #: Stands beside the number.
    aside: str
    #: Stands below it.
    detail: str
    link: str
    #: "good", "warn", "bad" or "quiet": only the colour of an edge, never the only sign.
    tone: str


def checked(sums: stats.Traffic, day_ago: stats.Traffic, *, per_second: float, when: str) -> Figure:
    rate = _("%(rate)s/s now") % {"rate": grouped(per_second, decimals=1 if 0 < per_second < 10 else 0)}
    if day_ago.checked:
        change = round((sums.checked - day_ago.checked) * 100 / day_ago.checked)
        detail = _("%(rate)s, %(change)s %% on %(when)s")
        rate = detail % {"rate": rate, "change": signed(change), "when": when}
    return Figure(
        _("Requests checked"),
        short(sums.checked),
        sums.checked,
        "",
        rate,
        "#rl-requests",
        "good" if sums.checked else "quiet",
    )


def blocked(sums: stats.Traffic, day_ago: stats.Traffic, *, when: str) -> Figure:
    before = percent(day_ago.blocked_share) if day_ago.checked else _("nothing")
    return Figure(
        _("Blocked"),
        percent(sums.blocked_share),
        round(sums.blocked_share * 100, 4),
        grouped(sums.blocked),
        _("%(before)s %(when)s") % {"before": before, "when": when},
        "#rl-callers",
        _tone_of_share(sums),
    )


def _tone_of_share(sums: stats.Traffic) -> str:
    percent = thresholds.blocked_percent()
    if not percent:
        return "quiet"
    if thresholds.exceeds(sums, percent=percent):
        return "bad"
    return "warn" if thresholds.exceeds(sums, percent=percent / 2) else "good"


def decision_time(times: Times) -> Figure:
    p50, p99, budget = times.p50_microseconds, times.p99_microseconds, thresholds.budget_microseconds()
    details = [] if p50 is None else [_("p50 %(p50)s") % {"p50": milliseconds(p50)}]
    if budget:
        details.append(_("budget %(time)s") % {"time": milliseconds(budget)})
    return Figure(
        _("p99 decision time"),
        _at_most(p99),
        (p99 or 0) / 1000,
        "",
        ", ".join(details),
        "#rl-times",
        "quiet" if p99 is None or not budget else "bad" if p99 > budget else "good",
    )


def unchecked(sums: stats.Traffic, outages: Sequence[Outage]) -> Figure:
    everything = sums.checked + sums.unchecked + sums.failed_closed
    if outages:
        detail = ngettext("%(count)s outage, %(time)s", "%(count)s outages, %(time)s", len(outages)) % {
            "count": grouped(len(outages)),
            "time": duration(sum(outage.seconds for outage in outages)),
        }
        aside = percent(sums.unchecked / everything) if everything else ""
    else:
        undecided = sums.unchecked or sums.failed_closed or sums.local
        detail, aside = _("no outage") if undecided else _("Redis decided everything"), ""
    return Figure(
        _("Unchecked"),
        short(sums.unchecked),
        sums.unchecked,
        aside,
        detail,
        "#rl-undecided" if outages else "#rl-requests",
        "bad" if outages else "warn" if sums.unchecked or sums.failed_closed or sums.local else "good",
    )


def keys_over(over: int, earlier: int, selection: Selection, *, active: int, when: str) -> Figure:
    percent = thresholds.key_blocked_percent()
    return Figure(
        _("Keys over %(percent)s %% blocked") % {"percent": exactly(percent)},
        grouped(over),
        over,
        _("of %(count)s active") % {"count": grouped(active)},
        _("%(count)s in %(when)s") % {"count": grouped(earlier), "when": when},
        selection.link(callers="all") + "#rl-callers",
        "quiet" if not percent else "bad" if over else "good",
    )


def _at_most(microseconds: int | None) -> str:
    if microseconds is None:
        return _("none yet")
    slowest = LATENCY_BOUNDS[-2]
    if microseconds > slowest:
        return _("over %(time)s") % {"time": milliseconds(slowest)}
    return "≤ " + milliseconds(microseconds)
