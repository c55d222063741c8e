"""May this caller make this request? `check()` is the whole path on one page. READ FIRST.

    which limits apply?     from memory           plan_cache
    weigh and take          one trip to Redis     buckets
    Redis cannot decide     open or closed, as each limit says
    remember the answer     in memory, no I/O     usage

Nothing that breaks in here reaches a caller as an error: every failure, the unforeseen too, ends
in `check` as an unchecked decision, logged and counted.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import replace

from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error as DatabaseError  # InterfaceError is one too

from ratelimit_app import buckets, changes, conf, connections, plan_cache, usage
from ratelimit_app.limits import Caller, Decision, Limit

logger = logging.getLogger("ratelimit_app")

#: The same failure is logged once in so many seconds.
_LOG_EVERY_SECONDS = 10.0
_logged_at: dict[str, float] = {}


def check(
    caller: Caller,
    *,
    scope: str = "",
    cost: int = 1,
    earlier: Decision | None = None,
    only_address: bool = False,
    route: str = "",
    method: str = "",
) -> Decision:
    """Decide one request: charge it to every limit that applies, or to none.

    `cost` is in tokens; ValueError when it is not a whole number of at least 0. `earlier` is what
    an earlier door decided for the same request: only the rest is weighed, and the answer is over
    both. `only_address` weighs no more than the limits per address that everyone meets, and is
    provisional when it allows. `route` and `method` are for the statistics.

    One round trip, none when no limit applies. Redis down: open or closed, as the limits say;
    never an exception.
    """
    _demand_valid(cost)
    started = time.perf_counter()
    limits: tuple[Limit, ...] = ()
    try:
        limits = _limits(caller, scope, earlier, only_address)
        decision = buckets.take(limits, caller, cost=cost) if limits else _nothing_to_weigh(cost)
    except Exception as failure:
        decision = _undecided(limits, cost, failure)
    if earlier is not None:
        if not decision.allowed:
            _give_back(earlier)
        decision = _joined(earlier, decision)
    return _concluded(decision, caller, only_address, started, route, method)


async def acheck(
    caller: Caller,
    *,
    scope: str = "",
    cost: int = 1,
    earlier: Decision | None = None,
    only_address: bool = False,
    route: str = "",
    method: str = "",
) -> Decision:
    """`check` for async code; no thread while the plan table is warm (see `plan_cache.is_warm`)."""
    _demand_valid(cost)
    started = time.perf_counter()
    limits: tuple[Limit, ...] = ()
    try:
        limits = _limits(caller, scope, earlier, only_address)
        decision = await buckets.atake(limits, caller, cost=cost) if limits else _nothing_to_weigh(cost)
    except Exception as failure:
        decision = _undecided(limits, cost, failure)
    if earlier is not None:
        if not decision.allowed:
            await _agive_back(earlier)
        decision = _joined(earlier, decision)
    return _concluded(decision, caller, only_address, started, route, method)


def peek(caller: Caller, *, scope: str = "", cost: int = 1) -> Decision:
    """What `check` would answer now, without charging or counting. Raises connections.Unavailable."""
    _demand_valid(cost)
    limits = _limits(caller, scope, None, False)
    return buckets.take(limits, caller, cost=cost, dry=True) if limits else _nothing_to_weigh(cost)


def welcomes(caller: Caller, *, scope: str = "") -> bool:
    """Whether a caller without a key may come in: to the plan for such callers, or by a limit for this very scope.

    True as well when limiting is off or nobody can tell; `check` then finds the right answer.
    """
    try:
        if conf.current().mode == "off":
            return True
        table = plan_cache.table()
        return bool(table.plan_id(caller)) or any(scope and limit.scope == scope for limit in table.everyone)
    except (DatabaseError, SynchronousOnlyOperation):
        return True


def count(decision: Decision, caller: Caller, *, route: str = "", method: str = "", seconds: float = 0.0) -> None:
    """Record a decision for the statistics, in memory. `check` does so itself, but for provisional ones."""
    if decision.source != "off":
        usage.record(decision, caller, route=route, method=method, seconds=seconds)


def refund(decision: Decision) -> None:
    """Give back what a decision took. Raises connections.Unavailable."""
    buckets.refund(decision)


def reset(caller: Caller) -> None:
    """Fill every bucket of a caller, on every route. Raises connections.Unavailable."""
    table = plan_cache.table()
    buckets.reset((*table.everyone, *table.limits.get(table.plan_id(caller), ())), caller)


def _limits(caller: Caller, scope: str, earlier: Decision | None, only_address: bool) -> tuple[Limit, ...]:
    changes.watch()  # in every mode: a revoked key is refused in any of them
    settings = conf.current()
    if settings.mode == "off":
        return ()
    table = plan_cache.table()
    limits = table.select(0 if only_address else table.plan_id(caller), scope=scope, mode=settings.mode)
    if only_address:
        limits = tuple(limit for limit in limits if limit.per == "address")
    if earlier is not None:
        met = {limit.id for limit in earlier.unweighed} | {weighed.limit.id for weighed in earlier.weighed}
        limits = tuple(limit for limit in limits if limit.id not in met)
    return limits


def _nothing_to_weigh(cost: int) -> Decision:
    return Decision(allowed=True, cost=cost, source="off", decided_at=time.time())


def _undecided(limits: tuple[Limit, ...], cost: int, failure: Exception) -> Decision:
    """The answer when nothing could decide: closed where an enforced limit says so, else open."""
    reason = failure.reason if isinstance(failure, connections.Unavailable) else type(failure).__name__
    if time.monotonic() - _logged_at.get(reason, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
        _logged_at[reason] = time.monotonic()
        unforeseen = None if isinstance(failure, connections.Unavailable) else failure
        logger.error("Requests pass unchecked or are refused with 503: %s", failure, exc_info=unforeseen)
    closed = any(limit.on_failure == "closed" and limit.mode == "enforce" for limit in limits)
    return Decision(
        allowed=not closed,
        source="unchecked",
        cost=cost,
        decided_at=time.time(),
        failure=reason,
        unweighed=limits,
    )


def _concluded(
    decision: Decision, caller: Caller, only_address: bool, started: float, route: str, method: str
) -> Decision:
    if decision.allowed and only_address:
        return replace(decision, provisional=True)
    if not decision.allowed:
        decision = replace(decision, receipt=str(uuid.uuid4()))
    count(decision, caller, route=route, method=method, seconds=time.perf_counter() - started)
    return decision


def _joined(earlier: Decision, later: Decision) -> Decision:
    """One answer over what two doors weighed for the same request."""
    weighed = earlier.weighed if later.allowed else tuple(w.given_back() for w in earlier.weighed)
    undecided = later.allowed and (later.source == "off" or earlier.source == "unchecked")
    return replace(
        later,
        source=earlier.source if undecided else later.source,
        decided_at=earlier.decided_at if later.source == "off" else later.decided_at,
        weighed=weighed + later.weighed,
        unweighed=earlier.unweighed + later.unweighed,
        failure=later.failure or earlier.failure,
    )


def _give_back(earlier: Decision) -> None:
    try:
        buckets.refund(earlier)
    except Exception as failure:
        logger.warning("A refused request keeps the charge of an earlier limit: %s", failure)


async def _agive_back(earlier: Decision) -> None:
    try:
        await buckets.arefund(earlier)
    except Exception as failure:
        logger.warning("A refused request keeps the charge of an earlier limit: %s", failure)


def _demand_valid(cost: int) -> None:
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise ValueError(f"A cost is a whole number of tokens, at least 0, not {cost!r}.")
