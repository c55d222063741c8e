"""How many tokens are left? Buckets in Redis: many limits weighed and charged by one script call.

A bucket is named `<prefix>:{<caller>}:<limit>.<generation>`. The caller part is a hash of
length-prefixed parts, so no text of a caller reaches Redis, no two callers share a bucket, and
nobody steers a cluster's slots.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from urllib.parse import quote

from ratelimit_app import conf, connections
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit, Per, Weighed


def _load(name: str) -> connections.Script:
    text = (files("ratelimit_app") / "lua" / f"{name}.lua").read_bytes()
    return connections.Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


_TAKE = _load("take")
#: By the server's clock, not dry, no shortest expiry.
_LIVE = connections.packed(0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What stays the same for every caller of the same limits at the same cost."""

    #: Ticks that the cost takes from each limit.
    charges: tuple[int, ...]
    #: For each limit what it counts, and how its bucket and those of its earlier generations end.
    names: tuple[tuple[Per, tuple[bytes, ...]], ...]
    args: connections.Arguments


def take(
    limits: tuple[Limit, ...],
    caller: Caller,
    *,
    cost: int = 1,
    now_ticks: int = 0,
    floor_ms: int = 0,
    dry: bool = False,
) -> Decision:
    """Take `cost` tokens from the caller's bucket of every limit, or from none of them.

    `dry` only weighs. `now_ticks` replaces the server's clock, for tests, with `floor_ms` as the
    shortest expiry. One round trip. Raises connections.Unavailable.
    """
    rules = _rules(limits, cost)
    keys = _keys(rules, caller)
    clock = connections.packed(now_ticks, int(dry), floor_ms) if now_ticks or dry else _LIVE
    reply = connections.call(_TAKE, keys, clock, rules.args)
    return _answer(limits, rules, keys, reply, cost, dry)


async def atake(limits: tuple[Limit, ...], caller: Caller, *, cost: int = 1) -> Decision:
    """`take` for async code."""
    rules = _rules(limits, cost)
    keys = _keys(rules, caller)
    return _answer(limits, rules, keys, await connections.acall(_TAKE, keys, _LIVE, rules.args), cost, False)


def refund(decision: Decision) -> None:
    """Give back what a decision took, to the buckets it took it from. Raises connections.Unavailable."""
    if charged := [weighed for weighed in decision.weighed if weighed.charged_ticks]:
        connections.call(_TAKE, _buckets_of(charged), _LIVE, _giving_back(charged))


async def arefund(decision: Decision) -> None:
    """`refund` for async code."""
    if charged := [weighed for weighed in decision.weighed if weighed.charged_ticks]:
        await connections.acall(_TAKE, _buckets_of(charged), _LIVE, _giving_back(charged))


def reset(limits: tuple[Limit, ...], caller: Caller) -> None:
    """Fill the caller's bucket of every limit. Raises connections.Unavailable."""
    if names := _keys(_rules(limits, 1), caller):
        connections.command("DEL", *names)


def delete_all() -> int:
    """Delete every name below this project's prefix; other names are left alone. Returns how many."""
    prefix = _prefix(conf.current().prefix).decode().translate({ord(c): f"\\{c}" for c in "?[]*\\"})
    deleted, cursor = 0, b"0"
    while True:
        cursor, names = connections.command("SCAN", cursor, "MATCH", f"{prefix}:*", "COUNT", 1_000)
        if names:
            deleted += connections.command("DEL", *names)
        if cursor in (b"0", "0"):
            return deleted


@lru_cache(maxsize=10_000)
def _rules(limits: tuple[Limit, ...], cost: int) -> _Rules:
    charges = tuple(cost * limit.interval_ticks for limit in limits)
    args: list[int] = []
    names: list[tuple[Per, tuple[bytes, ...]]] = []
    for limit, charge in zip(limits, charges, strict=True):
        args += (charge, limit.capacity_ticks, int(limit.mode == "enforce"), len(limit.earlier))
        args += [capacity_ticks for _generation, capacity_ticks in limit.earlier]
        generations = [limit.generation, *(generation for generation, _capacity in limit.earlier)]
        names.append((limit.per, tuple(b":%d.%d" % (limit.id, generation) for generation in generations)))
    return _Rules(charges, tuple(names), connections.packed(*args))


def _keys(rules: _Rules, caller: Caller) -> list[bytes]:
    """Every bucket of this caller that the rules name: for each limit its own, then those of earlier generations."""
    prefix = _prefix(conf.current().prefix)
    keys = []
    for per, endings in rules.names:
        stem = b"%b:{%b}" % (prefix, _hashed(*caller.identity(per)))
        keys += [stem + ending for ending in endings]
    return keys


def _answer(
    limits: tuple[Limit, ...], rules: _Rules, keys: list[bytes], reply: list[int], cost: int, dry: bool
) -> Decision:
    now, verdict, *debts = reply
    allowed = verdict == 1
    weighed, place = [], 0
    for limit, charge, debt in zip(limits, rules.charges, debts, strict=True):
        capacity = limit.capacity_ticks
        wait = max(0, debt + charge - capacity) if charge <= capacity else None
        charged = charge if allowed and wait == 0 and not dry else 0
        weighed.append(Weighed(limit, keys[place], debt + charged, charged, wait))
        place += 1 + len(limit.earlier)
    return Decision(
        allowed=allowed, weighed=tuple(weighed), cost=cost, decided_at=EPOCH_SECONDS + now / TICKS_PER_SECOND
    )


def _giving_back(charged: Sequence[Weighed]) -> connections.Arguments:
    numbers: list[int] = []
    for weighed in charged:
        limit = weighed.limit
        numbers += (-weighed.charged_ticks, limit.capacity_ticks, 0, len(limit.earlier))
        numbers += [capacity_ticks for _generation, capacity_ticks in limit.earlier]
    return connections.packed(*numbers)


def _buckets_of(charged: Sequence[Weighed]) -> list[bytes]:
    """The buckets, each followed by those of its earlier generations: it must outlive them, charged or not."""
    names = []
    for weighed in charged:
        stem = weighed.bucket.rpartition(b".")[0]
        names += [weighed.bucket, *(b"%b.%d" % (stem, generation) for generation, _ in weighed.limit.earlier)]
    return names


@lru_cache(maxsize=16)
def _prefix(prefix: str) -> bytes:
    # A brace would move the hash tag, and a colon would nest one project's names in another's.
    return quote(prefix, safe="-_.~").encode("ascii")


@lru_cache(maxsize=100_000)
def _hashed(kind: str, value: str) -> bytes:
    text = value.encode("utf-8", "surrogatepass")
    parts = b"%d:%b%d:%b" % (len(kind), kind.encode("ascii"), len(text), text)
    return base64.urlsafe_b64encode(hashlib.blake2b(parts, digest_size=15).digest())
