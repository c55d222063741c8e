"""How does what was taken come back to the buckets it was taken from?"""

from __future__ import annotations

from collections.abc import Sequence

from ratelimit_app import connections, names
from ratelimit_app.buckets.questions import KINDS, load
from ratelimit_app.limits import Decision, Weighed

REFUND = load("refund")
#: What the script calls a token bucket that gets unused tokens of a lease back.
_LEASED = 5


def refund(decision: Decision, *, now_ticks: int = 0, floor_ms: int = 0) -> None:
    """Give back what a decision took, to the buckets it took it from. Raises connections.Unavailable."""
    clock = connections.packed(now_ticks, decision.decided_ticks, floor_ms)
    charged = [weighed for weighed in decision.weighed if weighed.charged]
    for part in _parted(charged):
        connections.call(REFUND, _keys(part), clock, _giving_back(part))


async def arefund(decision: Decision, *, now_ticks: int = 0, floor_ms: int = 0) -> None:
    """`refund` for async code."""
    clock = connections.packed(now_ticks, decision.decided_ticks, floor_ms)
    charged = [weighed for weighed in decision.weighed if weighed.charged]
    for part in _parted(charged):
        await connections.acall(REFUND, _keys(part), clock, _giving_back(part))


def give_back_unused(decision: Decision, *, tokens: int, now_ticks: int = 0) -> None:
    """Give back `tokens` that were taken ahead of time, less what the token buckets gained since then.

    Raises connections.Unavailable.
    """
    clock = connections.packed(now_ticks, decision.decided_ticks, 0)
    for part in _parted([weighed._replace(charged=tokens) for weighed in decision.weighed]):
        connections.demand_asked(part[0].bucket)
        connections.call(REFUND, _keys(part), clock, _giving_back(part, leased=True))


def _parted(charged: Sequence[Weighed]) -> list[list[Weighed]]:
    """What was weighed, parted by where it lives; all of it at once where nothing lives apart."""
    if not connections.is_cluster():
        return [list(charged)] if charged else []
    parts: dict[bytes, list[Weighed]] = {}
    for weighed in charged:
        parts.setdefault(names.tag(weighed.bucket), []).append(weighed)
    return list(parts.values())


def _keys(charged: Sequence[Weighed]) -> list[bytes]:
    return [names.parted(weighed.bucket)[0] for weighed in charged]


def _giving_back(charged: Sequence[Weighed], *, leased: bool = False) -> connections.Arguments:
    words: list[int | bytes] = []
    for weighed in charged:
        limit = weighed.limit
        charge = weighed.charged * limit.interval_ticks if limit.is_bucket else weighed.charged
        kind = _LEASED if leased else KINDS[limit.algorithm]
        words += (names.parted(weighed.bucket)[1], kind, charge, limit.period_ticks)
    return connections.packed(*words)
