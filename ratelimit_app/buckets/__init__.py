"""How many tokens are left? Buckets in Redis: many limits weighed and charged by one script call.

questions      what is sent: one message for all callers of the same limits
giving_back    how what was taken comes back
"""

from __future__ import annotations

from typing import NamedTuple

from ratelimit_app import connections, names
from ratelimit_app.algorithms import RULES, decide, decide_token_buckets
from ratelimit_app.asking import Asking
from ratelimit_app.buckets import questions
from ratelimit_app.buckets.giving_back import arefund, give_back_unused, refund
from ratelimit_app.buckets.questions import load
from ratelimit_app.limits import Caller, Decision, Limit

__all__ = [
    "Heartbeat",
    "arefund",
    "atake",
    "give_back_unused",
    "heartbeat",
    "load",
    "name_of",
    "refund",
    "reset",
    "take",
]

HEARTBEAT = load("heartbeat")


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
    prepared = questions.prepared(limits, cost, patience_ticks)
    keys, fields, buckets = address = questions.address_of(prepared, caller)
    clock = connections.packed(now_ticks, int(dry), floor_ms) if now_ticks or dry else questions.LIVE
    reply = connections.ask(questions.question_to(prepared, address, clock), keys, fields)
    return _answer(prepared, limits, buckets, reply, cost, patience_ticks, dry=dry)


async def _atake(limits: tuple[Limit, ...], caller: Caller, cost: int, patience_ticks: int) -> Decision:
    prepared = questions.prepared(limits, cost, patience_ticks)
    keys, fields, buckets = address = questions.address_of(prepared, caller)
    reply = await connections.aask(questions.question_to(prepared, address, questions.LIVE), keys, fields)
    return _answer(prepared, limits, buckets, reply, cost, patience_ticks)


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
    return questions.address_of(questions.prepared((limit,), 1, 0), caller).buckets[0]


def heartbeat(gateway: int, *, lasts_seconds: int, tag: bytes = b"") -> Heartbeat:
    """Say that a gateway lives. Raises connections.Unavailable.

    With a hash tag it is said where that lives, beside the place where all say it.
    """
    key = b"%b:gateways%b" % (names.prefix(), b":{%b}" % tag if tag else b"")
    return Heartbeat(*connections.call(HEARTBEAT, [key], connections.packed(gateway, lasts_seconds)))


def _answer(
    prepared: questions.Prepared,
    limits: tuple[Limit, ...],
    buckets: list[bytes],
    reply: list[int],
    cost: int,
    patience_ticks: int,
    *,
    dry: bool = False,
) -> Decision:
    now, allowed, *numbers = reply
    if prepared.only_token_buckets and not dry:
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
