"""What is the answer for one request, and how did each of its limits stand?"""

from __future__ import annotations

import math
import random
import time
from typing import Literal, NamedTuple

from ratelimit_app.limits.limit import EPOCH_SECONDS, TICKS_PER_SECOND, Limit

#: Who decided: the buckets in Redis, or tokens taken from them ahead of time; nobody had to, because
#: the caller is known to be out of tokens; buckets in memory; nobody, because Redis could not; or
#: nobody was asked to.
Source = Literal["redis", "lease", "denied-cache", "local", "unchecked", "off"]


# These are made for every request: a named tuple costs a quarter of a frozen dataclass.
class Level(NamedTuple):
    """How much a bucket holds at one moment."""

    #: Whole tokens that can be taken now.
    remaining: int
    #: Ticks until one more can; 0 when it is full.
    next_ticks: int
    #: Ticks until it is full, if nobody takes any.
    full_ticks: int


class Weighed(NamedTuple):
    """How one limit stood when a request was decided."""

    limit: Limit
    #: The bucket's name in Redis.
    bucket: bytes
    #: The level after this decision.
    level: Level
    #: Tokens that this decision took from the bucket.
    charged: int
    #: Ticks until the cost would have been there: 0 when it was, None when it never can be.
    wait_ticks: int | None
    #: Leaky bucket: ticks until it is this request's turn.
    delay_ticks: int = 0

    def later(self, ticks: int) -> Weighed:
        """The same refusal, so many ticks later, before its wait is over."""
        remaining, next_ticks, full_ticks = self.level
        level = Level(remaining, max(1, next_ticks - ticks), max(1, full_ticks - ticks))
        wait_ticks = None if self.wait_ticks is None else max(1, self.wait_ticks - ticks)
        return Weighed(self.limit, self.bucket, level, 0, wait_ticks)

    def given_back(self) -> Weighed:
        """The same limit after what it was charged was given back."""
        limit, remaining = self.limit, self.level.remaining + self.charged
        returned_ticks = self.charged * limit.interval_ticks if limit.is_bucket else 0
        level = Level(
            remaining=remaining,
            next_ticks=self.level.next_ticks if remaining < limit.capacity else 0,
            full_ticks=max(0, self.level.full_ticks - returned_ticks),
        )
        return self._replace(level=level, charged=0)

    @property
    def refused(self) -> bool:
        """Whether the cost was not there (of a shadow limit: would have been refused)."""
        return self.wait_ticks != 0

    @property
    def remaining(self) -> int:
        """Whole tokens left."""
        return self.level.remaining

    @property
    def next_token_seconds(self) -> int:
        """Whole seconds, rounded up, until one more token is there; 0 when the bucket is full."""
        return _ceil_seconds(self.level.next_ticks)


class Decision(NamedTuple):
    """The answer for one request over all its limits."""

    allowed: bool
    #: One entry per limit that was weighed, shadow limits included.
    weighed: tuple[Weighed, ...] = ()
    source: Source = "redis"
    #: Tokens that the request costs.
    cost: int = 1
    #: When it was decided, by the clock of Redis: ticks since `EPOCH_SECONDS`.
    decided_ticks: int = 0
    #: Names a refusal, so that support can look it up; "" for an allowed request.
    receipt: str = ""
    #: Why nothing could decide, in one word; "" when something did.
    failure: str = ""
    #: The limits that nothing could weigh.
    unweighed: tuple[Limit, ...] = ()
    #: Whether a later door still asks for the rest; such a decision is not counted yet.
    provisional: bool = False

    @property
    def decided_at(self) -> float:
        """When it was decided, by the clock of Redis: seconds since 1970."""
        return EPOCH_SECONDS + self.decided_ticks / TICKS_PER_SECOND

    @property
    def delay_seconds(self) -> float:
        """How long an allowed request has to be held until it is its turn; 0 but for leaky buckets."""
        ticks = [w.delay_ticks for w in self.weighed if w.limit.mode == "enforce"] if self.allowed else []
        return max(ticks, default=0) / TICKS_PER_SECOND

    @property
    def refusals(self) -> tuple[Weighed, ...]:
        """The enforced limits that said no."""
        return tuple(w for w in self.weighed if w.refused and w.limit.mode == "enforce")

    @property
    def would_refuse(self) -> tuple[Weighed, ...]:
        """The shadow limits that would have said no, had the enforced ones allowed it."""
        return tuple(w for w in self.weighed if w.refused and w.limit.mode == "shadow") if self.allowed else ()

    @property
    def refused_by(self) -> Limit | None:
        """The limit that refused: of several the one with the longest wait."""
        if self.allowed:
            return None
        if self.source == "unchecked":
            return next((limit for limit in self.unweighed if limit.on_failure == "closed"), None)
        return self._longest_refusal.limit if self._longest_refusal else None

    @property
    def wait_seconds(self) -> float | None:
        """Exactly how long until the same request passes, if nothing else spends; None as below."""
        refusal = self._longest_refusal
        return None if refusal is None or refusal.wait_ticks is None else refusal.wait_ticks / TICKS_PER_SECOND

    @property
    def retry_after_seconds(self) -> int | None:
        """Whole seconds after which the same request passes, if nothing else spends; at least 1.

        None when it was allowed, when it never can pass (it costs more than a burst), and when
        Redis could not decide.
        """
        refusal = self._longest_refusal
        return None if refusal is None or refusal.wait_ticks is None else max(1, _ceil_seconds(refusal.wait_ticks))

    @property
    def _longest_refusal(self) -> Weighed | None:
        longest = None
        if not self.allowed:
            for weighed in self.weighed:
                refused = weighed.wait_ticks != 0 and weighed.limit.mode == "enforce"
                if refused and (longest is None or _wait_of(weighed) > _wait_of(longest)):
                    longest = weighed
        return longest

    @property
    def tightest(self) -> Weighed | None:
        """The enforced limit with the fewest tokens left: the one whose numbers a caller is told."""
        return min(self.shown, key=lambda w: w.remaining, default=None)

    @property
    def shown(self) -> tuple[Weighed, ...]:
        """The limits whose numbers a caller may read: enforced, and not shared with everyone."""
        return tuple(w for w in self.weighed if w.limit.mode == "enforce" and w.limit.per != "everyone")

    @property
    def remaining(self) -> int | None:
        """Whole tokens left of the tightest enforced limit, or None when none was weighed."""
        return self.tightest.remaining if self.tightest else None

    @property
    def reset_at(self) -> int | None:
        """When the tightest enforced limit is full again: seconds since 1970, rounded up."""
        if self.tightest is None:
            return None
        return EPOCH_SECONDS + _ceil_seconds(self.decided_ticks + self.tightest.level.full_ticks)

    def after(self, earlier: Decision) -> Decision:
        """One answer over what was weighed before, which allowed, and this; on a refusal that was given back."""
        weighed = earlier.weighed if self.allowed else tuple(w.given_back() for w in earlier.weighed)
        undecided = self.allowed and (self.source == "off" or earlier.source in ("unchecked", "local"))
        return self._replace(
            source=earlier.source if undecided else self.source,
            decided_ticks=earlier.decided_ticks if self.source == "off" else self.decided_ticks,
            weighed=weighed + self.weighed,
            unweighed=earlier.unweighed + self.unweighed,
            failure=self.failure or earlier.failure,
        )


def _wait_of(weighed: Weighed) -> float:
    return math.inf if weighed.wait_ticks is None else weighed.wait_ticks


def _ceil_seconds(ticks: int) -> int:
    return -(-ticks // TICKS_PER_SECOND)


def new_receipt() -> str:
    """A name for a refusal: a UUID of version 7, the time in milliseconds and random bits. It opens nothing."""
    ms, bits = int(time.time() * 1_000), random.getrandbits(74)
    parts = ms >> 16, ms & 0xFFFF, bits >> 62, bits >> 48 & 0x3FFF | 0x8000, bits & 0xFFFF_FFFF_FFFF
    return "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}".format(*parts)
