"""What do the charts of a page draw? Numbers for the browser, and every word beside them in the reader's language.

The form is described in static/ratelimit_app/charts.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from ratelimit_app import stats
from ratelimit_app.pages.readings import SETTLING, Outage, Times
from ratelimit_app.pages.text import clock, duration, exactly, milliseconds, written

_TICK_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
_MOST_TICKS = 8
#: So much of a long bucket says how it will be; a minute has to be whole.
_ENOUGH_SECONDS = 180


def requests_chart(
    window: stats.Window, buckets: Sequence[stats.Traffic], outages: Sequence[Outage], *, now: datetime
) -> dict[str, Any]:
    """Allowed, blocked and unchecked requests per minute, standing on each other; outages hatched."""
    drawn = settled(window, buckets, now=now)

    def per_minute(name: str) -> list[float]:
        return [round(getattr(bucket, name) * 60 / _seconds_counted(window, bucket.at, now=now), 1) for bucket in drawn]

    return {
        **_axis(window, [bucket.at for bucket in drawn], now=now),
        "stacked": True,
        "unlabelled": True,
        "unit": "",
        "series": [
            {"name": _("allowed"), "tone": "allowed", "values": per_minute("allowed")},
            {"name": _("blocked"), "tone": "blocked", "values": per_minute("blocked")},
            {"name": _("unchecked"), "tone": "unchecked", "values": per_minute("unchecked")},
        ],
        "spans": [
            {
                "start": int(outage.start.timestamp()),
                "end": int(outage.end.timestamp()),
                "label": _("Redis down, %(time)s") % {"time": duration(outage.seconds)},
            }
            for outage in outages
        ],
    }


def share_chart(
    window: stats.Window, buckets: Sequence[stats.Traffic], *, percent: float, now: datetime
) -> dict[str, Any]:
    """Which share of the checked requests was blocked, and the line that it should stay below; 0 draws none."""
    drawn = settled(window, buckets, now=now)
    shares = [round(bucket.blocked_share * 100, 2) if bucket.checked else None for bucket in drawn]
    return {
        **_axis(window, [bucket.at for bucket in drawn], now=now),
        "unit": "%",
        "series": [{"name": _("blocked"), "tone": "blocked", "values": shares}],
        "limit": {"value": percent, "label": _("%(percent)s%% blocked") % {"percent": exactly(percent)}}
        if percent
        else None,
    }


def times_chart(
    window: stats.Window, times: Sequence[Times], *, budget_microseconds: int, now: datetime
) -> dict[str, Any]:
    """How long decisions took, and the budget; 0 draws none."""
    drawn = settled(window, times, now=now)

    def quantile(name: str) -> list[float | None]:
        found = (getattr(part, name) for part in drawn)
        return [None if value is None else value / 1000 for value in found]

    return {
        **_axis(window, [part.at for part in drawn], now=now),
        "unit": "ms",
        "series": [
            {"name": "p99", "tone": "allowed", "values": quantile("p99_microseconds")},
            {"name": "p50", "tone": "allowed", "dashed": True, "values": quantile("p50_microseconds")},
        ],
        "limit": {
            "value": budget_microseconds / 1000,
            "label": _("budget %(time)s") % {"time": milliseconds(budget_microseconds)},
        }
        if budget_microseconds
        else None,
    }


def settled(window: stats.Window, parts: Sequence[Any], *, now: datetime) -> Sequence[Any]:
    """Buckets of which enough is known: a minute that still fills would look like a fall. All when there are none."""
    enough = min(window.bucket_seconds, _ENOUGH_SECONDS)
    return [part for part in parts if _seconds_counted(window, part.at, now=now) >= enough] or parts


def _seconds_counted(window: stats.Window, at: datetime, *, now: datetime) -> float:
    """How much of a bucket is over, and its counts have arrived; at least a second."""
    return max(1.0, min(window.bucket_seconds, (now - SETTLING - at).total_seconds()))


def _axis(window: stats.Window, moments: Sequence[datetime], *, now: datetime) -> dict[str, Any]:
    start, end = moments[0], moments[-1]
    if start == end or window.bucket_seconds > 60:
        end = max(end + timedelta(seconds=1), min(now, end + timedelta(seconds=window.bucket_seconds)))
    is_long = end - start > timedelta(days=1)
    return {
        "start": int(start.timestamp()),
        "end": int(end.timestamp()),
        "x": [int(at.timestamp()) for at in moments],
        "labels": [written(at, "D j M, H:i") if is_long else clock(at) for at in moments],
        "ticks": [
            (int(at.timestamp()), date_format(timezone.localtime(at), "D j M" if is_long else "H:i"))
            for at in _ticks(start, end)
        ],
    }


def _ticks(start: datetime, end: datetime) -> list[datetime]:
    """Round times of the reader's clock, also on the day when it changes."""
    span_minutes = (end - start).total_seconds() / 60
    step = next((minutes for minutes in _TICK_MINUTES if span_minutes / minutes <= _MOST_TICKS), 1440 * 4)
    # Offsets from UTC are multiples of a quarter of an hour.
    look_every = min(step, 15)
    first = start.timestamp() // (look_every * 60) * look_every * 60
    moments = (
        datetime.fromtimestamp(first + number * look_every * 60, tz=start.tzinfo)
        for number in range(int(span_minutes / look_every) + 2)
    )
    zone = timezone.get_current_timezone()  # once: a month is looked at every quarter of an hour
    return [at for at in moments if start <= at <= end and _is_round(at.astimezone(zone), step)]


def _is_round(local: datetime, step_minutes: int) -> bool:
    days, minutes = divmod(step_minutes, 1440)
    if days:
        return local.hour == local.minute == 0 and local.toordinal() % days == 0
    return (local.hour * 60 + local.minute) % minutes == 0
