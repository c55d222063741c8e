"""How can a request be decided without asking Redis? From tokens that this process took ahead of time.

A lease is a batch of tokens, taken from the shared buckets of one caller by the same script call
that decides a request. It lives `LEASE_SECONDS`; then what is left goes back. Only for token
buckets whose owner accepts it (`Limit.lease`), and only when every limit of a decision is one.

Never above the bound. A token spent in [t, t+T] was taken in [t-L, t+T], where L is the life of a
lease, so the shared bucket does without the tokens that it gains in L (`Limit.reserve`). Unused
tokens go back less what the bucket gained since they were taken: let v be what would go back of a
lease right now. Then level + sum of all v never exceeds the bucket's capacity, as it changes by
spending only, and by gains that the v lose at least as fast. Tokens held at a moment were taken
within the last L, out of the level of then, the gain since, and the v of then: so level + tokens
held is at most capacity + gain in L, which is at most the burst.

A lease is as large as what this process spent for the caller in the last L, and small against the
burst, so that processes do not starve each other. Who spends slowly has none, and asks each time.
After a refusal a process asks again when the wait is over, but not before half of that: tokens
that come back meanwhile stay in the bucket, for whoever asks first.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from typing import cast

from ratelimit_app import buckets, connections
from ratelimit_app.leases.keeper import Keeper
from ratelimit_app.limits import Caller, Decision, Limit

#: How long a process that ends goes on giving back.
_EXIT_SECONDS = 0.5
#: By process id: a fork must not spend what its parent holds, and begins with locks that nobody holds.
_keepers: dict[int, Keeper] = {}


def cover(limits: tuple[Limit, ...]) -> bool:
    """Whether a decision over these limits may be made from a lease."""
    for limit in limits:
        # What a limit in shadow would have refused, only its bucket can tell.
        if not limit.lease or limit.mode != "enforce":
            return False
    # In a cluster, buckets that live apart have clocks apart.
    return len(limits) == 1 or not connections.is_cluster()


def take(limits: tuple[Limit, ...], caller: Caller, *, cost: int = 1) -> Decision:
    """Take `cost` tokens of limits that a lease covers: from the lease, else from the buckets and a batch with it.

    No round trip, or one; two or three when the buckets are nearly empty. Raises connections.Unavailable.
    """
    lease = _keeper().lease_of(limits, caller) if cost else None
    if lease is None:
        return buckets.take(limits, caller, cost=cost)
    answer = lease.spend(cost)
    if answer is not None:
        return answer
    with contextlib.closing(lease.ask(cost)) as asking:
        size = next(asking)
        while True:
            decision = buckets.take(limits, caller, cost=size)
            try:
                size = asking.send(decision)
            except StopIteration as done:
                return cast("Decision", done.value)


async def atake(limits: tuple[Limit, ...], caller: Caller, *, cost: int = 1) -> Decision:
    """`take` for async code."""
    lease = _keeper().lease_of(limits, caller) if cost else None
    if lease is None:
        return await buckets.atake(limits, caller, cost=cost)
    answer = lease.spend(cost)
    if answer is not None:
        return answer
    with contextlib.closing(lease.ask(cost)) as asking:
        size = next(asking)
        while True:
            decision = await buckets.atake(limits, caller, cost=size)
            try:
                size = asking.send(decision)
            except StopIteration as done:
                return cast("Decision", done.value)


def forget(limits: tuple[Limit, ...], caller: Caller) -> None:
    """Drop what this process holds of the caller's buckets of these limits, before somebody fills them."""
    wanted = {(limit.id, caller.identity(limit.per)) for limit in limits}
    for lease in list(_keeper().leases.values()):
        if any(pair in wanted for pair in lease.counts):
            lease.forget()


def give_back() -> None:
    """Give all that this process holds back to the buckets, now. Raises connections.Unavailable."""
    _keeper().give_back(all_of_it=True)


def reset() -> None:
    """Drop everything, and end the thread. For tests."""
    keeper = _keepers.pop(os.getpid(), None)
    if keeper is not None:
        keeper.stop()


def _keeper() -> Keeper:
    # Without a lock: a thread of the parent might have held it in the moment of the fork.
    pid = os.getpid()
    keeper = _keepers.get(pid)
    if keeper is None:
        keeper = _keepers.setdefault(pid, Keeper())
        for other in list(_keepers):
            if other != pid:
                _keepers.pop(other, None)
    return keeper


def give_back_at_exit() -> None:
    """Give all that this process holds back, in a moment or not at all; never raises."""
    keeper = _keepers.get(os.getpid())
    if keeper is not None:
        with contextlib.suppress(connections.Unavailable):
            keeper.give_back(all_of_it=True, until=time.monotonic() + _EXIT_SECONDS)


atexit.register(give_back_at_exit)
