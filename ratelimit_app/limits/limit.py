"""What is a limit? One rule of a plan, as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

TICKS_PER_SECOND = 10_000_000
TICKS_PER_MILLISECOND = 10_000
#: Seconds from 1970 to the moment that Redis counts ticks from: 1 January 2026, UTC.
EPOCH_SECONDS = 1_767_225_600
#: The longest a bucket may take to fill. Keeps every sum of ticks below 2^53, exact in a double.
MAX_FILL_SECONDS = 450_000_000
#: The most requests of a limit, and what may be queued or sent at once.
MAX_REQUESTS = 1_000_000_000
MAX_BURST = 2_000_000_000
#: Sliding window: requests x period in seconds, so that its estimate in milliseconds stays below 2^53.
MAX_SLIDING_PRODUCT = 9_000_000_000_000
#: Sliding log: moments that one bucket may hold.
MAX_LOGGED = 10_000
#: How long a gateway may hold tokens that it took ahead of time: 0.1 s.
LEASE_TICKS = TICKS_PER_SECOND // 10

Algorithm = Literal["token_bucket", "sliding_window", "fixed_window", "sliding_log", "leaky_bucket"]
Mode = Literal["enforce", "shadow", "off"]
OnFailure = Literal["local", "open", "closed"]
Per = Literal["key", "user", "address", "everyone"]
_BUCKETS = ("token_bucket", "leaky_bucket")


@dataclass(frozen=True, slots=True)
class Limit:
    """One rule of a plan."""

    #: The row's primary key: the bucket is named after it.
    id: int
    #: What callers see it called, in headers and in problem bodies.
    name: str
    #: Tokens gained in a period, and the length of that period.
    requests: int
    period_seconds: int
    #: Token bucket: what a full one holds. Leaky bucket: how many may be queued. Not read by the others.
    burst: int
    algorithm: Algorithm = "token_bucket"
    #: Whose requests share one bucket.
    per: Per = "key"
    #: The routes it covers; "" is every route.
    scope: str = ""
    #: The HTTP methods it covers; none is every method.
    methods: tuple[str, ...] = ()
    #: "shadow" weighs and counts but never refuses.
    mode: Mode = "enforce"
    #: What happens to a request when Redis cannot decide.
    on_failure: OnFailure = "local"
    #: Rises when the numbers change; part of the bucket's name.
    generation: int = 1
    #: The limit before its last edits, as long as buckets of then may still matter; newest first.
    earlier: tuple[Limit, ...] = ()
    #: How many buckets a limit per everyone is spread over, and which of them this is; 0 is the whole.
    shards: int = 1
    shard: int = 0
    #: Token bucket: gateways may take tokens ahead of time and spend them without asking Redis; see `leases`.
    lease: bool = False
    #: Tokens of the burst that the shared bucket does without, because as many may be held in leases.
    reserve: int = field(init=False)
    #: The limit as `shards` limits, each with its part of the budget; together never more than it.
    parts: tuple[Limit, ...] = field(init=False, repr=False, compare=False)
    #: Ticks that one token takes to come back; rounded up once, so the rate is never exceeded.
    interval_ticks: int = field(init=False)
    #: Token and leaky bucket: the size in time, how long an empty one takes to fill.
    capacity_ticks: int = field(init=False)
    period_ticks: int = field(init=False)
    #: Whether it is a token or leaky bucket, whose capacity is `burst`; the others hold `requests`.
    is_bucket: bool = field(init=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        interval = -(-self.period_seconds * TICKS_PER_SECOND // self.requests)
        object.__setattr__(self, "interval_ticks", interval)
        # What comes back while a lease lives, and one for good measure; `leases` has the proof.
        reserve = -(-LEASE_TICKS // interval) + 1 if self.lease else 0
        object.__setattr__(self, "reserve", reserve)
        object.__setattr__(self, "capacity_ticks", interval * (self.burst - reserve))
        object.__setattr__(self, "period_ticks", self.period_seconds * TICKS_PER_SECOND)
        object.__setattr__(self, "is_bucket", self.algorithm in _BUCKETS)
        # Looked up on every request: what makes it another limit, without its numbers.
        object.__setattr__(self, "_hash", hash((self.id, self.generation, self.shard)))
        is_whole = self.shards > 1 and not self.shard
        parts = tuple(self._part(shard) for shard in range(1, self.shards + 1)) if is_whole else (self,)
        object.__setattr__(self, "parts", parts)

    def __hash__(self) -> int:
        return self._hash

    @property
    def capacity(self) -> int:
        """The most tokens that can be taken at once."""
        return self.burst - self.reserve if self.is_bucket else self.requests

    @property
    def fill_seconds(self) -> int:
        """Whole seconds from empty to full, rounded up."""
        return -(-self.capacity_ticks // TICKS_PER_SECOND) if self.is_bucket else self.period_seconds

    @property
    def size(self) -> int:
        """The capacity in the unit that is stored: ticks of a bucket, tokens of the others."""
        return self.capacity_ticks if self.is_bucket else self.capacity

    def boosted(self, factor: int) -> Limit:
        """The limit with `factor` times the budget, as far as that can be counted.

        It is kept in the same bucket. A token bucket stores the time until it is full, which is the
        same for a budget as many times as large: so what was used of it stays used, when a boost
        begins and when it ends. Windows and logs store requests, and those stay.
        """
        if factor == 1 or self.per not in ("key", "user"):
            return self
        most = {"sliding_window": MAX_SLIDING_PRODUCT // self.period_seconds, "sliding_log": MAX_LOGGED}
        return replace(
            self,
            requests=min(self.requests * factor, most.get(self.algorithm, MAX_REQUESTS)),
            burst=min(self.burst * factor, MAX_BURST),
            earlier=tuple(old.boosted(factor) for old in self.earlier),
        )

    def _part(self, shard: int) -> Limit:
        def share(budget: int) -> int:
            return budget // self.shards + (shard <= budget % self.shards)

        earlier = tuple(old._part(shard) for old in self.earlier if old.shards == self.shards)
        if self.is_bucket:  # so its rate is exact; its burst may be one less than its neighbour's
            period_seconds = self.period_seconds * self.shards
            return replace(self, shard=shard, earlier=earlier, period_seconds=period_seconds, burst=share(self.burst))
        return replace(self, shard=shard, earlier=earlier, requests=share(self.requests))
