"""How do tasks and scripts keep to a rate? `paced` holds them until it is their turn.

    with paced("crm"):                 at the rate of the plan "crm", across all processes
        send_to_crm(...)

    async with paced("crm"):           the same, without holding up the event loop

    @shared_task
    @paced("crm", longest_wait_seconds=120)
    def export(...): ...

The plan's limits decide: a leaky bucket says how long to wait for one's turn, any other limit is
asked again when it says there is room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async

from ratelimit_app import limiter, plan_cache
from ratelimit_app.limits import Caller, Decision


class TooBusy(Exception):
    """Its turn would not have come within the longest wait."""

    def __init__(self, plan: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(plan, retry_after_seconds)  # as given, so that Celery can pickle it
        self.plan = plan
        #: Whole seconds after which it is worth another attempt; None when it never is, or nobody can tell.
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        seconds = self.retry_after_seconds
        return f"{self.__doc__} Plan {self.plan!r}" + ("." if seconds is None else f", again after {seconds} s.")


class paced:  # noqa: N801 - reads as a word where it is used
    """Wait for one's turn under the limits of a plan, then go on; a context manager and a decorator, sync and async.

    `plan` is a slug. Everybody who names the same plan and `queue` stands in one line. `cost` is in
    tokens. Raises TooBusy rather than wait longer than `longest_wait_seconds`, and LookupError when
    there is no such plan. Redis down: goes on at once, unless a limit fails closed (TooBusy).
    """

    def __init__(self, plan: str, *, queue: str = "", cost: int = 1, longest_wait_seconds: float = 60.0) -> None:
        self.plan = plan
        self.queue = queue
        self.cost = cost
        self.longest_wait_seconds = longest_wait_seconds

    def __enter__(self) -> Decision:
        deadline = time.monotonic() + self.longest_wait_seconds
        caller, patience = self._caller(), self.longest_wait_seconds
        while True:
            decision = limiter.check(caller, **self._question(patience))
            time.sleep(self._pause(decision, deadline))
            if decision.allowed:
                return decision
            patience = _whole_tenths(deadline - time.monotonic())

    async def __aenter__(self) -> Decision:
        deadline = time.monotonic() + self.longest_wait_seconds
        if not plan_cache.is_warm():
            await sync_to_async(plan_cache.table)()
        caller, patience = self._caller(), self.longest_wait_seconds
        while True:
            decision = await limiter.acheck(caller, **self._question(patience))
            await asyncio.sleep(self._pause(decision, deadline))
            if decision.allowed:
                return decision
            patience = _whole_tenths(deadline - time.monotonic())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if iscoroutinefunction(function):

            @wraps(function)
            async def waiting(*args: Any, **kwargs: Any) -> Any:
                async with self:
                    return await function(*args, **kwargs)

        else:

            @wraps(function)
            def waiting(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        return waiting

    def _caller(self) -> Caller:
        plan_id = plan_cache.table().slugs.get(self.plan)
        if plan_id is None:
            raise LookupError(f"There is no plan with the slug {self.plan!r}.")
        return Caller(plan_id=plan_id, bucket_identity=f"paced:{self.queue}")

    def _question(self, patience_seconds: float) -> dict[str, Any]:
        # What everyone meets is there for requests that come in, and would count ours as one address.
        return {
            "cost": self.cost,
            "only_plan": True,
            "patience_seconds": patience_seconds,
            "route": f"paced:{self.plan}",
        }

    def _pause(self, decision: Decision, deadline: float) -> float:
        """Seconds until it is one's turn, or until it is worth asking again. Raises TooBusy."""
        if decision.allowed:
            return decision.delay_seconds
        wait = decision.wait_seconds
        if wait is None or time.monotonic() + wait > deadline:
            raise TooBusy(self.plan, decision.retry_after_seconds)
        return wait


def _whole_tenths(seconds: float) -> float:
    # `buckets` remembers what it worked out for each patience: there must not be too many of them.
    return max(0, int(seconds * 10)) / 10
