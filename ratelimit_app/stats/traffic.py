"""How many requests were allowed, refused and left undecided, over time?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ratelimit_app.resolutions import PLANS, USAGE
from ratelimit_app.stats.rows import BUCKET, sums
from ratelimit_app.stats.windows import Window

#: Columns of the rows by the names that pages know them by.
_NAMES = {
    "allowed": "allowed",
    "refused": "blocked",
    "would_refuse": "would_block",
    "unchecked": "unchecked",
    "failed_closed": "failed_closed",
    "local": "local",
}


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


def traffic(within: Window, *, plan_id: int | None = None, identity: str | None = None) -> tuple[Traffic, ...]:
    """Traffic of all callers, of one plan's, or of one; an entry per bucket, the empty ones included.

    Both together are one caller's traffic on one plan.
    """
    filters: dict[str, Any] = {} if plan_id is None else {"plan_id": plan_id}
    if identity is not None:
        filters["identity"] = identity
    fact = PLANS if identity is None else USAGE
    counts: dict[int, Counter[str]] = {}
    for row in sums(fact, within, by=[BUCKET], **filters):
        counts.setdefault(max(0, row[BUCKET]), Counter()).update(outcomes(row))
    nothing: Counter[str] = Counter()
    return tuple(Traffic(at=at, **counts.get(bucket, nothing)) for bucket, at in enumerate(within.starts))


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


def outcomes(row: Mapping[str, Any]) -> dict[str, int]:
    """The counts in a row, by the names of `Traffic`."""
    return {name: row[column] for column, name in _NAMES.items() if column in row}
