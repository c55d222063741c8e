"""What does this process hold of one caller's buckets, and how large is the next batch?"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

from ratelimit_app.algorithms import RULES, decide
from ratelimit_app.limits import LEASE_TICKS, TICKS_PER_SECOND, Decision, Limit, Weighed

#: How long tokens may be held: from before they are taken to when they are spent.
LEASE_SECONDS = LEASE_TICKS / TICKS_PER_SECOND
#: A batch is what is spent in this time, so that its rest is spent too when requests come slower.
_AHEAD_SECONDS = LEASE_SECONDS / 2
_PAUSE_SECONDS = LEASE_SECONDS / 2
#: A batch is at most this part of the burst.
_SHARE_OF_BURST = 20
#: Fewer tokens than this are not worth a batch: asking costs as much as giving back.
_WORTH_IT = 4
_TOKEN_BUCKET = RULES["token_bucket"]

#: The limits, then the identity that each of them counts.
Key = tuple[object, ...]


@dataclass(slots=True)
class _Batch:
    """Tokens that were taken ahead of time."""

    decision: Decision
    tokens: int
    #: When they must be spent or go back, and when the answer was there; seconds of the monotonic clock.
    ends_at: float
    answered_at: float


class Lease:
    """What this process holds and knows of one caller's buckets. Locks are held for microseconds, never for I/O."""

    def __init__(
        self,
        limits: tuple[Limit, ...],
        key: Key,
        *,
        watch: Callable[[Lease], None],
        put_back: Callable[[Decision, int], None],
    ) -> None:
        self.key = key
        #: The limits it is about, each with the identity that it counts.
        self.counts = tuple(zip([limit.id for limit in limits], key[1:], strict=True))
        self.used_at = time.monotonic()
        self._watch = watch
        self._hand_over = put_back
        self._largest = min(limit.capacity for limit in limits) // _SHARE_OF_BURST
        self._fastest_ticks = max(limit.interval_ticks for limit in limits)
        self._lock = threading.Lock()
        self._batch: _Batch | None = None
        self._is_asking = False
        #: Tokens spent since a moment in the last `LEASE_SECONDS`, as far as it is known, and that moment.
        self._spent = 0.0
        self._since = self.used_at
        #: What the shared buckets held when they last answered.
        self._left = 0
        self._left_at = self.used_at
        self._refusal: Decision | None = None
        self._refused_at = self._refused_until = 0.0

    def spend(self, cost: int) -> Decision | None:
        """The answer, if Redis need not be asked for it."""
        now = time.monotonic()
        with self._lock:
            self.used_at = now
            batch, refusal = self._batch, self._refusal
            if batch is not None and batch.tokens >= cost and now < batch.ends_at:
                batch.tokens -= cost
                self._spent += cost
                tokens, refusal = batch.tokens, None
            elif refusal is None or refusal.cost != cost or now >= self._refused_until:
                return None
            else:
                batch, refused_at, refused_until = None, self._refused_at, self._refused_until
        if batch is not None:
            return _spent(batch.decision, cost, tokens, elapsed=int((now - batch.answered_at) * TICKS_PER_SECOND))
        assert refusal is not None
        ticks = int((now - refused_at) * TICKS_PER_SECOND), int((refused_until - now) * TICKS_PER_SECOND) + 1
        return _still_refused(refusal, elapsed=ticks[0], pause=ticks[1])

    def ask(self, cost: int) -> Generator[int, Decision, Decision]:
        """Decide a request by asking the shared buckets: yields how much to take, is sent what came of it.

        At most three times: for a batch; if that is not there, for what is; if somebody was faster,
        for the cost alone. While one thread asks for a batch, others ask for what they need.
        """
        with self._lock:
            is_first, self._is_asking = not self._is_asking, True
            size = self._size(cost) if is_first else cost
            if is_first:
                self._put_back()
        try:
            attempts = itertools.count()
            while True:
                asked_at = time.monotonic()
                decision = yield size
                if decision.allowed or size == cost:
                    break
                decision = _at_cost(decision, cost)
                if decision.refusals:
                    break
                there = min(weighed.remaining for weighed in decision.weighed)
                size = cost if next(attempts) else max(cost, min(size, there))
            return self._note(decision, size, cost, asked_at, is_first=is_first)
        finally:
            if is_first:
                self._is_asking = False

    def take_unused(self, now: float, *, all_of_it: bool = False) -> tuple[bool, tuple[Decision, int] | None]:
        """Whether tokens are still held, and those that have to go back now."""
        with self._lock:
            batch = self._batch
            if batch is None:
                return False, None
            if batch.tokens and not all_of_it and now < batch.ends_at:
                return True, None
            self._batch = None
            return False, (batch.decision, batch.tokens) if batch.tokens else None

    def forget(self) -> None:
        """Drop the tokens and what is known of the buckets, which somebody is about to fill."""
        with self._lock:
            self._batch = self._refusal = None
            self._left = 0

    def _size(self, cost: int) -> int:
        now = time.monotonic()
        seconds = max(now - self._since, 1e-4)
        wanted = self._spent * _AHEAD_SECONDS / seconds
        if seconds > LEASE_SECONDS:
            self._spent *= _AHEAD_SECONDS / seconds
            self._since = now - _AHEAD_SECONDS
        # One request soon after another says nothing yet.
        if min(wanted, self._spent) < _WORTH_IT * cost:
            return cost
        gained = int((now - self._left_at) * TICKS_PER_SECOND) // self._fastest_ticks
        # The last tokens of a bucket are left to whoever comes first.
        return max(cost, min(int(wanted), int(2 * self._spent), self._largest, (self._left + gained) // 2))

    def _put_back(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None and batch.tokens:
            self._hand_over(batch.decision, batch.tokens)

    def _note(self, decision: Decision, size: int, cost: int, asked_at: float, *, is_first: bool) -> Decision:
        now = time.monotonic()
        tokens = size - cost
        with self._lock:
            self._left = min((weighed.remaining for weighed in decision.weighed), default=0)
            self._left_at = now
            if not decision.allowed:
                self._refusal = decision
                wait = decision.wait_seconds
                pause = 0.0 if wait is None else min(LEASE_SECONDS, max(wait, _PAUSE_SECONDS))
                self._refused_at, self._refused_until = now, now + pause
                return decision
            self._refusal = None
            self._spent += cost
            if not tokens:
                return decision
            self._batch = _Batch(decision, tokens, ends_at=asked_at + LEASE_SECONDS, answered_at=now)
        self._watch(self)
        return _spent(decision, cost, tokens, elapsed=0)._replace(source="redis")


def _spent(batch: Decision, cost: int, tokens: int, *, elapsed: int) -> Decision:
    """The answer to a request that a batch pays for; `tokens` of it are left, `elapsed` ticks after it was taken.

    The levels are those of the shared buckets then, plus what is left of the batch, plus what came
    back since: what others spent meanwhile is not known.
    """
    return Decision(
        allowed=True,
        weighed=tuple([_counted(weighed, cost, tokens, elapsed) for weighed in batch.weighed]),
        source="lease",
        cost=cost,
        decided_ticks=batch.decided_ticks + elapsed,
    )


def _counted(weighed: Weighed, cost: int, tokens: int, elapsed: int) -> Weighed:
    limit = weighed.limit
    debt = max(0, weighed.level.full_ticks - elapsed - tokens * limit.interval_ticks)
    return Weighed(limit, weighed.bucket, _TOKEN_BUCKET.level(limit, (debt,), 0, 0), cost, 0)


def _still_refused(refusal: Decision, *, elapsed: int, pause: int) -> Decision:
    """The same refusal, `elapsed` ticks later; the buckets are asked again in `pause` ticks."""
    later = []
    for weighed in refusal.weighed:
        limit, wait = weighed.limit, weighed.wait_ticks
        level = _TOKEN_BUCKET.level(limit, (max(0, weighed.level.full_ticks - elapsed),), 0, 0)
        if wait:
            wait = max(pause, wait - elapsed)
            level = level._replace(remaining=min(level.remaining, refusal.cost - 1))
        later.append(weighed._replace(level=level, wait_ticks=wait))
    decided_ticks = refusal.decided_ticks + elapsed
    return refusal._replace(weighed=tuple(later), source="lease", decided_ticks=decided_ticks)


def _at_cost(refusal: Decision, cost: int) -> Decision:
    """What the buckets that refused more would have said to `cost`."""
    return decide(
        [weighed.limit for weighed in refusal.weighed],
        [weighed.bucket for weighed in refusal.weighed],
        [(weighed.level.full_ticks,) for weighed in refusal.weighed],
        allowed=False,
        cost=cost,
        now=refusal.decided_ticks,
    )
