"""May this caller make this request? `check()` is the whole path on one page. READ FIRST.

    which limits apply?      from memory                             plan_cache
    known to be out?         refused, no I/O                         denials
    is Redis worth asking?   from memory                             breaker
    weigh and take           one trip to Redis                       buckets; none while a lease lasts: leases
    Redis cannot decide      memory, open or closed, by the limit    fallback
    remember the answer      in memory, no I/O                       usage

Nothing that breaks in here reaches a caller as an error: every failure, the unforeseen too, ends
in `check`, is logged and counted, and gets the answer that the limits choose for it.
"""

from __future__ import annotations

import logging
import os
import time

from ratelimit_app import (
    breaker,
    buckets,
    changes,
    conf,
    connections,
    debts,
    denials,
    fallback,
    leases,
    plan_cache,
    usage,
)
from ratelimit_app.asking import PartlyDecided
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit, Weighed, new_receipt

logger = logging.getLogger("ratelimit_app")

#: The same failure is logged once in so many seconds.
_LOG_EVERY_SECONDS = 10.0
_logged_at: dict[str, float] = {}
_process_breaker = breaker.Breaker(probe=fallback.probe, on_recovery=fallback.settle)


def check(
    caller: Caller,
    *,
    scope: str = "",
    cost: int = 1,
    earlier: Decision | None = None,
    only_address: bool = False,
    only_plan: bool = False,
    patience_seconds: float = 0.0,
    route: str = "",
    method: str = "",
) -> Decision:
    """Decide one request: charge it to every limit that applies, or to none.

    `cost` is in tokens; ValueError when it is not a whole number of at least 0. `earlier` is what
    an earlier door decided for the same request: only the rest is weighed, and the answer is over
    both. `only_address` weighs no more than the limits per address that everyone meets, and is
    provisional when it allows; `only_plan` leaves out whatever everyone meets. `patience_seconds`
    is how long the request may be held for its turn in a leaky bucket; see
    `Decision.delay_seconds`. `route` is for the statistics.

    One round trip; none when no limit applies, a lease lasts, or the caller is known to be out.
    Redis down: from memory, open or closed, as the limits say; never an exception.
    """
    _demand_valid(cost)
    asked_at, patience_ticks = time.monotonic(), _ticks(patience_seconds) if patience_seconds else 0
    limits: tuple[Limit, ...] = ()
    try:
        limits = _limits(caller, scope, method, earlier, only_address, only_plan)
        known = _known_without_asking(limits, caller, cost)
        decision = known or _take(limits, caller, cost, patience_ticks)
        if known is None:
            _learn(decision, caller, asked_at)
    except Exception as failure:
        decision, earlier = _undecided(limits, caller, cost, patience_ticks, failure, earlier)
    if earlier is not None:
        if not decision.allowed:
            _give_back(earlier)
        decision = decision.after(earlier)
    return _concluded(decision, caller, only_address, asked_at, route, method)


async def acheck(
    caller: Caller,
    *,
    scope: str = "",
    cost: int = 1,
    earlier: Decision | None = None,
    only_address: bool = False,
    only_plan: bool = False,
    patience_seconds: float = 0.0,
    route: str = "",
    method: str = "",
) -> Decision:
    """`check` for async code; no thread while the plan table is warm (see `plan_cache.is_warm`)."""
    _demand_valid(cost)
    asked_at, patience_ticks = time.monotonic(), _ticks(patience_seconds) if patience_seconds else 0
    limits: tuple[Limit, ...] = ()
    try:
        limits = _limits(caller, scope, method, earlier, only_address, only_plan)
        known = _known_without_asking(limits, caller, cost)
        decision = known or await _atake(limits, caller, cost, patience_ticks)
        if known is None:
            _learn(decision, caller, asked_at)
    except Exception as failure:
        decision, earlier = _undecided(limits, caller, cost, patience_ticks, failure, earlier)
    if earlier is not None:
        if not decision.allowed:
            await _agive_back(earlier)
        decision = decision.after(earlier)
    return _concluded(decision, caller, only_address, asked_at, route, method)


def peek(caller: Caller, *, scope: str = "", cost: int = 1, method: str = "") -> Decision:
    """What `check` would answer now, without charging or counting. Raises connections.Unavailable."""
    _demand_valid(cost)
    limits = _limits(caller, scope, method, None, False)
    if not limits:
        return _nothing_to_weigh(cost)
    return buckets.take(limits, caller, cost=cost, dry=True, insist=True)


def count(decision: Decision, caller: Caller, *, route: str = "", method: str = "", seconds: float = 0.0) -> None:
    """Record a decision for the statistics, in memory. `check` does so itself, but for provisional ones."""
    usage.record(decision, caller, route=route, method=method, seconds=seconds)


def refund(decision: Decision) -> None:
    """Give back what a decision took. Raises connections.Unavailable."""
    buckets.refund(decision)
    debts.forget(decision)
    denials.forget()


def reset(caller: Caller) -> None:
    """Fill every bucket of a caller, on every route, but those it shares with everyone.

    Raises connections.Unavailable.
    """
    limits = plan_cache.table().own(caller)
    leases.forget(limits, caller)
    buckets.reset(limits, caller)
    debts.clear()
    denials.forget()


def levels(caller: Caller) -> tuple[Weighed, ...]:
    """How full every bucket of a caller is that no other one shares, on every route; charges nothing.

    Whole tokens left, and when there are more. Raises connections.Unavailable.
    """
    limits = [limit for limit in plan_cache.table().own(caller) if caller.identity(limit.per)[1]]
    # One by one: in a cluster they need not live together.
    return tuple(buckets.take((limit,), caller, dry=True).weighed[0] for limit in limits)


def _limits(
    caller: Caller,
    scope: str,
    method: str,
    earlier: Decision | None,
    only_address: bool = False,
    only_plan: bool = False,
) -> tuple[Limit, ...]:
    changes.watch()  # in every mode: a revoked key is refused in any of them
    mode = conf.current().mode
    if mode == "off":
        return ()
    return plan_cache.table().applying(
        caller, scope=scope, method=method, mode=mode, earlier=earlier, only_address=only_address, only_plan=only_plan
    )


def _take(limits: tuple[Limit, ...], caller: Caller, cost: int, patience_ticks: int) -> Decision:
    if leases.cover(limits):
        return leases.take(limits, caller, cost=cost)
    return buckets.take(limits, caller, cost=cost, patience_ticks=patience_ticks)


async def _atake(limits: tuple[Limit, ...], caller: Caller, cost: int, patience_ticks: int) -> Decision:
    if leases.cover(limits):
        return await leases.atake(limits, caller, cost=cost)
    return await buckets.atake(limits, caller, cost=cost, patience_ticks=patience_ticks)


def _nothing_to_weigh(cost: int) -> Decision:
    return Decision(allowed=True, cost=cost, source="off", decided_ticks=_ticks(time.time() - EPOCH_SECONDS))


def _known_without_asking(limits: tuple[Limit, ...], caller: Caller, cost: int) -> Decision | None:
    """The answer that needs no Redis, or None; raises breaker.Open when Redis should not be asked."""
    if not limits:
        return _nothing_to_weigh(cost)
    decision = denials.find(limits, caller, cost=cost)
    if decision is None:
        _breaker().demand_closed()
    return decision


def _learn(decision: Decision, caller: Caller, asked_at: float) -> None:
    if decision.source != "redis":
        return  # a lease, which knows its own
    _process_breaker.succeeded(decision)
    if debts.note(decision):
        fallback.doubt()
    if not decision.allowed:
        denials.note(decision, caller, asked_at=asked_at)


def _undecided(
    limits: tuple[Limit, ...],
    caller: Caller,
    cost: int,
    patience_ticks: int,
    failure: Exception,
    earlier: Decision | None,
) -> tuple[Decision, Decision | None]:
    """The answer when Redis could not decide, or something broke: as each limit says; and what stands before it."""
    reason = type(failure).__name__
    if isinstance(failure, connections.Unavailable):
        reason = failure.reason
        _breaker().failed(failure)
    if isinstance(failure, PartlyDecided):
        limits = failure.undecided
        if failure.decided is not None:
            _breaker().succeeded(failure.decided)
            if not failure.decided.allowed:
                return failure.decided, earlier
            earlier = failure.decided if earlier is None else failure.decided.after(earlier)
    if time.monotonic() - _logged_at.get(reason, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
        _logged_at[reason] = time.monotonic()
        unforeseen = None if isinstance(failure, connections.Unavailable) else failure
        logger.error("Requests are decided without Redis: %s", str(failure), exc_info=unforeseen)
    return fallback.decide(limits, caller, cost=cost, patience_ticks=patience_ticks, failure=reason), earlier


def breaker_is_open() -> bool:
    """Whether this process has stopped asking Redis until it answers a probe."""
    return _breaker().is_open


def reset_breaker() -> None:
    """Ask Redis again, whatever happened before; for tests."""
    global _process_breaker
    _process_breaker.stop()
    _process_breaker = breaker.Breaker(probe=fallback.probe, on_recovery=fallback.settle)


def _breaker() -> breaker.Breaker:
    global _process_breaker
    if _process_breaker.pid != os.getpid():
        _process_breaker = breaker.Breaker(probe=fallback.probe, on_recovery=fallback.settle)
    return _process_breaker


def _concluded(
    decision: Decision, caller: Caller, only_address: bool, asked_at: float, route: str, method: str
) -> Decision:
    if decision.allowed and only_address:
        return decision._replace(provisional=True)
    if not decision.allowed and not decision.receipt:
        # Not by `_replace`, which takes three times as long.
        _, weighed, source, cost, decided_ticks, _, failure, unweighed, _ = decision
        decision = Decision(False, weighed, source, cost, decided_ticks, new_receipt(), failure, unweighed)
    usage.record(decision, caller, route=route, method=method, seconds=time.monotonic() - asked_at)
    return decision


def _give_back(earlier: Decision) -> None:
    try:
        _breaker().demand_closed()
        refund(earlier)
    except Exception as failure:
        logger.warning("A refused request keeps the charge of an earlier limit: %s", str(failure))


async def _agive_back(earlier: Decision) -> None:
    try:
        _breaker().demand_closed()
        await buckets.arefund(earlier)
        debts.forget(earlier)
        denials.forget()
    except Exception as failure:
        logger.warning("A refused request keeps the charge of an earlier limit: %s", str(failure))


def _ticks(seconds: float) -> int:
    return int(seconds * TICKS_PER_SECOND)


def _demand_valid(cost: int) -> None:
    if type(cost) is not int or cost < 0:
        raise ValueError(f"A cost is a whole number of tokens, at least 0, not {cost!r}.")
