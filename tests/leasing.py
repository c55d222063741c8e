"""What do the tests of leases share? A caller, two limits, and fixtures by `pytest.fixture`."""

from __future__ import annotations

from typing import Any

from ratelimit_app import buckets
from ratelimit_app.leases import lease as lease_module
from ratelimit_app.limits import Caller, Decision, Limit

CALLER = Caller(key_id=1, plan_id=1, bucket_identity="one", address="192.0.2.1")
#: Comes back slowly, so that what is there is known.
SLOW = Limit(id=1, name="slow", requests=1, period_seconds=60, burst=1_002, lease=True)
FAST = Limit(id=2, name="fast", requests=1_000, period_seconds=1, burst=1_000, lease=True)


def asked(monkeypatch) -> list[int]:
    """The size of each batch that the shared buckets are asked for."""
    sizes: list[int] = []
    take, atake = buckets.take, buckets.atake

    def noted(limits: Any, caller: Any, *, cost: int = 1, **options: Any) -> Decision:
        sizes.append(cost)
        return take(limits, caller, cost=cost, **options)

    async def anoted(limits: Any, caller: Any, *, cost: int = 1, **options: Any) -> Decision:
        sizes.append(cost)
        return await atake(limits, caller, cost=cost, **options)

    monkeypatch.setattr(buckets, "take", noted)
    monkeypatch.setattr(buckets, "atake", anoted)
    return sizes


def still(monkeypatch) -> None:
    """Leases do not end by themselves, however slow the machine is."""
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1_000.0)
    monkeypatch.setattr(lease_module, "_AHEAD_SECONDS", 500.0)


def left(*limits: Limit, caller: Caller = CALLER) -> list[int]:
    return [weighed.remaining for weighed in buckets.take(limits, caller, dry=True).weighed]
