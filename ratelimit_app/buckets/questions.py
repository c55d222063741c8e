"""What is sent to take tokens? One message for all callers of the same limits, with holes for keys and fields."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from ratelimit_app import connections, names
from ratelimit_app.limits import Algorithm, Caller, Limit, Per


def load(name: str) -> connections.Script:
    """A script of `lua/`."""
    text = (files("ratelimit_app") / "lua" / f"{name}.lua").read_bytes()
    return connections.Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


TAKE, TAKE_BUCKETS = load("take"), load("take_buckets")
#: What the scripts call the algorithms.
KINDS: dict[Algorithm, int] = {
    "token_bucket": 1,
    "leaky_bucket": 1,
    "fixed_window": 2,
    "sliding_window": 3,
    "sliding_log": 4,
}
#: By the server's clock, not dry, no shortest expiry.
LIVE = connections.packed(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Prepared:
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


class Address(NamedTuple):
    """Where one caller's buckets of some limits are."""

    #: For each limit the key that holds its bucket, then those of earlier generations.
    keys: list[bytes]
    #: For each limit the field.
    fields: list[bytes]
    #: For each limit what its bucket is called.
    buckets: list[bytes]


@lru_cache(maxsize=10_000)
def prepared(limits: tuple[Limit, ...], cost: int, patience_ticks: int) -> Prepared:
    only_buckets = all(limit.is_bucket and not limit.earlier for limit in limits)
    only_token_buckets = only_buckets and all(limit.algorithm == "token_bucket" for limit in limits)
    args: list[connections.Arguments] = []
    listed: list[tuple[tuple[Per, int], bytes, bool, bool]] = []
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
            numbers = (KINDS[limit.algorithm], charge, limit.size, ceiling, limit.period_ticks, enforced)
            numbers += (len(limit.earlier),)
            for old in limit.earlier:
                numbers += (KINDS[old.algorithm], old.size, old.period_ticks)
        args.append(connections.packed(*numbers))
        owner = owners.setdefault((limit.per, limit.shard), (limit.per, limit.shard))
        listed += [
            (owner, b":%d.%d" % (limit.id, each.generation), each.is_bucket, each is limit)
            for each in (limit, *limit.earlier)
        ]
    script = TAKE_BUCKETS if only_buckets else TAKE
    return Prepared(script, tuple(listed), tuple(args), only_token_buckets, questions={})


def question_to(prepared: Prepared, address: Address, clock: connections.Arguments) -> connections.Question:
    widths = tuple([len(word) for word in address.keys + address.fields])
    question = prepared.questions.get((clock, widths))
    if question is None:
        args = [clock]
        for field, numbers in zip(address.fields, prepared.args, strict=True):
            args += (connections.hole(len(field)), numbers)
        question = connections.Question(prepared.script, widths[: len(address.keys)], *args)
        if clock is LIVE:
            prepared.questions[clock, widths] = question
    return question


def address_of(prepared: Prepared, caller: Caller) -> Address:
    keys: list[bytes] = []
    fields: list[bytes] = []
    buckets: list[bytes] = []
    whose, place = None, None
    for owner, ending, may_be_in_hash, is_in_force in prepared.names:
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
    return Address(keys, fields, buckets)
