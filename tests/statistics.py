"""How do tests put counts into the tables? As a batch does: for a caller, and for all of them together."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Sum

from ratelimit_app import recording, resolutions, stats
from ratelimit_app.recording.statements import insert, table_of
from ratelimit_app.resolutions import LIMITS, MINUTE, PLANS, REFUSALS, USAGE, Fact, Resolution

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
#: A midnight, in seconds since 1970.
NIGHT = 1_800_000_000 // 86_400 * 86_400


def used(identity: str, *, at: datetime, plan_id: int = 1, resolution: Resolution = MINUTE, **counts: int) -> None:
    """`used("caller", at=minute, allowed=5, refused=2)`."""
    _add(USAGE, resolution, [at, identity, plan_id], counts)
    _add(PLANS, resolution, [at, plan_id], counts)


def limited(
    limit_id: int,
    *,
    at: datetime,
    identity: str = "x",
    route: str = "r",
    resolution: Resolution = MINUTE,
    **counts: int,
) -> None:
    """`limited(limit.pk, at=minute, identity="caller", would_refuse=3)`."""
    _add(REFUSALS, resolution, [at, identity, limit_id, route], counts)
    _add(LIMITS, resolution, [at, limit_id, route], counts)


def total(fact: Fact, column: str) -> int:
    """All that is counted, as pages read it: each span of time from the rows that hold it."""
    found = 0
    for piece in resolutions.pieces(0, 1 << 32, reached=resolutions.reaches()):
        name = piece.resolution.name
        span = {f"{name}__gte": resolutions.moment(piece.start), f"{name}__lt": resolutions.moment(piece.end)}
        rows = fact.tables[piece.resolution]._base_manager.filter(**span)
        found += int(rows.aggregate(sum=Sum(column, default=0))["sum"])
    return found


def _add(fact: Fact, resolution: Resolution, key: Sequence[object], counts: dict[str, int]) -> None:
    assert set(counts) <= set(fact.values)
    insert(table_of(fact, resolution), [(*key, *(counts.get(name, 0) for name in fact.values))], using="default")


def record(at: int, identity: str = "a", allowed: int = 1, **tables: Any) -> dict[str, Any]:
    """Store a batch with a row of each kind for one minute. Returns it."""
    batch = {
        "id": str(uuid.uuid4()),
        "usage": [[at, identity, 1, allowed, 2, 0, 0, 0, 0]],
        "refusals": [[at, identity, 11, "items", 2, 0]],
        "decisions": [[at, 500, allowed + 2]],
        **tables,
    }
    assert recording.record(batch)
    return batch


def a_window(slug: str = "1h", *, now: datetime = NOON) -> stats.Window:
    return stats.window(stats.RANGES[slug], now=now)


def used_ago(identity: str = "caller", *, minutes_ago: int = 1, plan_id: int = 1, **counts: Any) -> None:
    """Traffic so many minutes before `NOON`."""
    used(identity, at=NOON - timedelta(minutes=minutes_ago), plan_id=plan_id, **counts)
