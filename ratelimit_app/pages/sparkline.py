"""How did the last day go, at a glance? A small drawing of bars, and the words that say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from ratelimit_app.pages.text import grouped, percent
from ratelimit_app.stats import keys as key_stats

WIDTH, HEIGHT = 96, 24
_STEP = WIDTH / key_stats.HOURS
#: Whatever is not nothing can be seen.
_LEAST = 1.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One hour: allowed at the bottom, blocked on top of it; in units of the SVG."""

    x: float
    width: float
    allowed_y: float
    allowed_height: float
    blocked_y: float
    blocked_height: float


@dataclass(frozen=True, slots=True)
class Sparkline:
    """The last 24 hours of one caller."""

    bars: tuple[Bar, ...]
    #: What a person reads beside the drawing, and who cannot see it instead.
    words: str
    width: int = WIDTH
    height: int = HEIGHT


def sparkline(hours: Sequence[key_stats.Hour]) -> Sparkline:
    """The drawing of these hours, oldest first."""
    allowed, blocked = sum(hour.allowed for hour in hours), sum(hour.blocked for hour in hours)
    if not allowed + blocked:
        return Sparkline((), _("no requests"))
    top = max(hour.allowed + hour.blocked for hour in hours)
    bars = tuple(_bar(place, hour, top) for place, hour in enumerate(hours) if hour.allowed or hour.blocked)
    words = _("%(count)s requests, %(share)s blocked") % {
        "count": grouped(allowed + blocked),
        "share": percent(blocked / (allowed + blocked)),
    }
    return Sparkline(bars, words)


def _bar(place: int, hour: key_stats.Hour, top: int) -> Bar:
    def height(count: int) -> float:
        return round(max(_LEAST, count / top * (HEIGHT - _LEAST)), 2) if count else 0.0

    allowed, blocked = height(hour.allowed), height(hour.blocked)
    return Bar(
        x=round(place * _STEP, 2),
        width=round(_STEP - 1, 2),
        allowed_y=round(HEIGHT - allowed, 2),
        allowed_height=allowed,
        blocked_y=round(max(0.0, HEIGHT - allowed - blocked), 2),
        blocked_height=blocked,
    )
