"""What would Redis answer? The same algorithms on buckets in memory and a clock that is passed in.

For simulation and for tests of code that is limited. Decides exactly as `lua/take.lua` does; both
are held to one table of vectors (`vectors.json`) and to an exact model.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field

from ratelimit_app.algorithms import RULES, Reading, decide
from ratelimit_app.limits import Caller, Decision, Limit

#: How many of the least recently used buckets are looked at for the one to forget.
_CANDIDATES = 8
#: Tokens (or ticks) below which a carried share is a floating-point error, not use: 7 of 100 stays 7.
_ROUNDING = 1e-6


@dataclass(slots=True)
class _Bucket:
    """What is stored of one bucket; which fields are used depends on the algorithm."""

    #: Token and leaky bucket: the moment it is full (empty) again.
    full_at: int = 0
    #: Windows: when the current one began, and the tokens of it and the one before.
    began: int = 0
    current: int = 0
    previous: int = 0
    #: Sliding log: the moment of every token, oldest first.
    moments: list[int] = field(default_factory=list)
    #: The moment from which on it is a full bucket, and may be forgotten.
    ends: int = 0
    #: Whether it has to be written though nothing is taken: an edit, or the clock stepped back.
    changed: bool = False


class LocalBuckets:
    """Buckets in this process's memory: at most `size` of them, safe under threads."""

    def __init__(self, *, size: int = 50_000) -> None:
        self._size = size
        self._held: OrderedDict[bytes, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(
        self,
        limits: tuple[Limit, ...],
        caller: Caller,
        *,
        now_ticks: int,
        cost: int = 1,
        patience_ticks: int = 0,
        dry: bool = False,
    ) -> Decision:
        """Take `cost` tokens from the caller's bucket of every limit, or from none of them."""
        with self._lock:
            names = [_name(limit, caller) for limit in limits]
            found = [self._read(limit, caller, name, now_ticks) for limit, name in zip(limits, names, strict=True)]
            readings = [_reading(limit, bucket, now_ticks, cost) for limit, bucket in zip(limits, found, strict=True)]
            waits = [
                RULES[limit.algorithm].wait(limit, reading, now_ticks, cost, patience_ticks)
                for limit, reading in zip(limits, readings, strict=True)
            ]
            allowed = all(wait == 0 or limit.mode != "enforce" for limit, wait in zip(limits, waits, strict=True))
            if not dry:
                for limit, name, bucket, wait in zip(limits, names, found, waits, strict=True):
                    self._write(limit, name, bucket, now_ticks, cost if allowed and wait == 0 else 0)
        return decide(
            limits, names, readings, allowed=allowed, cost=cost, now=now_ticks, patience=patience_ticks, dry=dry
        )

    def refund(self, decision: Decision, *, now_ticks: int) -> None:
        """Give back what a decision took, to the buckets it took it from."""
        taken = decision.decided_ticks
        with self._lock:
            for weighed in decision.weighed:
                bucket, limit = self._held.get(weighed.bucket), weighed.limit
                if bucket is None or not weighed.charged:
                    continue
                if limit.is_bucket:
                    charge = weighed.charged * limit.interval_ticks
                    bucket.full_at = now_ticks + max(0, bucket.full_at - now_ticks - charge)
                elif limit.algorithm == "sliding_log":
                    for _ in range(min(weighed.charged, bucket.moments.count(taken))):
                        bucket.moments.remove(taken)
                elif bucket.began == taken - taken % limit.period_ticks:
                    bucket.current = max(0, bucket.current - weighed.charged)
                elif bucket.began == taken - taken % limit.period_ticks + limit.period_ticks:
                    bucket.previous = max(0, bucket.previous - weighed.charged)

    def reset(self, limits: tuple[Limit, ...], caller: Caller) -> None:
        """Fill the caller's bucket of every limit."""
        with self._lock:
            for limit in limits:
                for each in (limit, *limit.earlier):
                    self._held.pop(_name(each, caller), None)

    def __len__(self) -> int:
        return len(self._held)

    def _read(self, limit: Limit, caller: Caller, name: bytes, now: int) -> _Bucket:
        """The bucket brought up to now: a copy, so that nothing is written before all are weighed."""
        bucket = self._held.get(name)
        if bucket is None:
            return self._carried_over(limit, caller, now)
        return _brought_up(limit, bucket, now)

    def _carried_over(self, limit: Limit, caller: Caller, now: int) -> _Bucket:
        """A bucket that keeps the share its caller had used before the last edit."""
        new, ends, share = _Bucket(began=now - now % limit.period_ticks), 0, None
        for old_limit in limit.earlier:
            old = self._held.get(_name(old_limit, caller))
            if old is None:
                continue
            ends = max(ends, old.ends)
            if share is None:
                share = _used_share(old_limit, _brought_up(old_limit, old, now), now)
        if share is not None:
            used = max(0, math.ceil(share * limit.size - _ROUNDING))
            new.full_at, new.current, new.moments = now + used, used, []
            if limit.algorithm == "sliding_log":
                new.moments = [now] * used
            new.changed = used > 0
        new.ends = ends
        return new

    def _write(self, limit: Limit, name: bytes, bucket: _Bucket, now: int, charge: int) -> None:
        if not charge and not bucket.changed:
            if name in self._held:
                self._held.move_to_end(name)
            return
        bucket.changed = False
        if limit.is_bucket:
            if charge:
                bucket.full_at = max(bucket.full_at, now) + charge * limit.interval_ticks
            ends = bucket.full_at
        elif limit.algorithm == "sliding_log":
            bucket.moments += [now] * charge
            ends = bucket.moments[-1] + limit.period_ticks if bucket.moments else 0
        else:
            bucket.current += charge
            ends = bucket.began + limit.period_ticks * (2 if limit.algorithm == "sliding_window" else 1)
        # While a bucket of an earlier generation is held, this one outlives it (see lua/take.lua).
        bucket.ends = max(ends, bucket.ends)
        self._held[name] = bucket
        self._held.move_to_end(name)
        if len(self._held) > self._size:
            self._forget_one(now)

    def _forget_one(self, now: int) -> None:
        """Forget, of the least recently used, the one that is full soonest: never an exhausted one first."""
        oldest = [name for name, _ in zip(self._held, range(_CANDIDATES), strict=False)]
        del self._held[min(oldest, key=lambda name: self._held[name].ends)]


def _name(limit: Limit, caller: Caller) -> bytes:
    kind, value = caller.identity(limit.per)
    return f"{limit.id}.{limit.generation}.{limit.shard}:{kind}:{value}".encode("utf-8", "surrogatepass")


def _brought_up(limit: Limit, bucket: _Bucket, now: int) -> _Bucket:
    if limit.is_bucket:
        # The clamp of lua/take.lua: more debt than the bucket can have would freeze the caller.
        fullest = now + limit.capacity_ticks
        return _Bucket(full_at=min(bucket.full_at, fullest), ends=bucket.ends, changed=bucket.full_at > fullest)
    if limit.algorithm == "sliding_log":
        gone = bisect_right(bucket.moments, now - limit.period_ticks)
        moments = bucket.moments[gone:]
        stepped_back = bool(moments) and moments[-1] > now
        if stepped_back:  # what was taken counts as taken now
            moments = [now] * len(moments)
        return _Bucket(moments=moments, ends=bucket.ends, changed=stepped_back)
    began = now - now % limit.period_ticks
    if bucket.began >= began:
        stepped_back = bucket.began > began
        return _Bucket(0, began, bucket.current, bucket.previous, ends=bucket.ends, changed=stepped_back)
    previous = bucket.current if bucket.began == began - limit.period_ticks else 0
    return _Bucket(began=began, previous=previous, ends=bucket.ends)


def _reading(limit: Limit, bucket: _Bucket, now: int, cost: int) -> Reading:
    if limit.is_bucket:
        return (max(0, bucket.full_at - now),)
    if limit.algorithm == "fixed_window":
        return (bucket.current,)
    if limit.algorithm == "sliding_window":
        return (bucket.current, bucket.previous)
    moments = bucket.moments
    if not moments:
        return (0, 0, 0, 0)
    short = len(moments) + cost - limit.capacity
    freeing = moments[short - 1] if short > 0 and cost <= limit.capacity else 0
    return (len(moments), moments[0], freeing, moments[-1])


def _used_share(limit: Limit, bucket: _Bucket, now: int) -> float:
    if limit.is_bucket:
        used: float = bucket.full_at - now
    elif limit.algorithm == "sliding_log":
        used = len(bucket.moments)
    else:
        used = bucket.current
        if limit.algorithm == "sliding_window":
            used += bucket.previous * (bucket.began + limit.period_ticks - now) / limit.period_ticks
    return min(1.0, max(0.0, used / limit.size))
