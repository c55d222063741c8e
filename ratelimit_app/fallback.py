"""What happens while Redis cannot decide? Buckets in memory, each with this process's share of the limit.

The share is one part in the number of gateway processes, known from a heartbeat in Redis while it
was up, or from `FLEET_SIZE`. What is missing from the buckets in memory when Redis is back is
charged to it, so that an outage is no second full bucket.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from dataclasses import replace
from functools import lru_cache

from ratelimit_app import buckets, conf, connections, debts
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit, Weighed
from ratelimit_app.local_buckets import LocalBuckets

logger = logging.getLogger("ratelimit_app")

#: A gateway that was silent for so long is gone.
HEARTBEAT_LASTS_SECONDS = 10
#: How long a recovery is held up by settling; the rest is settled behind it, within seconds.
SETTLING_SECONDS = 0.25
#: Buckets in memory that are remembered for Redis; those beyond are not charged to it.
_OWING = 50_000

#: Identity of a bucket in memory, for `_owing`.
_Key = tuple[Limit, str, str]


class _Process:
    """What belongs to one process; a forked child begins anew."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.gateway = random.SystemRandom().randrange(1 << 50)
        self.gateways = 0
        #: When it last said that it lives, in ms since 1970 by the clock of Redis; 0 before the first time.
        self.beaten_ms: dict[bytes, int] = {}
        #: The monotonic second from which on a doubt is looked into again.
        self.next_doubt = 0.0
        self.memory = LocalBuckets()
        #: Whose bucket in memory is not full, as far as Redis has not heard of it.
        self.owing: dict[_Key, Caller] = {}
        self.lock = threading.Lock()


_process = _Process()


def beat() -> None:
    """Say that this process lives, and learn how many do, and whether Redis forgot that it did before.

    In a cluster it is said on every node, for each forgets by itself. Raises connections.Unavailable when any does
    not hear it, after the others did.
    """
    places = [b"", *(tag for tag in connections.sample_of_nodes() if tag)]
    failed: connections.Unavailable | None = None
    forgot = False
    for tag in places:
        try:
            forgot |= _beat_at(tag)
        except connections.Unavailable as failure:
            failed = failure
    if forgot:
        logger.warning("Redis has forgotten what was written in the last moments or before; it is told again.")
    debts.heard(server_forgot=forgot)
    if failed is not None:
        raise failed


def _beat_at(tag: bytes) -> bool:
    """Say it where this hash tag lives. Returns whether that was forgotten which was said there last."""
    this = _this()
    heard = buckets.heartbeat(this.gateway, lasts_seconds=HEARTBEAT_LASTS_SECONDS, tag=tag)
    forgot = heard.before_ms < this.beaten_ms.get(tag, 0)
    this.beaten_ms[tag] = heard.now_ms
    if not tag:
        this.gateways = heard.gateways
    return forgot


def doubt() -> None:
    """Redis said less of a bucket than before: find out, behind the request, whether it forgot more.

    Once a second at most.
    """
    this, now = _this(), time.monotonic()
    if now < this.next_doubt:
        return  # the next heartbeat is soon enough
    this.next_doubt = now + 1.0
    try:
        threading.Thread(target=_find_out, name="ratelimit_app.doubt", daemon=True).start()
    except RuntimeError:
        pass  # no thread to be had


def _find_out() -> None:
    try:
        beat()
    except connections.Unavailable:
        return
    settle()


def probe(node: str) -> None:
    """Find out whether a node decides again; "" is the one server, or any. Raises connections.Unavailable if not.

    One that holds no buckets any more is done: others have taken over.
    """
    with contextlib.suppress(connections.Unavailable):  # when nobody can tell, the node itself may still answer
        connections.look()
    if node and not (tag := connections.tag_on(node)):
        return
    tags = [tag] if node else connections.sample_of_nodes()
    failed: connections.Unavailable | None = None
    for each in tags:
        try:
            if _beat_at(each or b""):
                debts.heard(server_forgot=True)
            return
        except connections.Unavailable as failure:
            failed = failure
    if failed is not None:
        raise failed


def fleet_size() -> int:
    """The number of gateway processes that share a limit: the setting, else as last counted; at least 1."""
    return conf.current().fleet_size or max(1, _this().gateways)


def decide(limits: tuple[Limit, ...], caller: Caller, *, cost: int, patience_ticks: int, failure: str) -> Decision:
    """The answer without Redis: closed, from memory, or open, as each limit says.

    A limit in shadow never hurts a caller. Limits that stay open are listed as `unweighed`.
    """
    now_ticks = _now_ticks()
    local = tuple(limit for limit in limits if limit.on_failure == "local")
    rest = tuple(limit for limit in limits if limit.on_failure != "local")
    is_closed = any(limit.on_failure == "closed" and limit.mode == "enforce" for limit in rest)
    if is_closed or not local:
        return Decision(
            allowed=not is_closed,
            source="unchecked",
            cost=cost,
            decided_ticks=now_ticks,
            failure=failure,
            unweighed=limits,
        )
    this, processes = _this(), fleet_size()
    shares = tuple(share_of(limit, processes) for limit in local)
    decision = this.memory.take(shares, caller, now_ticks=now_ticks, cost=cost, patience_ticks=patience_ticks)
    with this.lock:
        for limit, weighed in zip(local, decision.weighed, strict=True):
            key = (limit, *caller.identity(limit.per))
            if weighed.charged and len(this.owing) < _OWING:
                this.owing[key] = caller
    told = tuple(_as_told(limit, weighed, cost) for limit, weighed in zip(local, decision.weighed, strict=True))
    return decision._replace(weighed=told, source="local", failure=failure, unweighed=rest)


@lru_cache(maxsize=10_000)
def share_of(limit: Limit, processes: int) -> Limit:
    """A limit with one process's part of its rate and burst; never less than one token."""
    alone = replace(limit, earlier=(), lease=False)
    if limit.shard:  # memory needs no shards: the part stands for the whole
        if limit.is_bucket:
            period_seconds, burst = max(1, limit.period_seconds // limit.shards), limit.burst * limit.shards
            alone = replace(alone, shard=0, shards=1, period_seconds=period_seconds, burst=burst)
        else:
            alone = replace(alone, shard=0, shards=1, requests=limit.requests * limit.shards)
    if limit.is_bucket:
        period_seconds = alone.period_seconds * processes
        return replace(alone, period_seconds=period_seconds, burst=max(1, alone.burst // processes))
    return replace(alone, requests=max(1, alone.requests // processes))


def settle(*, seconds: float = SETTLING_SECONDS) -> None:
    """Tell Redis what it forgot, and charge it with what is missing from the buckets in memory; never raises.

    For so long at most. Called before Redis is asked again, and by the watching thread for the rest.
    """
    this, processes, until = _this(), fleet_size(), time.monotonic() + seconds
    silent: set[str] = set()  # nodes
    kept: dict[_Key, Caller] = {}
    try:
        debts.restore(until=until)
        while time.monotonic() < until and "" not in silent:
            with this.lock:  # the breaker's thread and the watching one may settle at once
                if not this.owing:
                    return
                key, caller = this.owing.popitem()
            limit = key[0]
            try:
                if silent and connections.node_of(buckets.name_of(limit, caller)) in silent:
                    kept[key] = caller
                else:
                    _charge(limit, caller, share_of(limit, processes), this.memory)
            except connections.Unavailable as failure:
                kept[key] = caller
                silent.add(failure.node)
    except connections.Unavailable:
        return  # nothing can be told now
    finally:
        with this.lock:
            this.owing = {**kept, **this.owing}


def reset() -> None:
    """Forget all that this process knows; for tests."""
    global _process
    _process = _Process()


def _charge(limit: Limit, caller: Caller, share: Limit, memory: LocalBuckets) -> None:
    held = memory.take((share,), caller, now_ticks=_now_ticks(), dry=True).weighed[0].remaining
    left = buckets.take((limit,), caller, dry=True, insist=True).weighed[0].remaining
    missing = min(share.capacity - held, left)
    if missing > 0:
        buckets.take((limit,), caller, cost=missing, patience_ticks=limit.capacity_ticks, insist=True)
        memory.reset((share,), caller)  # from here on Redis knows


def _as_told(limit: Limit, weighed: Weighed, cost: int) -> Weighed:
    """What a caller is told: the limit itself, not the share; more than the share is worth another attempt soon.

    Nothing was taken from Redis, so there is nothing to refund to it.
    """
    if weighed.wait_ticks is None and cost <= limit.capacity:
        weighed = weighed._replace(wait_ticks=TICKS_PER_SECOND)
    return weighed._replace(limit=limit, charged=0)


def _this() -> _Process:
    global _process
    if _process.pid != os.getpid():
        _process = _Process()
    return _process


def _now_ticks() -> int:
    return int((time.time() - EPOCH_SECONDS) * TICKS_PER_SECOND)
