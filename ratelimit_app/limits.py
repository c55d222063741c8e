"""What is a limit, and what is the answer for one request? The values that everything exchanges.

Pure: no Django, no I/O. Time inside a bucket is counted in ticks of 100 ns, as whole numbers, so
that Python and Lua agree to the last digit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

TICKS_PER_SECOND = 10_000_000
#: Seconds from 1970 to the moment that Redis counts ticks from: 1 January 2026, UTC.
EPOCH_SECONDS = 1_767_225_600
#: The longest a bucket may take to fill. Keeps every sum of ticks below 2^53, exact in a double.
MAX_FILL_SECONDS = 450_000_000

Mode = Literal["enforce", "shadow", "off"]
OnFailure = Literal["open", "closed"]
Per = Literal["key", "user", "address"]
#: Who decided: the buckets in Redis, nobody (Redis could not), or nobody was asked to.
Source = Literal["redis", "unchecked", "off"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule of a plan: a token bucket that holds `burst` and gains `requests` a period."""

    #: The row's primary key: the bucket is named after it.
    id: int
    #: What callers see it called, in headers and in problem bodies.
    name: str
    #: Tokens gained in a period, and the length of that period.
    requests: int
    period_seconds: int
    #: What a full bucket holds: as much may be sent at once.
    burst: int
    #: Whose requests share one bucket.
    per: Per = "key"
    #: The routes it covers; "" is every route.
    scope: str = ""
    #: "shadow" weighs and counts but never refuses.
    mode: Mode = "enforce"
    #: What happens to a request when Redis cannot decide.
    on_failure: OnFailure = "open"
    #: Rises when the numbers change; part of the bucket's name.
    generation: int = 1
    #: (generation, capacity in ticks) of earlier numbers whose buckets may still matter, newest first.
    earlier: tuple[tuple[int, int], ...] = ()
    #: Ticks that one token takes to come back; rounded up once, so the rate is never exceeded.
    interval_ticks: int = field(init=False)
    #: The bucket's size in time: how long an empty one takes to fill.
    capacity_ticks: int = field(init=False)

    def __post_init__(self) -> None:
        interval = -(-self.period_seconds * TICKS_PER_SECOND // self.requests)
        object.__setattr__(self, "interval_ticks", interval)
        object.__setattr__(self, "capacity_ticks", interval * self.burst)

    def __hash__(self) -> int:
        return hash((self.id, self.generation))  # what is packed once per limit is looked up on every request

    @property
    def fill_seconds(self) -> int:
        """Whole seconds from empty to full, rounded up."""
        return -(-self.capacity_ticks // TICKS_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking, as far as a limit can count it."""

    #: The API key's row, or 0 for a caller without one.
    key_id: int = 0
    #: The plan whose limits apply, or 0 when none does.
    plan_id: int = 0
    #: What the key's buckets hang on; a rotated key keeps it.
    bucket_identity: str = ""
    #: Primary key, as text, of the key's owner or the session's user; "" when nobody.
    user_id: str = ""
    #: The trusted address, IPv6 already cut to its network; "" when there is none.
    address: str = ""

    def identity(self, per: Per) -> tuple[str, str]:
        """The kind and name of what a limit per `per` counts: the nearest thing this caller has."""
        if per == "key" and self.bucket_identity:
            return "key", self.bucket_identity
        if per != "address" and self.user_id:
            return "user", self.user_id
        if per != "address" and self.bucket_identity:
            return "key", self.bucket_identity
        return "address", self.address


@dataclass(frozen=True, slots=True)
class Weighed:
    """How one limit stood when a request was decided."""

    limit: Limit
    #: The bucket's name in Redis.
    bucket: bytes
    #: Ticks until the bucket is full, after this decision.
    debt_ticks: int
    #: Ticks that this decision took from the bucket.
    charged_ticks: int
    #: Ticks until the cost would have been there: 0 when it was, None when it never can be.
    wait_ticks: int | None

    def given_back(self) -> Weighed:
        """The same limit after its charge was given back."""
        return replace(self, debt_ticks=self.debt_ticks - self.charged_ticks, charged_ticks=0)

    @property
    def refused(self) -> bool:
        """Whether the cost was not in the bucket (of a shadow limit: would have been refused)."""
        return self.wait_ticks != 0

    @property
    def remaining(self) -> int:
        """Whole tokens left."""
        return (self.limit.capacity_ticks - self.debt_ticks) // self.limit.interval_ticks

    @property
    def next_token_seconds(self) -> int:
        """Whole seconds, rounded up, until one more token is there; 0 when the bucket is full."""
        if self.debt_ticks == 0:
            return 0
        return _ceil_seconds((self.debt_ticks - 1) % self.limit.interval_ticks + 1)


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one request over all its limits."""

    allowed: bool
    #: One entry per limit that was weighed, shadow limits included.
    weighed: tuple[Weighed, ...] = ()
    source: Source = "redis"
    #: Tokens that the request costs.
    cost: int = 1
    #: When it was decided, by the clock of Redis: seconds since 1970.
    decided_at: float = 0.0
    #: Names a refusal, so that support can look it up; "" for an allowed request.
    receipt: str = ""
    #: Why nothing could decide, in one word; "" when something did.
    failure: str = ""
    #: The limits that nothing could weigh.
    unweighed: tuple[Limit, ...] = ()
    #: Whether a later door still asks for the rest; such a decision is not counted yet.
    provisional: bool = False

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
        return max(self.refusals, key=_by_wait).limit

    @property
    def retry_after_seconds(self) -> int | None:
        """Whole seconds after which the same request passes, if nothing else spends; at least 1.

        None when it was allowed, when it never can pass (it costs more than a burst), and when
        Redis could not decide.
        """
        if self.allowed or not self.refusals:
            return None
        wait_ticks = max(self.refusals, key=_by_wait).wait_ticks
        return None if wait_ticks is None else max(1, _ceil_seconds(wait_ticks))

    @property
    def tightest(self) -> Weighed | None:
        """The enforced limit with the fewest tokens left: the one whose numbers a caller is told."""
        enforced = [w for w in self.weighed if w.limit.mode == "enforce"]
        return min(enforced, key=lambda w: w.remaining, default=None)

    @property
    def remaining(self) -> int | None:
        """Whole tokens left of the tightest enforced limit, or None when none was weighed."""
        return self.tightest.remaining if self.tightest else None

    @property
    def reset_at(self) -> int | None:
        """When the tightest enforced limit is full again: seconds since 1970, rounded up."""
        if self.tightest is None:
            return None
        return math.ceil(self.decided_at + self.tightest.debt_ticks / TICKS_PER_SECOND)


def _by_wait(weighed: Weighed) -> float:
    return math.inf if weighed.wait_ticks is None else weighed.wait_ticks


def _ceil_seconds(ticks: int) -> int:
    return -(-ticks // TICKS_PER_SECOND)
