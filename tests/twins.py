"""How does one test run on Redis and in memory? Both behind one face, on a clock that the test states."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Protocol

import pytest

from ratelimit_app import buckets
from ratelimit_app.limits import Algorithm, Caller, Decision, Limit
from ratelimit_app.local_buckets import LocalBuckets

#: Real time must not end a bucket whose clock stands still.
FLOOR_MS = 3_600_000
ALGORITHMS: tuple[Algorithm, ...] = ("token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log")
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
#: Midnight of 21 January 2026 and 20 days, so a minute, an hour and a day begin here.
MIDNIGHT = 20 * 86_400 * 10_000_000


class Twin(Protocol):
    """Buckets somewhere, for one caller."""

    def take(self, *limits: Limit, at: int, cost: int = 1, patience_ticks: int = 0, dry: bool = False) -> Decision: ...
    def refund(self, decision: Decision, *, at: int) -> None: ...
    def reset(self, *limits: Limit) -> None: ...


class InRedis:
    """The script, on the Redis of the tests."""

    def __init__(self) -> None:
        self.caller = Caller(key_id=1, bucket_identity=uuid.uuid4().hex)

    def take(self, *limits: Limit, at: int, cost: int = 1, patience_ticks: int = 0, dry: bool = False) -> Decision:
        return buckets.take(
            limits,
            self.caller,
            cost=cost,
            patience_ticks=patience_ticks,
            now_ticks=at,
            floor_ms=FLOOR_MS,
            dry=dry,
        )

    def refund(self, decision: Decision, *, at: int) -> None:
        buckets.refund(decision, now_ticks=at, floor_ms=FLOOR_MS)

    def reset(self, *limits: Limit) -> None:
        buckets.reset(limits, self.caller)


class InMemory:
    """LocalBuckets."""

    def __init__(self) -> None:
        self.caller = Caller(key_id=1, bucket_identity="one")
        self.buckets = LocalBuckets()

    def take(self, *limits: Limit, at: int, cost: int = 1, patience_ticks: int = 0, dry: bool = False) -> Decision:
        return self.buckets.take(limits, self.caller, cost=cost, patience_ticks=patience_ticks, now_ticks=at, dry=dry)

    def refund(self, decision: Decision, *, at: int) -> None:
        self.buckets.refund(decision, now_ticks=at)

    def reset(self, *limits: Limit) -> None:
        self.buckets.reset(limits, self.caller)


both_twins = pytest.mark.parametrize("twin", [pytest.param(InRedis, id="redis"), pytest.param(InMemory, id="memory")])


def limit(algorithm: Algorithm, requests: int = 3, period_seconds: int = 60, burst: int = 3, **fields: Any) -> Limit:
    """A limit; `burst` is what buckets hold, `requests` what the others do."""
    fields.setdefault("id", 1)
    fields.setdefault("name", f"limit-{fields['id']}")
    return Limit(requests=requests, period_seconds=period_seconds, burst=burst, algorithm=algorithm, **fields)


def edited(old: Limit, **numbers: Any) -> Limit:
    """The limit as the plan table gives it after an edit of its numbers."""
    earlier = (replace(old, earlier=()), *old.earlier)[:3]
    return replace(old, **numbers, generation=old.generation + 1, earlier=earlier)


def standing(decision: Decision) -> list[tuple[Any, ...]]:
    """What a decision says of each of its limits, whatever the buckets are called."""
    return [(each.level, each.charged, each.wait_ticks, each.delay_ticks) for each in decision.weighed]
