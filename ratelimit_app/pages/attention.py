"""What needs attention? A few sentences, each with a word, a number, who and since when, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ratelimit_app import stats
from ratelimit_app.alerts import OpenAlert
from ratelimit_app.pages import thresholds
from ratelimit_app.pages.naming import name_of
from ratelimit_app.pages.outages import link_to_time, when
from ratelimit_app.pages.readings import Outage, Times
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import between, duration, exactly, grouped, milliseconds, moment, percent

#: Open alerts that are said on the overview; all of them are in their own list.
_MOST_ALERTS = 5


@dataclass(frozen=True, slots=True)
class Sentence:
    """One thing that needs attention."""

    #: The word it begins with.
    tag: str
    #: "bad", "" or "quiet".
    tone: str
    text: str | SafeString
    #: Where to look, and what that is called; "" where there is nothing more to see.
    link: str = ""
    link_text: str = ""


def switched_off(mode: str) -> list[Sentence]:
    """That the switch for everything does not stand at "enforce"."""
    if mode == "shadow":
        text = _('The setting MODE is "shadow": limits are weighed and counted, and nobody is refused.')
        return [Sentence(_("shadow"), "quiet", text)]
    if mode == "off":
        text = _('The setting MODE is "off": nothing is limited and nothing is counted.')
        return [Sentence(_("off"), "bad", text)]
    return []


def late(newest: datetime | None, *, now: datetime, is_late: bool) -> list[Sentence]:
    """That nothing arrived for too long."""
    if newest is None or not is_late:
        return []
    text = _(
        "Nothing has arrived since %(at)s. Either there is no traffic, or the queue or its worker stands still, and "
        "the figures below are too old."
    )
    return [Sentence(_("late"), "bad", text % {"at": moment(newest, now=now)})]


def dropped(kinds: Sequence[tuple[str, int]]) -> list[Sentence]:
    """That the figures are too low."""
    text = _("%(count)s records (%(kind)s) did not fit into full buffers: the figures below are too low by as much.")
    return [Sentence(_("dropped"), "", text % {"count": grouped(count), "kind": kind}) for kind, count in kinds]


def alerted(alerts: Sequence[OpenAlert], *, now: datetime) -> list[Sentence]:
    """That people were told of something which is not over; and who takes care of it."""
    return [
        Sentence(
            _("alert"),
            "bad",
            format_html(
                _("{sentence} Told since {at}.{by}"),
                sentence=alert.sentence,
                at=moment(alert.started_at, now=now),
                by=" " + _("%(name)s takes care of it.") % {"name": alert.acknowledged_by}
                if alert.acknowledged_by
                else "",
            ),
            alert.path,
            _("Look"),
        )
        for alert in alerts[:_MOST_ALERTS]
    ]


def worst_of(callers: Sequence[stats.CallerTraffic]) -> stats.CallerTraffic | None:
    """Of callers, the most blocked first, the first key that is blocked too much."""
    no_keys = (stats.NO_KEY, stats.OTHERS)
    over = (caller for caller in callers if thresholds.key_is_over(caller.traffic))
    return next((caller for caller in over if caller.identity not in no_keys), None)


def blocked(
    keys_over: int,
    worst: stats.CallerTraffic | None,
    since: tuple[datetime, datetime] | None,
    selection: Selection,
) -> list[Sentence]:
    """That keys are blocked more than they should be, and which one most, from when to when."""
    if not keys_over or not thresholds.key_blocked_percent():
        return []
    text = format_html(
        ngettext(
            "<strong>{count} key</strong> is above {percent} % blocked.{worst}",
            "<strong>{count} keys</strong> are above {percent} % blocked.{worst}",
            keys_over,
        ),
        count=grouped(keys_over),
        percent=exactly(thresholds.key_blocked_percent()),
        worst=_worst(worst, since, now=selection.now) if worst else "",
    )
    return [Sentence(_("blocked"), "bad", text, selection.link(callers="all") + "#rl-callers", _("See the keys"))]


def unchecked(
    outages: Sequence[Outage], sums: stats.Traffic, selection: Selection, *, page: str = ""
) -> list[Sentence]:
    """That requests were not decided by Redis: in the last outage, and how many were before; or without any.

    `page` is the address of that outage's page, "" for those who may not open it.
    """
    if not outages:
        return _single_failures(sums)
    last, now = outages[0], selection.now
    more = len(outages) - 1
    text = format_html(
        _("Redis could not be asked {when} ({reasons}). {counts}. {state}{more}"),
        when=when(last, now=now) if last.goes_on else _("from %(span)s") % {"span": when(last, now=now)},
        reasons=last.reasons,
        counts=_counts(last),
        state=_("It goes on.") if last.goes_on else _("Recovered."),
        more=" " + ngettext("%(count)s outage before.", "%(count)s outages before.", more) % {"count": grouped(more)}
        if more
        else "",
    )
    link = page or link_to_time(last, selection)
    return [Sentence(_("unchecked"), "bad" if last.goes_on else "", text, link, _("See the outage"))]


def _single_failures(sums: stats.Traffic) -> list[Sentence]:
    if not (sums.unchecked or sums.failed_closed or sums.local):
        return []
    text = format_html(_("Redis failed single requests, without an outage: {counts}."), counts=_counts(sums))
    return [Sentence(_("unchecked"), "", text, "#rl-requests", _("See when"))]


def slow(times: Sequence[Times], selection: Selection) -> list[Sentence]:
    """That decisions took longer than their budget: over all of the window, since that is what callers felt."""
    p99, budget = times[-1].p99_microseconds, thresholds.budget_microseconds()
    if p99 is None or not budget or p99 <= budget:
        return []
    worst = max(times[:-1], key=lambda part: part.p99_microseconds or 0)
    text = format_html(
        _("Decisions were slow: <strong>p99 {p99}</strong>, budget {budget}; worst at {at} ({worst})."),
        p99=milliseconds(p99),
        budget=milliseconds(budget),
        at=moment(worst.at, now=selection.now),
        worst=milliseconds(worst.p99_microseconds or 0),
    )
    return [Sentence(_("slow"), "", text, "#rl-times", _("See the times"))]


def _worst(caller: stats.CallerTraffic, since: tuple[datetime, datetime] | None, *, now: datetime) -> SafeString:
    return format_html(
        _(" Worst: <bdi>{name}</bdi>, {share} of its {checked} requests{when}."),
        name=name_of(caller),
        share=percent(caller.traffic.blocked_share),
        checked=grouped(caller.traffic.checked),
        when=_since(since, now=now),
    )


def _since(run: tuple[datetime, datetime] | None, *, now: datetime) -> str:
    if run is None:
        return ""
    first, last = run
    if now - last > timedelta(minutes=2):
        return " (" + between(first, last, now=now) + ")"
    return _(", for %(time)s") % {"time": duration(max(60, (now - first).total_seconds()))}


def _counts(of: Outage | stats.Traffic) -> SafeString:
    said = (
        (of.unchecked, _("<strong>{count} requests</strong> passed unchecked")),
        (of.failed_closed, _("<strong>{count}</strong> were answered 503")),
        (of.local, _("<strong>{count}</strong> were decided without Redis")),
    )
    counts = [format_html(words, count=grouped(count)) for count, words in said if count]
    return format_html(", ".join(["{}"] * len(counts)), *counts) if counts else SafeString(_("Nobody was affected"))
