"""How do the tests ask the limiter? Sync and async alike, and reading back what was counted.

check = pytest.fixture(asking.check, params=asking.BOTH)
counted = pytest.fixture(asking.counted)        # needs: broker = pytest.fixture(brokers.chosen)
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from ratelimit_app import denials, limiter, plan_cache, usage
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.models import Plan
from tests import decisions
from tests.clusters import Cluster

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


class Load:
    """Callers who ask without a pause, each in a thread of its own or in a task on an event loop, until the end."""

    def __init__(self, callers: list[Caller]) -> None:
        self.decisions: dict[Caller, list[Decision]] = {caller: [] for caller in callers}
        self.errors: list[BaseException] = []
        self._is_over = threading.Event()
        plan_cache.table()
        of_tasks = callers[::2]
        threads = [threading.Thread(target=self._ask, args=(caller,)) for caller in callers[1::2]]
        self._threads = [*threads, threading.Thread(target=asyncio.run, args=(self._ask_all(of_tasks),))]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def last(self, caller: Caller) -> Decision | None:
        return self.decisions[caller][-1] if self.decisions[caller] else None

    def admitted(self, caller: Caller) -> int:
        return sum(decision.allowed for decision in self.decisions[caller])

    def _ask(self, caller: Caller) -> None:
        try:
            while not self._is_over.is_set():
                denials.forget()  # so that each asks
                self.decisions[caller].append(limiter.check(caller))
        except BaseException as error:
            self.errors.append(error)

    async def _ask_all(self, callers: list[Caller]) -> None:
        await asyncio.gather(*(self._aask(caller) for caller in callers))

    async def _aask(self, caller: Caller) -> None:
        try:
            while not self._is_over.is_set():
                self.decisions[caller].append(await limiter.acheck(caller))
                await asyncio.sleep(0)
        except BaseException as error:
            self.errors.append(error)


def callers_of(cluster: Cluster, plan: Plan, *, each: int = 2) -> dict[int, list[Caller]]:
    """For the port of each master some callers, whose buckets it holds."""
    found: dict[int, list[Caller]] = defaultdict(list)
    for number in range(1_000):
        one = caller(plan, bucket_identity=f"caller-{number}")
        callers = found[cluster.serving(limiter.peek(one).weighed[0].bucket).port]
        if len(callers) < each:
            callers.append(one)
        if len(found) == len(cluster.masters) and all(len(callers) == each for callers in found.values()):
            return dict(found)
    raise AssertionError
