"""How many tokens are left? Buckets in Redis: many limits weighed and charged by one script call."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from ratelimit_app import connections, names
from ratelimit_app.algorithms import RULES, decide
from ratelimit_app.asking import Asking
from ratelimit_app.limits import Algorithm, Caller, Decision, Limit, Per, Weighed


def load(name: str) -> connections.Script:
    """A script of `lua/`."""
    text = (files("ratelimit_app") / "lua" / f"{name}.lua").read_bytes()
    return connections.Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


_TAKE, _TAKE_BUCKETS = load("take"), load("take_buckets")
_REFUND, _HEARTBEAT = load("refund"), load("heartbeat")
#: What the scripts call the algorithms.
_KINDS: dict[Algorithm, int] = {
    "token_bucket": 1,
    "leaky_bucket": 1,
    "fixed_window": 2,
    "sliding_window": 3,
    "sliding_log": 4,
}
#: What the refund script calls a token bucket that gets unused tokens of a lease back.
_LEASED = 5
#: By the server's clock, not dry, no shortest expiry.
_LIVE = connections.packed(0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What stays the same for every caller of the same limits at the same cost."""

    script: connections.Script
    #: For each limit what it counts, its shard, and how its bucket and those of its earlier generations end,
    #: each with whether it may be in a hash.
    names: tuple[tuple[Per, int, tuple[tuple[bytes, bool], ...]], ...]
    #: For each limit what follows its field.
    args: tuple[connections.Arguments, ...]


class _Question(NamedTuple):
    """What `take` was asked, beside the limits and the caller."""

    cost: int
    patience_ticks: int = 0
    now_ticks: int = 0
    floor_ms: int = 0
    dry: bool = False
    insist: bool = False

    @property
    def clock(self) -> connections.Arguments:
        if self.now_ticks or self.dry:
            return connections.packed(self.now_ticks, int(self.dry), self.floor_ms)
        return _LIVE


def take(
    limits: tuple[Limit, ...],
    caller: Caller,
    *,
    cost: int = 1,
    patience_ticks: int = 0,
    now_ticks: int = 0,
    floor_ms: int = 0,
    dry: bool = False,
    insist: bool = False,
) -> Decision:
    """Take `cost` tokens from the caller's bucket of every limit, or from none of them.

    `patience_ticks` is how long the request may be held for a leaky bucket. `dry` only weighs.
    `now_ticks` replaces the server's clock, for tests, with `floor_ms` as the shortest expiry.
    One round trip; in a cluster one for each caller that the limits count by, and none to a node that
    is not to be asked, unless you `insist`. Raises connections.Unavailable, which is
    asking.PartlyDecided when buckets live apart.
    """
    question = _Question(cost, patience_ticks, now_ticks, floor_ms, dry, insist)
    if not connections.is_cluster():
        try:
            return _take(limits, caller, question)
        except connections.CrossSlot:
            pass  # it is one; asked only once
    return _take_apart(limits, caller, question)


async def atake(limits: tuple[Limit, ...], caller: Caller, *, cost: int = 1, patience_ticks: int = 0) -> Decision:
    """`take` for async code."""
    question = _Question(cost, patience_ticks)
    if not connections.is_cluster():
        try:
            return await _atake(limits, caller, question)
        except connections.CrossSlot:
            pass
    return await _atake_apart(limits, caller, question)


def _take(limits: tuple[Limit, ...], caller: Caller, question: _Question) -> Decision:
    plan = _plan(limits, question.cost, question.patience_ticks)
    keys, args, names = _addressed(plan, caller)
    return _answer(limits, names, connections.call(plan.script, keys, question.clock, *args), question)


async def _atake(limits: tuple[Limit, ...], caller: Caller, question: _Question) -> Decision:
    plan = _plan(limits, question.cost, question.patience_ticks)
    keys, args, names = _addressed(plan, caller)
    return _answer(limits, names, await connections.acall(plan.script, keys, question.clock, *args), question)


def _take_apart(limits: tuple[Limit, ...], caller: Caller, question: _Question) -> Decision:
    """Take from one place after the other; what the first ones took is given back when one refuses."""
    asking = Asking(_living_together(limits, caller), insist=question.insist, dry=question.dry)
    for part in asking.parts():
        try:
            later = _take(part, caller, question)
        except connections.Unavailable as failure:
            asking.failed(failure)
            continue
        if not later.allowed and asking.taken is not None and not question.dry:
            try:
                refund(asking.taken, now_ticks=question.now_ticks, floor_ms=question.floor_ms)
            except connections.Unavailable as failure:
                asking.regret(failure)
        asking.decided(later)
    return asking.answer()


async def _atake_apart(limits: tuple[Limit, ...], caller: Caller, question: _Question) -> Decision:
    """`_take_apart` for async code."""
    asking = Asking(_living_together(limits, caller), insist=question.insist, dry=question.dry)
    for part in asking.parts():
        try:
            later = await _atake(part, caller, question)
        except connections.Unavailable as failure:
            asking.failed(failure)
            continue
        if not later.allowed and asking.taken is not None and not question.dry:
            try:
                await arefund(asking.taken, now_ticks=question.now_ticks, floor_ms=question.floor_ms)
            except connections.Unavailable as failure:
                asking.regret(failure)
        asking.decided(later)
    return asking.answer()


def refund(decision: Decision, *, now_ticks: int = 0, floor_ms: int = 0) -> None:
    """Give back what a decision took, to the buckets it took it from. Raises connections.Unavailable."""
    clock = connections.packed(now_ticks, decision.decided_ticks, floor_ms)
    charged = [weighed for weighed in decision.weighed if weighed.charged]
    for part in _parted(charged):
        connections.call(_REFUND, _keys(part), clock, _giving_back(part))


async def arefund(decision: Decision, *, now_ticks: int = 0, floor_ms: int = 0) -> None:
    """`refund` for async code."""
    clock = connections.packed(now_ticks, decision.decided_ticks, floor_ms)
    charged = [weighed for weighed in decision.weighed if weighed.charged]
    for part in _parted(charged):
        await connections.acall(_REFUND, _keys(part), clock, _giving_back(part))


def give_back_unused(decision: Decision, *, tokens: int, now_ticks: int = 0) -> None:
    """Give back `tokens` that were taken ahead of time, less what the token buckets gained since then.

    Raises connections.Unavailable.
    """
    clock = connections.packed(now_ticks, decision.decided_ticks, 0)
    for part in _parted([weighed._replace(charged=tokens) for weighed in decision.weighed]):
        connections.demand_asked(part[0].bucket)
        connections.call(_REFUND, _keys(part), clock, _giving_back(part, leased=True))


def reset(limits: tuple[Limit, ...], caller: Caller) -> None:
    """Fill the caller's bucket of every limit. Raises connections.Unavailable."""
    for limit in limits:
        for each in (limit, *limit.earlier):
            key, field = names.parted(name_of(each, caller))
            words = ("HDEL", key, field) if field else ("DEL", key)
            connections.command(*words, key=key)


class Heartbeat(NamedTuple):
    """What a gateway hears when it says that it lives; moments in ms since 1970."""

    gateways: int
    now_ms: int
    #: The time before, as the server knows it; 0: not at all.
    before_ms: int


def name_of(limit: Limit, caller: Caller) -> bytes:
    """The name of a caller's bucket."""
    return _addressed(_plan((limit,), 1, 0), caller)[2][0]


def heartbeat(gateway: int, *, lasts_seconds: int, tag: bytes = b"") -> Heartbeat:
    """Say that a gateway lives. Raises connections.Unavailable.

    With a hash tag it is said where that lives, beside the place where all say it.
    """
    key = b"%b:gateways%b" % (names.prefix(), b":{%b}" % tag if tag else b"")
    return Heartbeat(*connections.call(_HEARTBEAT, [key], connections.packed(gateway, lasts_seconds)))


@lru_cache(maxsize=10_000)
def _plan(limits: tuple[Limit, ...], cost: int, patience_ticks: int) -> _Plan:
    only_buckets = all(limit.is_bucket and not limit.earlier for limit in limits)
    args: list[connections.Arguments] = []
    names: list[tuple[Per, int, tuple[tuple[bytes, bool], ...]]] = []
    for limit in limits:
        charge, ceiling = cost, 0
        if limit.is_bucket:
            charge = cost * limit.interval_ticks
            ceiling = limit.capacity_ticks
            if limit.algorithm == "leaky_bucket":
                ceiling = min(ceiling, patience_ticks + charge)
        enforced = int(limit.mode == "enforce")
        if only_buckets:
            numbers: tuple[int, ...] = (charge, limit.size, ceiling, enforced)
        else:
            numbers = (_KINDS[limit.algorithm], charge, limit.size, ceiling, limit.period_ticks, enforced)
            numbers += (len(limit.earlier),)
            for old in limit.earlier:
                numbers += (_KINDS[old.algorithm], old.size, old.period_ticks)
        args.append(connections.packed(*numbers))
        endings = [(b":%d.%d" % (limit.id, each.generation), each.is_bucket) for each in (limit, *limit.earlier)]
        names.append((limit.per, limit.shard, tuple(endings)))
    return _Plan(_TAKE_BUCKETS if only_buckets else _TAKE, tuple(names), tuple(args))


def _addressed(plan: _Plan, caller: Caller) -> tuple[list[bytes], list[connections.Arguments], list[bytes]]:
    """The plan for this caller: keys, arguments, and for each limit the name of its bucket."""
    keys: list[bytes] = []
    args: list[connections.Arguments] = []
    found: list[bytes] = []
    for (per, shard, endings), numbers in zip(plan.names, plan.args, strict=True):
        place = names.place(*names.owner(per, shard, caller))
        own = [place.key(ending, in_hash=is_bucket) for ending, is_bucket in endings]
        keys += own
        args += (connections.packed(place.field), numbers)
        found.append(names.joined(own[0], place.field) if endings[0][1] else own[0])
    return keys, args, found


def _answer(limits: tuple[Limit, ...], buckets: list[bytes], reply: list[int], question: _Question) -> Decision:
    readings, at = [], 2
    for limit in limits:
        width = RULES[limit.algorithm].width
        readings.append(reply[at : at + width])
        at += width
    return decide(
        limits,
        buckets,
        readings,
        allowed=reply[1] == 1,
        cost=question.cost,
        now=reply[0],
        patience=question.patience_ticks,
        dry=question.dry,
    )


def _living_together(limits: tuple[Limit, ...], caller: Caller) -> list[tuple[bytes, tuple[Limit, ...]]]:
    """The limits, parted by where their buckets live; each part with the name of one of them."""
    parts: dict[tuple[str, str], tuple[Limit, ...]] = {}
    for limit in limits:
        of = names.owner(limit.per, limit.shard, caller)
        parts[of] = (*parts.get(of, ()), limit)
    # What all share comes last: who is out of tokens anyway should take none of it, not even for a moment.
    own_first = sorted(parts.values(), key=lambda part: part[0].per == "everyone")
    return [(name_of(part[0], caller), part) for part in own_first]


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
        kind = _LEASED if leased else _KINDS[limit.algorithm]
        words += (names.parted(weighed.bucket)[1], kind, charge, limit.period_ticks)
    return connections.packed(*words)
