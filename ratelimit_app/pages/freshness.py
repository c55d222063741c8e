"""How fresh is what a page shows? As of when it is, when the newest data arrived, and whether that is too long ago."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ratelimit_app import stats
from ratelimit_app.pages.text import clock, duration

#: Counts leave each process every ten seconds: no news for this long means no traffic, or a fault.
LATE_AFTER_SECONDS = 60


def freshness(*, now: datetime) -> dict[str, Any]:
    """What the template freshness.html prints. One query."""
    newest = stats.newest_data_at()
    return {
        "as_of": (now, clock(now, seconds=True)),
        "newest": newest and (newest.astimezone(UTC), clock(newest, seconds=True)),
        "age": newest and duration(max(0, (now - newest).total_seconds())),
        "late": is_late(newest, now=now),
    }


def is_late(newest: datetime | None, *, now: datetime) -> bool:
    """Whether the newest data is too old; when there never was any, nobody waits for it."""
    return newest is not None and (now - newest).total_seconds() > LATE_AFTER_SECONDS
