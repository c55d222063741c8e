"""Which span of time does a page look at, and in how coarse buckets?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ratelimit_app.resolutions import ALL, Resolution


@dataclass(frozen=True, slots=True)
class Range:
    """How far back a page looks, and how coarsely."""

    #: Its name in the URL.
    slug: str
    seconds: int
    bucket_seconds: int


RANGES: dict[str, Range] = {
    known.slug: known
    for known in (
        Range("15m", 15 * 60, 60),
        Range("1h", 3600, 60),
        Range("6h", 6 * 3600, 5 * 60),
        Range("24h", 24 * 3600, 15 * 60),
        Range("7d", 7 * 24 * 3600, 2 * 3600),
        Range("30d", 30 * 24 * 3600, 6 * 3600),
    )
}
_BUCKETS = (60, 300, 900, 3600, 2 * 3600, 6 * 3600, 86_400)
_MOST_BUCKETS = 120


@dataclass(frozen=True, slots=True)
class Window:
    """A span of whole buckets. One that reaches until now ends with the bucket that is still filling."""

    start: datetime
    #: The first moment that is no longer inside.
    end: datetime
    bucket_seconds: int

    @property
    def starts(self) -> tuple[datetime, ...]:
        """When each bucket begins, oldest first."""
        count = int((self.end - self.start).total_seconds()) // self.bucket_seconds
        return tuple(self.start + timedelta(seconds=self.bucket_seconds * n) for n in range(count))

    @property
    def before(self) -> Window:
        """The span of the same length that ends where this one begins."""
        return Window(self.start - (self.end - self.start), self.start, self.bucket_seconds)

    @property
    def resolution(self) -> Resolution:
        """The coarsest rows that buckets can be made of."""
        return next(known for known in reversed(ALL) if self.bucket_seconds % known.seconds == 0)


def window(span: Range, *, now: datetime) -> Window:
    """The window of a range that ends with the bucket containing `now`."""
    bucket = span.bucket_seconds
    end = now.timestamp() // bucket * bucket + bucket
    return Window(
        start=datetime.fromtimestamp(end - span.seconds, tz=now.tzinfo),
        end=datetime.fromtimestamp(end, tz=now.tzinfo),
        bucket_seconds=bucket,
    )


def between(start: datetime, end: datetime) -> Window:
    """A window of whole buckets that covers a span, such as one picked in a chart; both moments must be aware.

    Raises ValueError when the end is not after the start.
    """
    if end <= start:
        raise ValueError("The end of a span must be after its start.")
    seconds = (end - start).total_seconds()
    bucket = next((size for size in _BUCKETS if seconds <= size * _MOST_BUCKETS), _BUCKETS[-1])
    first = start.timestamp() // bucket * bucket
    last = -(-end.timestamp() // bucket) * bucket
    return Window(datetime.fromtimestamp(first, UTC), datetime.fromtimestamp(last, UTC), bucket)
