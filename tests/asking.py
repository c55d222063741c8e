"""How do the tests ask the limiter? Sync and async alike, and reading back what was counted.

check = pytest.fixture(asking.check, params=asking.BOTH)
counted = pytest.fixture(asking.counted)        # needs: broker = pytest.fixture(brokers.chosen)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from ratelimit_app import limiter, plan_cache, usage
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.models import Plan
from tests import decisions

Check = Callable[..., Decision]
BOTH = ("sync", "async")


def caller(plan: Plan, **fields: Any) -> Caller:
    """Somebody with a key on this plan."""
    return Caller(**{"key_id": 1, "plan_id": plan.pk, "bucket_identity": "one", "address": "203.0.113.9", **fields})


def check(request: Any, transactional_db: None) -> Check:
    """`limiter.check`, or `acheck` in a loop of its own with a plan table that was read before."""
    if request.param == "sync":
        return limiter.check

    def check_in_loop(caller: Caller, **options: Any) -> Decision:
        if plan_cache._table is None:
            plan_cache.table()
        return asyncio.run(limiter.acheck(caller, **options))

    return check_in_loop


def counted(broker: Any) -> Callable[[], Counter[str]]:
    """What was counted since the last call, as it reaches the queue."""
    client, queue = broker()

    def read() -> Counter[str]:
        assert usage.flush(10)
        return decisions.totals(decisions.queued(client, queue=queue))

    return read
