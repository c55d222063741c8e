"""How do the tests of alerts fill the statistics, and step the clock that they are evaluated by?"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from ratelimit_app import alerts
from ratelimit_app.models import Batch, DecisionMinute, Episode
from ratelimit_app.resolutions import MINUTE
from tests import statistics

#: Evaluated here, 12:00 is the newest settled minute: it ended 30 s ago, when every process flushes within 10 s.
NOW = datetime(2026, 11, 30, 12, 1, 31, tzinfo=UTC)
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def used(minute: float = 0, identity: str = "caller", **counts: int) -> None:
    statistics.used(identity, at=NOON + timedelta(minutes=minute), resolution=MINUTE, **counts)


def took(minute: float = 0, *, microseconds: int = 300, decisions: int = 10_000) -> None:
    DecisionMinute.objects.create(
        minute=NOON + timedelta(minutes=minute), at_most_microseconds=microseconds, decisions=decisions
    )


def arrived(minutes: float) -> None:
    """A batch was stored so many minutes after NOW."""
    Batch.objects.create(id=uuid.uuid4(), received_at=at(minutes))


def evaluate(minutes: float = 0) -> None:
    alerts.evaluate(now=at(minutes))


def open_kinds() -> dict[str, float]:
    return {episode.kind: episode.worst for episode in Episode.objects.filter(ended_at=None)}


def steady(until: int = 0) -> None:
    for minute in range(-59, until + 1):
        took(minute)
