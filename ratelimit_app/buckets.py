"""How many tokens are left? Buckets in Redis: many limits weighed and charged by one script call."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from ratelimit_app import connections, names
from ratelimit_app.algorithms import RULES, decide, decide_token_buckets
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
    #: For each limit's bucket, and those of its earlier generations: whose it is, by what the limit counts and
    #: its shard; how its name ends; whether it may be in a hash; and whether it is the one in force.
    names: tuple[tuple[tuple[Per, int], bytes, bool, bool], ...]
    #: For each limit what follows its field.
    args: tuple[connections.Arguments, ...]
    only_token_buckets: bool
    #: What is sent, by the clock and the lengths of keys and fields: by kind of caller, so a few at most.
    questions: dict[tuple[connections.Arguments, tuple[int, ...]], connections.Question]


class _Address(NamedTuple):
    """Where one caller's buckets of a plan are."""

    #: For each limit the key that holds its bucket, then those of earlier generations.
    keys: list[bytes]
    #: For each limit the field.
    fields: list[bytes]
    #: For each limit what its bucket is called.
    buckets: list[bytes]


#: What `take` was asked: cost, patience_ticks, now_ticks, floor_ms, dry.
_Terms = tuple[int, int, int, int, bool]


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
    terms = cost, patience_ticks, now_ticks, floor_ms, dry
    if not connections.is_cluster():
        try:
            return _take(limits, caller, *terms)
        except connections.CrossSlot:
            pass  # it is one; asked only once
    return _take_apart(limits, caller, terms, insist=insist)


async def atake(limits: tuple[Limit, ...], caller: Caller, *, cost: int = 1, patience_ticks: int = 0) -> Decision:
    """`take` for async code."""
    if not connections.is_cluster():
        try:
            return await _atake(limits, caller, cost, patience_ticks)
        except connections.CrossSlot:
            pass
    return await _atake_apart(limits, caller, cost, patience_ticks)


def _take(
    limits: tuple[Limit, ...],
    caller: Caller,
    cost: int,
    patience_ticks: int,
    now_ticks: int,
    floor_ms: int,
    dry: bool,
) -> Decision:
    plan = _plan(limits, cost, patience_ticks)
    keys, fields, buckets = address = _address(plan, caller)
    clock = connections.packed(now_ticks, int(dry), floor_ms) if now_ticks or dry else _LIVE
    reply = connections.ask(_question(plan, address, clock), keys, fields)
    return _answer(plan, limits, buckets, reply, cost, patience_ticks, dry=dry)


async def _atake(limits: tuple[Limit, ...], caller: Caller, cost: int, patience_ticks: int) -> Decision:
    plan = _plan(limits, cost, patience_ticks)
    keys, fields, buckets = address = _address(plan, caller)
    reply = await connections.aask(_question(plan, address, _LIVE), keys, fields)
    return _answer(plan, limits, buckets, reply, cost, patience_ticks)


def _take_apart(limits: tuple[Limit, ...], caller: Caller, terms: _Terms, *, insist: bool) -> Decision:
    """Take from one place after the other; what the first ones took is given back when one refuses."""
    _cost, _patience_ticks, now_ticks, floor_ms, dry = terms
    asking = Asking(_living_together(limits, caller), insist=insist, dry=dry)
    for part in asking.parts():
        try:
            later = _take(part, caller, *terms)
        except connections.Unavailable as failure:
            asking.failed(failure)
            continue
        if not later.allowed and asking.taken is not None and not dry:
            try:
                refund(asking.taken, now_ticks=now_ticks, floor_ms=floor_ms)
            except connections.Unavailable as failure:
                asking.regret(failure)
        asking.decided(later)
    return asking.answer()


async def _atake_apart(limits: tuple[Limit, ...], caller: Caller, cost: int, patience_ticks: int) -> Decision:
    """`_take_apart` for async code."""
    asking = Asking(_living_together(limits, caller))
    for part in asking.parts():
        try:
            later = await _atake(part, caller, cost, patience_ticks)
        except connections.Unavailable as failure:
            asking.failed(failure)
            continue
        if not later.allowed and asking.taken is not None:
            try:
                await arefund(asking.taken)
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
    return _address(_plan((limit,), 1, 0), caller).buckets[0]


def heartbeat(gateway: int, *, lasts_seconds: int, tag: bytes = b"") -> Heartbeat:
    """Say that a gateway lives. Raises connections.Unavailable.

    With a hash tag it is said where that lives, beside the place where all say it.
    """
    key = b"%b:gateways%b" % (names.prefix(), b":{%b}" % tag if tag else b"")
    return Heartbeat(*connections.call(_HEARTBEAT, [key], connections.packed(gateway, lasts_seconds)))


@lru_cache(maxsize=10_000)
def _plan(limits: tuple[Limit, ...], cost: int, patience_ticks: int) -> _Plan:
    only_buckets = all(limit.is_bucket and not limit.earlier for limit in limits)
    only_token_buckets = only_buckets and all(limit.algorithm == "token_bucket" for limit in limits)
    args: list[connections.Arguments] = []
    names: list[tuple[tuple[Per, int], bytes, bool, bool]] = []
    owners: dict[tuple[Per, int], tuple[Per, int]] = {}
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
        owner = owners.setdefault((limit.per, limit.shard), (limit.per, limit.shard))
        names += [
            (owner, b":%d.%d" % (limit.id, each.generation), each.is_bucket, each is limit)
            for each in (limit, *limit.earlier)
        ]
    script = _TAKE_BUCKETS if only_buckets else _TAKE
    return _Plan(script, tuple(names), tuple(args), only_token_buckets, questions={})


def _question(plan: _Plan, address: _Address, clock: connections.Arguments) -> connections.Question:
    widths = tuple([len(word) for word in address.keys + address.fields])
    question = plan.questions.get((clock, widths))
    if question is None:
        args = [clock]
        for field, numbers in zip(address.fields, plan.args, strict=True):
            args += (connections.hole(len(field)), numbers)
        question = connections.Question(plan.script, widths[: len(address.keys)], *args)
        if clock is _LIVE:
            plan.questions[clock, widths] = question
    return question


def _address(plan: _Plan, caller: Caller) -> _Address:
    keys: list[bytes] = []
    fields: list[bytes] = []
    buckets: list[bytes] = []
    whose, place = None, None
    for owner, ending, may_be_in_hash, is_in_force in plan.names:
        if owner is not whose or place is None:  # most plans count all by the same
            whose, place = owner, names.place(*owner, caller)
        name = key = place.stem + ending
        if place.field and may_be_in_hash:
            name = key + b"/" + place.field  # see names.parted
        elif place.field:
            name = key = key + b":" + place.field
        keys.append(key)
        if is_in_force:
            fields.append(place.field)
            buckets.append(name)
    return _Address(keys, fields, buckets)


def _answer(
    plan: _Plan,
    limits: tuple[Limit, ...],
    buckets: list[bytes],
    reply: list[int],
    cost: int,
    patience_ticks: int,
    *,
    dry: bool = False,
) -> Decision:
    now, allowed, *numbers = reply
    if plan.only_token_buckets and not dry:
        return decide_token_buckets(limits, buckets, numbers, allowed=allowed == 1, cost=cost, now=now)
    readings, at = [], 0
    for limit in limits:
        width = RULES[limit.algorithm].width
        readings.append(numbers[at : at + width])
        at += width
    allowed_all, patience = allowed == 1, patience_ticks
    return decide(limits, buckets, readings, allowed=allowed_all, cost=cost, now=now, patience=patience, dry=dry)


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
