"""What stands in the tables of the overview? Callers, spans of time, limits in shadow, ready to print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _

from ratelimit_app import stats
from ratelimit_app.pages import thresholds
from ratelimit_app.pages.naming import name_of
from ratelimit_app.pages.readings import SETTLING, Times
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import (
    NOTHING,
    duration,
    grouped,
    milliseconds,
    moment,
    percent,
    shown_as,
    written,
)

#: How wide the bar of a share is drawn; all of it stands for twice the threshold.
SHARE_WIDTH = 64


@dataclass(frozen=True, slots=True)
class CallerRow:
    """One line of the table of callers."""

    name: str
    #: How the key is known, as `rl_live_7Kq2mB0xTn4e…`; "" when it is no key.
    shown_as: str
    plan: str
    #: For the link to the key, or None where there is nothing to see.
    key_pk: int | None
    traffic: stats.Traffic
    checked: str
    blocked: str
    unchecked: str
    share: str
    #: How far the bar of the share reaches.
    share_width: float
    is_over: bool
    #: The share in the window before, with an arrow.
    earlier: str
    last_blocked_at: datetime | None
    #: When that was, and how long ago.
    last_blocked_minute: str
    last_blocked: str


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One line of a table of requests over time."""

    at: datetime
    text: str
    link: str
    #: Allowed, blocked, unchecked, answered 503, decided without Redis: for machines and for people.
    counts: tuple[tuple[int, str], ...]
    is_filling: bool


@dataclass(frozen=True, slots=True)
class TimesRow:
    """One line of the table of decision times."""

    text: str
    link: str
    times: Times
    decisions: str
    p50: str
    p99: str


@dataclass(frozen=True, slots=True)
class ShadowCard:
    """One limit in trial."""

    trial: stats.Trial
    name: str
    plan: str
    plan_pk: int
    rule: str
    would_block: str
    would_block_share: str
    blocked: str
    blocked_share: str
    newly_hit: str
    active: str


def caller_rows(callers: Sequence[stats.CallerTraffic], *, now: datetime) -> list[CallerRow]:
    return [_caller_row(caller, now=now) for caller in callers]


def span_rows(selection: Selection, buckets: Sequence[stats.Traffic]) -> list[SpanRow]:
    """The numbers behind a chart of requests, newest first."""
    window, now = selection.window, selection.now
    step = timedelta(seconds=window.bucket_seconds)
    rows = [
        SpanRow(
            at=bucket.at,
            text=moment(bucket.at, now=now),
            link=selection.link_to_span(bucket.at, bucket.at + step),
            counts=tuple(
                (count, grouped(count))
                for count in (bucket.allowed, bucket.blocked, bucket.unchecked, bucket.failed_closed, bucket.local)
            ),
            is_filling=bucket.at + step + SETTLING > now,
        )
        for bucket in buckets
        if bucket.at <= now
    ]
    return rows[::-1]


def times_rows(selection: Selection, times: Sequence[Times]) -> list[TimesRow]:
    """The numbers behind the chart of decision times, newest first."""
    step = timedelta(seconds=selection.window.bucket_seconds)
    return [
        TimesRow(
            text=moment(part.at, now=selection.now),
            link=selection.link_to_span(part.at, part.at + step),
            times=part,
            decisions=grouped(part.decisions),
            p50=_time(part.p50_microseconds),
            p99=_time(part.p99_microseconds),
        )
        for part in reversed(times)
        if part.at <= selection.now
    ]


def shadow_card(trial: stats.Trial, *, active: int) -> ShadowCard:
    """`active` is the number of keys that sent anything on its plan."""
    limit = trial.limit
    rule = _("%(requests)s per %(period)s, burst %(burst)s") % {
        "requests": grouped(limit.requests),
        "period": duration(limit.period_seconds),
        "burst": grouped(limit.burst),
    }
    return ShadowCard(
        trial=trial,
        name=limit.name,
        plan=limit.plan.name,
        plan_pk=limit.plan_id,
        rule=rule,
        would_block=grouped(trial.would_block),
        would_block_share=_share(trial.would_block, trial.plan_checked),
        blocked=grouped(trial.plan_blocked),
        blocked_share=_share(trial.plan_blocked, trial.plan_checked),
        newly_hit=grouped(trial.newly_hurt),
        active=grouped(active),
    )


def _caller_row(caller: stats.CallerTraffic, *, now: datetime) -> CallerRow:
    traffic, key = caller.traffic, caller.key
    full_bar = 2 * thresholds.key_blocked_percent() or 100
    at = caller.last_blocked_at
    return CallerRow(
        name=name_of(caller),
        shown_as=shown_as(key.public_id) if key else "",
        plan=key.plan.name if key else "",
        key_pk=key.pk if key else None,
        traffic=traffic,
        checked=grouped(traffic.checked),
        blocked=grouped(traffic.blocked),
        unchecked=grouped(traffic.unchecked),
        share=percent(traffic.blocked_share),
        share_width=round(min(1.0, traffic.blocked_share * 100 / full_bar) * SHARE_WIDTH, 1),
        is_over=thresholds.key_is_over(traffic),
        earlier=_compared(traffic, caller.before),
        last_blocked_at=at,
        last_blocked_minute=written(at) if at else "",
        last_blocked=_ago(at, now=now) if at else _("none"),
    )


def _compared(traffic: stats.Traffic, before: stats.Traffic) -> str:
    if not before.checked:
        return NOTHING
    difference = traffic.blocked_share - before.blocked_share
    arrow = "=" if abs(difference) < 0.002 else "↑" if difference > 0 else "↓"
    return f"{arrow} {percent(before.blocked_share)}"


def _ago(minute: datetime, *, now: datetime) -> str:
    # The row says only the minute; its end is the latest that it can have been.
    seconds = (now - minute).total_seconds() - 60
    return _("this minute") if seconds < 0 else _("%(time)s ago") % {"time": duration(max(60, seconds))}


def _share(part: int, whole: int) -> str:
    return percent(part / whole) if whole else NOTHING


def _time(microseconds: int | None) -> str:
    return NOTHING if microseconds is None else milliseconds(microseconds)
