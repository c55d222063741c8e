"""When could Redis not be asked, and what happened meanwhile? Spans of all processes, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from ratelimit_app import resolutions
from ratelimit_app.models import APIKey, OutageSpan, PlanLimit
from ratelimit_app.resolutions import PLANS, REFUSALS
from ratelimit_app.stats.callers import newest_keys
from ratelimit_app.stats.limits import LimitTraffic, by_limit
from ratelimit_app.stats.rows import AT, Selection, sums
from ratelimit_app.stats.windows import Window

#: Spans with no more than this between them are one outage: processes notice at different moments.
GAP = timedelta(seconds=5)
#: A process tells every ten seconds that its span lasts; one that was silent for so long is taken for dead.
SILENT_AFTER = timedelta(seconds=60)
_MOST_SPANS = 20_000
#: Spans that began or ended no further than this from one of an outage may belong to it.
_NEAR = timedelta(days=1)
_UNDECIDED = ("unchecked", "failed_closed", "local")


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which some gateways could not ask Redis."""

    started_at: datetime
    #: When the last gateway was answered again; None while it lasts.
    ended_at: datetime | None
    #: False while it lasts, and when the last gateway fell silent before it said that Redis answers.
    end_is_known: bool
    #: The reasons, one word each, as in the log.
    errors: tuple[str, ...]
    #: The nodes of a cluster that were not asked; ("",) where there is one server.
    servers: tuple[str, ...]
    #: How many processes noticed.
    gateways: int
    #: Requests let through undecided, answered 503, and decided from memory, in the minutes that it touched.
    unchecked: int = 0
    failed_closed: int = 0
    local: int = 0
    #: The id of its first span: `outage_of` knows it by the id of any.
    span_pk: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class OutagePart:
    """What processes told of one server and one reason in an outage."""

    server: str
    error: str
    #: How many processes told so.
    gateways: int
    started_at: datetime
    last_seen_at: datetime
    #: How many of them did not say that the server answers again.
    open_ends: int


@dataclass(frozen=True, slots=True)
class OutageCaller:
    """What one limit did to one caller while it could not be asked."""

    identity: str
    #: The newest key with this identity, or None.
    key: APIKey | None
    limit_id: int
    #: With its mode and `on_failure`, as they are now; None when the limit was deleted since.
    limit: PlanLimit | None
    unchecked: int
    failed_closed: int
    local: int


def outages(within: Window, *, now: datetime | None = None, limit: int = 50) -> tuple[Outage, ...]:
    """Outages that reach into a window, newest first. The same few queries for any number of spans."""
    now = now or datetime.now(UTC)
    start, end = (resolutions.moment(edge.timestamp()) for edge in (within.start, within.end))
    reaching = OutageSpan.objects.filter(last_seen_at__gte=start, started_at__lt=end).order_by("-started_at", "-pk")
    found = [_one(spans, now=now) for spans in _merged(reversed(reaching[:_MOST_SPANS]), now=now)[-limit:]]
    return _counted(found, _whole_minutes(found, now=now) or within, now=now)[::-1]


def outage_of(span: OutageSpan, *, now: datetime | None = None) -> tuple[Outage, tuple[OutagePart, ...]]:
    """The outage that a span is part of, and what was told of each server. The same few queries for any outage."""
    now = now or datetime.now(UTC)
    near = OutageSpan.objects.filter(
        last_seen_at__gte=span.started_at - _NEAR, started_at__lte=span.last_seen_at + _NEAR
    )
    earlier = near.filter(started_at__lte=span.started_at).order_by("-started_at", "-pk")[: _MOST_SPANS // 2]
    later = near.filter(started_at__gt=span.started_at).order_by("started_at", "pk")[: _MOST_SPANS // 2]
    groups = _merged([*reversed(earlier), *later], now=now)
    place = next(number for number, spans in enumerate(groups) if any(each.pk == span.pk for each in spans))
    # The one before may have the first claim on the minute in which this one begins.
    found = [_one(spans, now=now) for spans in groups[max(0, place - 1) : place + 1]]
    return _counted(found, outage_window(found[-1], now=now), now=now)[-1], _parts(groups[place])


def outage_window(outage: Outage, *, now: datetime | None = None) -> Window:
    """The whole minutes that an outage touches, for any other question about it."""
    window = _whole_minutes([outage], now=now or datetime.now(UTC))
    assert window is not None
    return window


def outage_limits(outage: Outage, *, now: datetime | None = None) -> tuple[LimitTraffic, ...]:
    """What each limit that was in need of Redis did in the minutes of an outage."""
    rows = by_limit(outage_window(outage, now=now))
    return tuple(row for row in rows if row.unchecked or row.failed_closed or row.local)


def outage_callers(outage: Outage, *, limit: int = 50, now: datetime | None = None) -> tuple[OutageCaller, ...]:
    """What happened to whom by which limit in the minutes of an outage, most requests first."""
    selection = Selection(REFUSALS, outage_window(outage, now=now))
    rows, parameters = selection.table("identity", "limit_id", *_UNDECIDED, only=_UNDECIDED)
    found = selection.fetch(
        "SELECT identity, limit_id, SUM(unchecked), SUM(failed_closed), SUM(local) "  # noqa: S608 (names are the models' own)
        f"FROM {rows} AS undecided GROUP BY identity, limit_id "
        "ORDER BY SUM(unchecked) + SUM(failed_closed) + SUM(local) DESC, identity, limit_id LIMIT %s",
        [*parameters, limit],
    )
    keys = newest_keys({row[0] for row in found})
    limits = PlanLimit.objects.select_related("plan").in_bulk({row[1] for row in found})
    return tuple(
        OutageCaller(identity, keys.get(identity), limit_id, limits.get(limit_id), *map(int, counts))
        for identity, limit_id, *counts in found
    )


def _counted(found: list[Outage], within: Window, *, now: datetime) -> tuple[Outage, ...]:
    """Outages, oldest first, with what Redis did not decide in their minutes, as far as those are in the window."""
    undecided = Q(unchecked__gt=0) | Q(failed_closed__gt=0) | Q(local__gt=0)
    counts: list[Counter[str]] = [Counter() for _ in found]
    for row in sums(PLANS, within, undecided, by=[AT]):
        at, minute = _aware(row[AT]), timedelta(minutes=1)
        # Each count belongs to one outage, the first that its minute touches.
        for outage, count in zip(found, counts, strict=True):
            if outage.started_at < at + minute and at < (outage.ended_at or now) + minute:
                count.update({name: row[name] for name in _UNDECIDED})
                break
    return tuple(
        replace(outage, unchecked=count["unchecked"], failed_closed=count["failed_closed"], local=count["local"])
        for outage, count in zip(found, counts, strict=True)
    )


def _parts(spans: Iterable[OutageSpan]) -> tuple[OutagePart, ...]:
    groups: dict[tuple[str, str], list[OutageSpan]] = {}
    for span in spans:
        groups.setdefault((span.server, span.error), []).append(span)
    return tuple(
        OutagePart(
            server=server,
            error=error,
            gateways=len({span.gateway for span in told}),
            started_at=_aware(min(span.started_at for span in told)),
            last_seen_at=_aware(max(span.last_seen_at for span in told)),
            open_ends=len({span.gateway for span in told if not span.ended}),
        )
        for (server, error), told in sorted(groups.items())
    )


def _whole_minutes(found: Iterable[Outage], *, now: datetime) -> Window | None:
    moments = [int(moment.timestamp()) for outage in found for moment in (outage.started_at, outage.ended_at or now)]
    if not moments:
        return None
    start, end = min(moments) // 60 * 60, max(moments) // 60 * 60 + 60
    return Window(datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC), 60)


def _merged(spans: Iterable[OutageSpan], *, now: datetime) -> list[list[OutageSpan]]:
    """Spans that overlap, or nearly, are of one outage. Both in the order of their beginning."""
    groups: list[list[OutageSpan]] = []
    until: datetime | None = None
    for span in spans:
        lasts_until = _lasts_until(span, now)
        if until is None or _aware(span.started_at) > until + GAP:
            groups.append([])
            until = lasts_until
        groups[-1].append(span)
        until = max(until, lasts_until)
    return groups


def _one(spans: list[OutageSpan], *, now: datetime) -> Outage:
    last = max(spans, key=lambda span: (_lasts_until(span, now), span.ended))
    lasts = not last.ended and _lasts_until(last, now) >= now
    return Outage(
        started_at=_aware(spans[0].started_at),
        ended_at=None if lasts else _aware(last.last_seen_at),
        end_is_known=bool(last.ended),
        errors=tuple(sorted({span.error for span in spans})),
        servers=tuple(sorted({span.server for span in spans})),
        gateways=len({span.gateway for span in spans}),
        span_pk=spans[0].pk,
    )


def _lasts_until(span: OutageSpan, now: datetime) -> datetime:
    """Until now, as long as its process may still be trying; else until it was last heard of."""
    seen = _aware(span.last_seen_at)
    return max(now, seen) if not span.ended and seen > now - SILENT_AFTER else seen


def _aware(at: datetime) -> datetime:
    return at if timezone.is_aware(at) else timezone.make_aware(at)
