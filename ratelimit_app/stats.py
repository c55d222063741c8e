"""What happened lately? The queries behind the pages, answered as values.

Each function costs one query, or two, however many keys there are. Minutes and windows are UTC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Max, Q, Sum

from ratelimit_app.models import (
    APIKey,
    Batch,
    DecisionMinute,
    DroppedMinute,
    PlanLimit,
    RefusalMinute,
    UsageMinute,
)
from ratelimit_app.models.usage import OVERFLOW

#: The identity of callers without a key.
NO_KEY = ""
#: The identity of all that no longer fitted into a buffer.
OTHERS = OVERFLOW


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
    )
}


@dataclass(frozen=True, slots=True)
class Window:
    """A span of whole buckets. The last one contains now, and so is still filling."""

    start: datetime
    #: The first moment that is no longer inside.
    end: datetime
    bucket_seconds: int

    @property
    def starts(self) -> tuple[datetime, ...]:
        """When each bucket begins, oldest first."""
        count = int((self.end - self.start).total_seconds()) // self.bucket_seconds
        return tuple(self.start + timedelta(seconds=self.bucket_seconds * n) for n in range(count))


@dataclass(frozen=True, slots=True)
class Traffic:
    """What callers got in one span of time."""

    #: When the span begins.
    at: datetime
    #: Let through by the limits.
    allowed: int = 0
    #: Refused by a limit: 429.
    blocked: int = 0
    #: Of those allowed, how many a limit in shadow would have refused.
    would_block: int = 0
    #: Let through because nothing could decide.
    unchecked: int = 0
    #: Refused because nothing could decide and a limit says "closed": 503.
    failed_closed: int = 0
    #: Of those allowed and blocked: decided from memory, because Redis could not.
    local: int = 0

    @property
    def checked(self) -> int:
        """Requests that the limits decided."""
        return self.allowed + self.blocked

    @property
    def blocked_share(self) -> float:
        """Blocked among the checked, from 0 to 1."""
        return self.blocked / self.checked if self.checked else 0.0


@dataclass(frozen=True, slots=True)
class CallerTraffic:
    """What one caller got in a window."""

    #: The key's bucket identity, "" for callers without a key, "*" for what overflowed a buffer.
    identity: str
    traffic: Traffic
    #: The minute of the last refusal, or None when nothing was refused.
    last_blocked_at: datetime | None
    #: The newest key with this identity, or None: no key, the overflow, or a deleted key.
    key: APIKey | None


@dataclass(frozen=True, slots=True)
class KeysOver:
    """How many keys were blocked more than a share of their requests."""

    over: int
    #: Keys that sent anything.
    active: int


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """How long decisions took, from a histogram: upper bounds of the buckets that hold the quantiles."""

    decisions: int
    #: None when nothing was decided.
    p50_microseconds: int | None
    p99_microseconds: int | None


@dataclass(frozen=True, slots=True)
class ShadowLimit:
    """A limit that refused nobody but would have, or that is in shadow now."""

    limit_id: int
    #: None when the limit was deleted since.
    limit: PlanLimit | None
    would_block: int


def window(span: Range, *, now: datetime) -> Window:
    """The window of a range that ends with the bucket containing `now`."""
    bucket = span.bucket_seconds
    end = now.timestamp() // bucket * bucket + bucket
    return Window(
        start=datetime.fromtimestamp(end - span.seconds, tz=now.tzinfo),
        end=datetime.fromtimestamp(end, tz=now.tzinfo),
        bucket_seconds=bucket,
    )


def traffic(within: Window) -> tuple[Traffic, ...]:
    """Traffic of all callers, one entry per bucket, the empty ones included."""
    rows = (
        UsageMinute.objects.filter(minute__gte=within.start, minute__lt=within.end)
        .values("minute")
        .annotate(
            allowed_sum=Sum("allowed"),
            blocked_sum=Sum("refused"),
            would_block_sum=Sum("would_refuse"),
            unchecked_sum=Sum("unchecked"),
            failed_closed_sum=Sum("failed_closed"),
            local_sum=Sum("local"),
        )
    )
    sums: dict[int, Counter[str]] = {}
    for row in rows:
        bucket = int((row["minute"] - within.start).total_seconds()) // within.bucket_seconds
        sums.setdefault(bucket, Counter()).update(_counts(row))
    nothing: Counter[str] = Counter()
    return tuple(Traffic(at=at, **sums.get(bucket, nothing)) for bucket, at in enumerate(within.starts))


def total(buckets: Iterable[Traffic], *, at: datetime) -> Traffic:
    """The sum of several spans, as one that begins at `at`."""
    spans = tuple(buckets)
    return Traffic(
        at=at,
        allowed=sum(span.allowed for span in spans),
        blocked=sum(span.blocked for span in spans),
        would_block=sum(span.would_block for span in spans),
        unchecked=sum(span.unchecked for span in spans),
        failed_closed=sum(span.failed_closed for span in spans),
        local=sum(span.local for span in spans),
    )


def top_callers(within: Window, *, limit: int = 20) -> tuple[CallerTraffic, ...]:
    """The callers that were blocked most; among equals those that sent most."""
    rows = list(
        UsageMinute.objects.filter(minute__gte=within.start, minute__lt=within.end)
        .values("identity")
        .annotate(
            allowed_sum=Sum("allowed"),
            blocked_sum=Sum("refused"),
            would_block_sum=Sum("would_refuse"),
            unchecked_sum=Sum("unchecked"),
            failed_closed_sum=Sum("failed_closed"),
            local_sum=Sum("local"),
            last_blocked_at=Max("minute", filter=Q(refused__gt=0)),
        )
        .order_by("-blocked_sum", "-allowed_sum", "identity")[:limit]
    )
    identities = [row["identity"] for row in rows if row["identity"] not in (NO_KEY, OTHERS)]
    keys = APIKey.objects.filter(bucket_identity__in=identities).select_related("plan").order_by("pk")
    newest: dict[str, APIKey] = {key.bucket_identity: key for key in keys}
    return tuple(
        CallerTraffic(
            identity=row["identity"],
            traffic=Traffic(at=within.start, **_counts(row)),
            last_blocked_at=row["last_blocked_at"],
            key=newest.get(row["identity"]),
        )
        for row in rows
    )


def keys_over(within: Window, *, percent: int) -> KeysOver:
    """How many keys were blocked more than `percent` of what they sent."""
    counted = (
        UsageMinute.objects.filter(minute__gte=within.start, minute__lt=within.end)
        .exclude(identity__in=[NO_KEY, OTHERS])
        .values("identity")
        .annotate(allowed_sum=Sum("allowed"), blocked_sum=Sum("refused"))
        # Whole numbers on both sides: a share in floats would depend on the database.
        .annotate(excess=F("blocked_sum") * (100 - percent) - F("allowed_sum") * percent)
        .aggregate(active=Count("identity"), over=Count("identity", filter=Q(excess__gt=0)))
    )
    return KeysOver(over=counted["over"], active=counted["active"])


def decision_times(within: Window) -> DecisionTimes:
    """Median and 99th percentile of the time that a decision took."""
    histogram = [
        (row["at_most_microseconds"], int(row["decisions_sum"]))
        for row in DecisionMinute.objects.filter(minute__gte=within.start, minute__lt=within.end)
        .values("at_most_microseconds")
        .annotate(decisions_sum=Sum("decisions"))
        .order_by("at_most_microseconds")
    ]
    return DecisionTimes(
        decisions=sum(decisions for _, decisions in histogram),
        p50_microseconds=_quantile(histogram, percent=50),
        p99_microseconds=_quantile(histogram, percent=99),
    )


def dropped(within: Window) -> tuple[tuple[str, int], ...]:
    """(kind, how many) of the records that full buffers dropped: what the other answers are short of."""
    rows = (
        DroppedMinute.objects.filter(minute__gte=within.start, minute__lt=within.end, dropped__gt=0)
        .values("kind")
        .annotate(dropped_sum=Sum("dropped"))
        .order_by("kind")
    )
    return tuple((row["kind"], int(row["dropped_sum"])) for row in rows)


def shadow_limits(within: Window, *, limit: int = 20) -> tuple[ShadowLimit, ...]:
    """Limits that would have refused somebody, most first, then those in shadow that would not."""
    rows = (
        RefusalMinute.objects.filter(minute__gte=within.start, minute__lt=within.end, would_refuse__gt=0)
        .values("limit_id")
        .annotate(would_block=Sum("would_refuse"))
        .order_by("-would_block", "limit_id")[:limit]
    )
    would_block = {row["limit_id"]: int(row["would_block"]) for row in rows}
    known = PlanLimit.objects.filter(Q(pk__in=would_block) | Q(mode=PlanLimit.Mode.SHADOW)).select_related("plan")
    limits: dict[int, PlanLimit] = {found.pk: found for found in known.order_by("pk")}
    quiet = [limit_id for limit_id in limits if limit_id not in would_block]
    return tuple(
        ShadowLimit(limit_id=limit_id, limit=limits.get(limit_id), would_block=would_block.get(limit_id, 0))
        for limit_id in [*would_block, *quiet][:limit]
    )


def newest_data_at() -> datetime | None:
    """When the last batch of counts was stored; None when there never was one."""
    newest: datetime | None = Batch.objects.aggregate(newest=Max("received_at"))["newest"]
    return newest


# Sums of big integers arrive as Decimal from some databases: int() here and above.
def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(row[f"{name}_sum"]) for name in Traffic.__slots__ if f"{name}_sum" in row}


def _quantile(histogram: list[tuple[int, int]], *, percent: int) -> int | None:
    decisions = sum(count for _, count in histogram)
    seen = 0
    for at_most, count in histogram:
        seen += count
        # The quantile is the smallest bound that at least `percent` of the decisions did not exceed.
        if seen * 100 >= decisions * percent and seen:
            return at_most
    return None
