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
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit, Weighed


def _load(name: str) -> connections.Script:
    text = (files("ratelimit_app") / "lua" / f"{name}.lua").read_text("ascii")
    return connections.Script(text, hashlib.sha1(text.encode("ascii"), usedforsecurity=False).hexdigest())


_TAKE = _load("take")


@dataclass(frozen=True, slots=True)
class _Question:
    """One script call: what is asked, and what is needed to read the answer."""

    limits: Sequence[Limit]
    #: The bucket of each limit.
    buckets: list[str]
    keys: list[str]
    args: list[int]
    charges: list[int]


def take(
    limits: Sequence[Limit], caller: Caller, *, cost: int = 1, now_ticks: int = 0, floor_ms: int = 0, dry: bool = False
) -> Decision:
    """Take `cost` tokens from the caller's bucket of every limit, or from none of them.

    `dry` only weighs. `now_ticks` replaces the server's clock, for tests, with `floor_ms` as the
    shortest expiry. One round trip. Raises connections.Unavailable.
    """
    question = _ask(limits, caller, cost, now_ticks, floor_ms, dry)
    return _answer(question, connections.call(_TAKE, question.keys, question.args), cost, dry)


async def atake(limits: Sequence[Limit], caller: Caller, *, cost: int = 1) -> Decision:
    """`take` for async code."""
    question = _ask(limits, caller, cost, 0, 0, False)
    return _answer(question, await connections.acall(_TAKE, question.keys, question.args), cost, False)


def refund(decision: Decision) -> None:
    """Give back what a decision took, to the buckets it took it from. Raises connections.Unavailable."""
    if charged := [weighed for weighed in decision.weighed if weighed.charged_ticks]:
        keys, args = _giving_back(charged)
        connections.call(_TAKE, keys, args)


async def arefund(decision: Decision) -> None:
    """`refund` for async code."""
    if charged := [weighed for weighed in decision.weighed if weighed.charged_ticks]:
        keys, args = _giving_back(charged)
        await connections.acall(_TAKE, keys, args)


def reset(limits: Sequence[Limit], caller: Caller) -> None:
    """Fill the caller's bucket of every limit. Raises connections.Unavailable."""
    if names := [name for limit in limits for name in _names(limit, caller)]:
        connections.command("DEL", *names)


def delete_all() -> int:
    """Delete every bucket under this project's prefix; other keys are left alone. Returns how many."""
    pattern, deleted, cursor = f"{_prefix(conf.current().prefix)}:*", 0, b"0"
    escaped = pattern[:-1].translate({ord(c): f"\\{c}" for c in "?[]*\\"}) + "*"
    while True:
        cursor, names = connections.command("SCAN", cursor, "MATCH", escaped, "COUNT", 1_000)
        if names:
            deleted += connections.command("DEL", *names)
        if cursor in (b"0", "0"):
            return deleted


def _ask(limits: Sequence[Limit], caller: Caller, cost: int, now_ticks: int, floor_ms: int, dry: bool) -> _Question:
    keys: list[str] = []
    args = [now_ticks, 1 if dry else 0, floor_ms]
    buckets, charges = [], []
    for limit in limits:
        names = _names(limit, caller)
        charge = cost * limit.interval_ticks
        buckets.append(names[0])
        charges.append(charge)
        keys += names
        args += (charge, limit.capacity_ticks, 1 if limit.mode == "enforce" else 0, len(limit.earlier))
        args += [capacity_ticks for _generation, capacity_ticks in limit.earlier]
    return _Question(limits, buckets, keys, args, charges)


def _answer(question: _Question, reply: list[int], cost: int, dry: bool) -> Decision:
    now, verdict, *debts = reply
    allowed = verdict == 1
    weighed = []
    for limit, bucket, charge, debt in zip(question.limits, question.buckets, question.charges, debts, strict=True):
        capacity = limit.capacity_ticks
        short = debt + charge - capacity
        wait = max(0, short) if charge <= capacity else None
        charged = charge if allowed and wait == 0 and not dry else 0
        weighed.append(Weighed(limit, bucket, debt + charged, charged, wait))
    return Decision(
        allowed=allowed, weighed=tuple(weighed), cost=cost, decided_at=EPOCH_SECONDS + now / TICKS_PER_SECOND
    )


def _giving_back(charged: Sequence[Weighed]) -> tuple[list[str], list[int]]:
    args = [0, 0, 0]
    for weighed in charged:
        args += (-weighed.charged_ticks, weighed.limit.capacity_ticks, 0, 0)
    return [weighed.bucket for weighed in charged], args


def _names(limit: Limit, caller: Caller) -> list[str]:
    """The limit's bucket for this caller, then those of its earlier generations."""
    kind, value = caller.identity(limit.per)
    stem = f"{_prefix(conf.current().prefix)}:{{{_hashed(kind, value)}}}:{limit.id}."
    if not limit.earlier:
        return [f"{stem}{limit.generation}"]
    return [f"{stem}{generation}" for generation in (limit.generation, *(g for g, _ in limit.earlier))]


@lru_cache(maxsize=16)
def _prefix(prefix: str) -> str:
    return quote(prefix, safe=":-_.~")  # a brace would move the hash tag


@lru_cache(maxsize=100_000)
def _hashed(kind: str, value: str) -> str:
    text = value.encode("utf-8", "surrogatepass")
    parts = b"%d:%b%d:%b" % (len(kind), kind.encode("ascii"), len(text), text)
    return base64.urlsafe_b64encode(hashlib.blake2b(parts, digest_size=15).digest()).decode("ascii")
