"""When could Redis not be asked, and what did that do to whom? A list of outages, and a page of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.urls import reverse
from django.utils.translation import gettext as _

from ratelimit_app import conf, stats
from ratelimit_app.models import OutageSpan, PlanLimit
from ratelimit_app.pages import readings
from ratelimit_app.pages.naming import name_of
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import between, duration, grouped, moment, shown_as

DEFAULT_RANGE = "30d"
#: Callers in the table of one outage.
MOST_CALLERS = 50
#: Space around an outage when it is looked at.
_MARGIN = timedelta(minutes=10)


class _Undecided(Protocol):
    """Whatever says how many requests Redis did not decide."""

    @property
    def unchecked(self) -> int: ...
    @property
    def failed_closed(self) -> int: ...
    @property
    def local(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OutageRow:
    """One line of a table of outages."""

    #: For the link to its page.
    span_pk: int
    text: str
    #: The query of the same page that looks at just this time.
    link: str
    time: str
    reasons: str
    counts: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PartRow:
    """What was told of one server, for one reason."""

    server: str
    error: str
    gateways: str
    span: str
    end: str


@dataclass(frozen=True, slots=True)
class LimitRow:
    """What a limit does without Redis; its plan's id is None when it was deleted."""

    name: str
    plan: str
    plan_pk: int | None
    mode: str
    on_failure: str


@dataclass(frozen=True, slots=True)
class CallerRow:
    """One caller, by the key that is linked to; its id is None where there is none."""

    name: str
    shown_as: str
    key_pk: int | None
    limit: LimitRow
    counts: tuple[tuple[int, str], ...]


def outage_rows(outages: Sequence[readings.Outage], selection: Selection) -> list[OutageRow]:
    """Newest first."""
    return [
        OutageRow(
            span_pk=outage.span_pk,
            text=when(outage, now=selection.now),
            link=link_to_time(outage, selection),
            time=duration(outage.seconds),
            reasons=outage.reasons,
            counts=undecided(outage),
        )
        for outage in outages
    ]


def when(outage: readings.Outage, *, now: datetime) -> str:
    if outage.goes_on:
        return _("since %(at)s") % {"at": moment(outage.start, now=now)}
    return between(outage.start, outage.end, now=now)


def outage_page(outages: Sequence[readings.Outage]) -> str:
    """The address of the page of the newest of them; "" without any."""
    return reverse("admin:ratelimit_app_outagespan_change", args=[outages[0].span_pk]) if outages else ""


def link_to_time(outage: readings.Outage, selection: Selection) -> str:
    """The query that looks at the time of an outage, and a little around it."""
    return selection.link_to_span(outage.start - _MARGIN, outage.end + _MARGIN)


def undecided(of: _Undecided) -> tuple[tuple[int, str], ...]:
    """Passed unchecked, answered 503, decided without Redis: for machines and for people."""
    return tuple((count, grouped(count)) for count in (of.unchecked, of.failed_closed, of.local))


@stats.one_look()
def listed(chosen: Selection) -> dict[str, Any]:
    """What the list shows."""
    return {"outages": outage_rows(readings.outages(chosen.window, now=chosen.now), chosen)}


@stats.one_look()
def page(found: stats.Outage, parts: Sequence[stats.OutagePart], chosen: Selection) -> dict[str, Any]:
    """What the page of one outage shows. The same few queries however many processes, limits and callers there are."""
    now, outage = chosen.now, readings.outage(found, now=chosen.now)
    return {
        "mode": conf.current().mode,
        "is_over": not outage.goes_on,
        "end_is_known": found.end_is_known,
        "when": when(outage, now=now),
        "time": duration(outage.seconds),
        "gateways": grouped(found.gateways),
        "counts": [
            (label, *count)
            for label, count in zip(
                (_("Passed unchecked"), _("Answered 503"), _("Decided without Redis")), undecided(found), strict=True
            )
        ],
        "parts": [_part(part, now=now) for part in parts],
        "limits": [(_limit(row.limit), undecided(row)) for row in stats.outage_limits(found, now=now)],
        "callers": [_caller(row) for row in stats.outage_callers(found, limit=MOST_CALLERS, now=now)],
        "most_callers": grouped(MOST_CALLERS),
        "time_query": link_to_time(outage, chosen),
    }


def outage_of(span: OutageSpan, *, now: datetime) -> tuple[stats.Outage, tuple[stats.OutagePart, ...], stats.Window]:
    """The outage that a span is part of, what was told of it, and the whole minutes that it touched."""
    found, parts = stats.outage_of(span, now=now)
    return found, parts, stats.outage_window(found, now=now)


def _part(part: stats.OutagePart, *, now: datetime) -> PartRow:
    return PartRow(
        server=part.server,
        error=part.error,
        gateways=grouped(part.gateways),
        span=between(part.started_at, part.last_seen_at, now=now),
        end=_("%(count)s did not say that it answers again") % {"count": grouped(part.open_ends)}
        if part.open_ends
        else _("it answers again"),
    )


def _limit(limit: PlanLimit | None) -> LimitRow:
    if limit is None:
        return LimitRow(_("a deleted limit"), "", None, "", "")
    return LimitRow(
        limit.name, limit.plan.name, limit.plan_id, limit.get_mode_display(), limit.get_on_failure_display()
    )


def _caller(row: stats.OutageCaller) -> CallerRow:
    return CallerRow(
        name=name_of(row),
        shown_as=shown_as(row.key.public_id) if row.key else "",
        key_pk=row.key.pk if row.key else None,
        limit=_limit(row.limit),
        counts=undecided(row),
    )
