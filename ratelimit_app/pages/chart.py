"""Where does everything stand in the chart of requests over time? Numbers for an SVG, and a sentence that says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from ratelimit_app import stats
from ratelimit_app.pages.text import grouped, moment

WIDTH = 960
HEIGHT = 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 12, 28
_LABEL_STEPS = (120, 600, 3600, 3 * 3600, 24 * 3600, 4 * 24 * 3600)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bucket of the chart: three bands on top of each other, in the units of the SVG."""

    title: str
    x: float
    width: float
    allowed_y: float
    allowed_height: float
    blocked_y: float
    blocked_height: float
    unchecked_y: float
    unchecked_height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Requests over time: where everything stands in the SVG."""

    bars: tuple[Bar, ...]
    #: (y, label) of the horizontal lines.
    levels: tuple[tuple[float, str], ...]
    #: (x, label) of the moments on the time axis.
    moments: tuple[tuple[float, str], ...]
    #: What the chart shows, in a sentence.
    sentence: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def chart(window: stats.Window, buckets: Sequence[stats.Traffic], sums: stats.Traffic) -> Chart:
    top = _level_above(max((b.checked + b.unchecked for b in buckets), default=0))
    plot_height = HEIGHT - _TOP - _BOTTOM
    step = (WIDTH - _LEFT - _RIGHT) / len(buckets)

    def bar(number: int, bucket: stats.Traffic) -> Bar:
        edges = [round(HEIGHT - _BOTTOM - plot_height * reached / top, 2) for reached in _bands(bucket)]
        heights = [round(lower - upper, 2) for lower, upper in pairwise(edges)]
        return Bar(
            title=_title(bucket, window),
            x=round(_LEFT + step * number, 2),
            width=round(step * 0.86, 2),
            allowed_y=edges[1],
            allowed_height=heights[0],
            blocked_y=edges[2],
            blocked_height=heights[1],
            unchecked_y=edges[3],
            unchecked_height=heights[2],
        )

    labelled = _seconds_between_labels(window)
    return Chart(
        bars=tuple(bar(number, bucket) for number, bucket in enumerate(buckets)),
        levels=tuple(
            (round(HEIGHT - _BOTTOM - plot_height * part / 4, 2), grouped(top * part / 4)) for part in range(5)
        ),
        moments=tuple(
            (round(_LEFT + step * number, 2), _moment(bucket.at, window))
            for number, bucket in enumerate(buckets)
            if bucket.at.timestamp() % labelled == 0 and number * step < WIDTH * 0.88
        ),
        sentence=_("%(allowed)s requests allowed, %(blocked)s blocked and %(unchecked)s let through unchecked.")
        % {
            "allowed": grouped(sums.allowed),
            "blocked": grouped(sums.blocked),
            "unchecked": grouped(sums.unchecked),
        },
    )


def _bands(bucket: stats.Traffic) -> tuple[int, int, int, int]:
    return 0, bucket.allowed, bucket.checked, bucket.checked + bucket.unchecked


def _level_above(highest: int) -> int:
    """The next round number that four lines divide evenly: 4, 8, 12, 16, 20, 40, 80, 120, ..."""
    unit = 4
    while unit * 5 < highest:
        unit *= 10
    return -(-max(highest, 1) // unit) * unit


def _seconds_between_labels(window: stats.Window) -> int:
    """Round times that leave at most eight labels."""
    span = (window.end - window.start).total_seconds()
    return next(seconds for seconds in _LABEL_STEPS if span / seconds <= 8)


def _moment(at: datetime, window: stats.Window) -> str:
    days = (window.end - window.start).days > 1
    return date_format(timezone.localtime(at), "D j M" if days else "H:i")


def _title(bucket: stats.Traffic, window: stats.Window) -> str:
    return _("%(time)s: %(allowed)s allowed, %(blocked)s blocked, %(unchecked)s unchecked") % {
        "time": moment(bucket.at, now=window.end),
        "allowed": grouped(bucket.allowed),
        "blocked": grouped(bucket.blocked),
        "unchecked": grouped(bucket.unchecked),
    }
