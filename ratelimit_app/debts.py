"""What did Redis last say of each bucket? Remembered, so that a server that forgot it is told again.

A server that was flushed, restarted empty, or lost its last moments in a failover would hand every
caller a full bucket. The heartbeat finds out that it forgot (see `fallback.beat`); then the buckets
that this process knows are emptied again as far as they were. Token and leaky buckets only: their
state is one moment. Windows, logs and leased limits begin anew.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.signals import setting_changed

from ratelimit_app import buckets, connections, names
from ratelimit_app.limits import Decision

_RESTORE = buckets.load("restore")
#: Buckets remembered at once; the one that was not asked for longest goes first.
_REMEMBERED = 50_000
#: Buckets told in one script call.
_AT_ONCE = 100

#: By bucket, the moment at which it is full again, in ticks of the server's clock.
_known: dict[bytes, int] = {}
#: The same as it was before the server said less: somebody gave tokens back, or it forgot.
_doubted: dict[bytes, int] = {}
#: What the server forgot and has not been told yet.
_forgotten: dict[bytes, int] = {}


def note(decision: Decision) -> bool:
    """Remember what Redis said. Returns whether it says less of a bucket than before, by more than a token."""
    is_doubtful = False
    for weighed in decision.weighed:
        limit = weighed.limit
        if not limit.is_bucket or limit.lease:
            continue
        full_at, bucket = decision.decided_ticks + weighed.level.full_ticks, weighed.bucket
        before = _known.pop(bucket, 0)  # taken out, so that it becomes the youngest
        if before - full_at > limit.interval_ticks:
            is_doubtful = True
            if len(_doubted) < _REMEMBERED:
                _doubted[bucket] = max(before, _doubted.get(bucket, 0))
        _known[bucket] = full_at
    while len(_known) > _REMEMBERED:
        try:
            _known.pop(next(iter(_known)), None)
        except (StopIteration, RuntimeError):  # another thread changed the dict meanwhile
            continue
    return is_doubtful


def forget(decision: Decision) -> None:
    """What this decision took is given back, so its buckets hold more than was known."""
    for weighed in decision.weighed:
        _known.pop(weighed.bucket, None)


def clear() -> None:
    """Forget everything."""
    for each in (_known, _doubted, _forgotten):
        each.clear()


def heard(*, server_forgot: bool) -> None:
    """The server was asked whether it forgot something since the last time."""
    if server_forgot:
        _forgotten.update(_known.copy())
        for bucket, full_at in _doubted.copy().items():
            _forgotten[bucket] = max(full_at, _forgotten.get(bucket, 0))
    _doubted.clear()


def restore(*, until: float) -> None:
    """Tell the server what it forgot, until that monotonic second at most. Raises connections.Unavailable.

    In a cluster, what a node does not hear is kept for the next time, and the others are told.
    """
    at_once = 1 if connections.is_cluster() else _AT_ONCE
    kept: dict[bytes, int] = {}
    silent: set[str] = set()  # nodes
    try:
        while _forgotten and time.monotonic() < until:
            told: dict[bytes, int] = {}
            while _forgotten and len(told) < at_once:
                try:
                    bucket, full_at = _forgotten.popitem()
                except KeyError:
                    break  # another thread was faster
                told[bucket] = full_at
            if silent and any(connections.node_of(bucket) in silent for bucket in told):
                kept |= told
                continue
            try:
                tell(told)
            except connections.Unavailable as failure:
                kept |= told
                if not failure.node:
                    raise
                silent.add(failure.node)
    finally:
        _forgotten.update(kept)


def tell(full_at: dict[bytes, int]) -> None:
    """Make buckets no fuller than they were said to be: full at these ticks, not before.

    Raises connections.Unavailable.
    """
    told = [(*names.parted(name), moment) for name, moment in full_at.items()]
    width = 1 if connections.is_cluster() else _AT_ONCE  # there, each may live on another node
    for start in range(0, len(told), width):
        part = told[start : start + width]
        words = [word for _, field, moment in part for word in (field, moment)]
        connections.call(_RESTORE, [key for key, _, _ in part], connections.packed(*words))


def _forget_other_buckets(*, setting: str, **kwargs: Any) -> None:
    if setting in ("RATELIMIT_APP", "CACHES"):  # another prefix or server has buckets of its own
        clear()


setting_changed.connect(_forget_other_buckets, dispatch_uid="ratelimit_app.debts")
