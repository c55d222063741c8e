"""How is Redis reached? A connection factory for django-redis, and free lists of bare connections.

django-redis shares one pool per URL, whatever the options, and redis-py's client costs more than
the server's answer. So: own pools, own timeouts, no retry. redis-py opens a connection (password,
TLS, unix socket); a decision takes one from a free list, which is one atomic `pop`, talks on its
socket, and puts it back only when the reply was read whole. A connection whose call was interrupted
is never used again. The coroutines of an event loop share one, on which their questions travel in turn.

    places    what the cache alias names: a server, a cluster, or sentinels
    shards    which of several servers holds a name; finding: who says so; nodes: what is asked about one
    server    the free connections to one server
    line      the one that the coroutines of an event loop share
    factory   what django-redis and the servers make connections with
    failures  one word for every way that Redis can fail

Every way that Redis can fail leaves this module as `Unavailable`, with one word for the reason.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import hiredis

from ratelimit_app.connections import places
from ratelimit_app.connections.factory import ConnectionFactory, SentinelConnectionFactory
from ratelimit_app.connections.failures import (
    FAILURES,
    CrossSlot,
    NoScript,
    NotAsked,
    Redirected,
    Unavailable,
    named,
)
from ratelimit_app.connections.finding import ClusterURL
from ratelimit_app.connections.nodes import demand_asked, look, node_of, sample_of_nodes, tag_on
from ratelimit_app.connections.places import is_cluster
from ratelimit_app.connections.server import Server
from ratelimit_app.connections.shards import Shards, shunned

__all__ = [
    "Arguments",
    "ClusterURL",
    "ConnectionFactory",
    "CrossSlot",
    "NotAsked",
    "Question",
    "Script",
    "SentinelConnectionFactory",
    "Subscription",
    "Unavailable",
    "aask",
    "acall",
    "ask",
    "call",
    "command",
    "demand_asked",
    "hole",
    "is_cluster",
    "look",
    "node_of",
    "packed",
    "sample_of_nodes",
    "shunned",
    "tag_on",
]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script: its text, and the SHA-1 that a server knows it by."""

    text: bytes
    sha: bytes


class Arguments(NamedTuple):
    """Arguments of a script, packed for the wire."""

    number: int
    data: bytes


#: Of thirteen digits each, so that a message has a hole of one size for them.
_nonces = itertools.count(random.SystemRandom().randrange(10**12, 9 * 10**12))
#: Redirects that are followed for one question.
_MOST_HOPS = 2
_ASKING = b"*1\r\n$6\r\nASKING\r\n"
#: Failures after which another server may have the names.
_DOUBTFUL = ("refused", "timeout", "connection", "readonly", "masterdown", "clusterdown", "loading", "moved")


def packed(*words: int | bytes) -> Arguments:
    """Words as they travel to a script, so that what never changes is packed once."""
    return Arguments(len(words), b"".join(_bulk(word if isinstance(word, bytes) else b"%d" % word) for word in words))


def hole(width: int) -> Arguments:
    """Room for one argument of so many bytes, which is filled when the question is asked."""
    return Arguments(1, b"$%d\r\n%%b\r\n" % width)


class Question:
    """A call of a script, packed for the wire but for the names that it is about, the nonce, and what fills holes."""

    __slots__ = ("_script", "_template")

    def __init__(self, script: Script, widths: Sequence[int], *args: Arguments) -> None:
        """`widths` are the lengths of the names, in bytes. No argument has a percent sign but for a hole."""
        self._script = script
        self._template = b"*%d\r\n%b%b%b%b$13\r\n%%d\r\n%b" % (
            4 + len(widths) + sum(part.number for part in args),
            _bulk(b"EVALSHA"),
            _bulk(script.sha),
            _bulk(b"%d" % len(widths)),
            b"".join(b"$%d\r\n%%b\r\n" % width for width in widths),
            b"".join(part.data for part in args),
        )

    def about(self, keys: Sequence[bytes], nonce: int, fillings: Sequence[bytes] = ()) -> bytes:
        """The message to send."""
        return self._template % (*keys, nonce, *fillings)

    def with_text(self, message: bytes) -> bytes:
        """The same message for a server that does not know the script."""
        by_sha = _bulk(b"EVALSHA") + _bulk(self._script.sha)
        return message.replace(by_sha, _bulk(b"EVAL") + _bulk(self._script.text), 1)


def call(script: Script, keys: Sequence[bytes], *args: Arguments) -> list[int]:
    """Run a script and return its reply. As `ask`, for a question that is asked once."""
    return ask(Question(script, [len(key) for key in keys], *args), keys)


async def acall(script: Script, keys: Sequence[bytes], *args: Arguments) -> list[int]:
    """`call` for async code, on the line of the running event loop."""
    return await aask(Question(script, [len(key) for key in keys], *args), keys)


def ask(question: Question, keys: Sequence[bytes], fillings: Sequence[bytes] = ()) -> list[int]:
    """Run a script about these names and return its reply, without the nonce that it must begin with.

    One round trip, or two when the server does not know the script yet; another for each redirect in a
    cluster, two at most. Raises Unavailable.
    """
    nonce, key = next(_nonces), keys[0] if keys else None
    message = question.about(keys, nonce, fillings)
    try:
        reply = _exchange(message, key)
    except NoScript:
        reply = _exchange(question.with_text(message), key)
    return _without_nonce(reply, nonce)


async def aask(question: Question, keys: Sequence[bytes], fillings: Sequence[bytes] = ()) -> list[int]:
    """`ask` for async code, on the line of the running event loop."""
    nonce, key = next(_nonces), keys[0] if keys else None
    message = question.about(keys, nonce, fillings)
    try:
        reply = await _aexchange(message, key)
    except NoScript:
        reply = await _aexchange(question.with_text(message), key)
    return _without_nonce(reply, nonce)


def command(*words: str | bytes | int, key: bytes | None = None) -> Any:
    """Send one command to the server that holds `key`, or to any, and return its reply. Raises Unavailable."""
    try:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    except UnicodeError as failure:
        raise Unavailable("encode", str(failure)) from failure
    return _exchange(b"*%d\r\n%b" % (len(encoded), b"".join(map(_bulk, encoded))), key)


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def _exchange(message: bytes, key: bytes | None) -> Any:
    """Send a command to the server that holds the key, or to any, and return its reply."""
    try:
        place = places.current()
        server = place.server_for(key)
    except FAILURES as failure:
        raise named(failure) from failure
    is_asking, hops = False, 0
    while True:
        try:
            reply = server.ask(_ASKING, message) if is_asking else server.ask(message)
        except FAILURES as failure:
            raise _noted(named(failure), place, server) from failure
        if not isinstance(reply, hiredis.ReplyError):
            return reply
        server, is_asking = _redirected(named(reply), place, server, hops)
        hops += 1


async def _aexchange(message: bytes, key: bytes | None) -> Any:
    try:
        place = places.current()
        if not place.is_known:
            await asyncio.to_thread(place.server_for, None)
        server = place.server_for(key)
    except FAILURES as failure:
        raise named(failure) from failure
    is_asking, hops = False, 0
    while True:
        try:
            reply = await (server.aask(_ASKING, message) if is_asking else server.aask(message))
        except FAILURES as failure:
            raise _noted(named(failure), place, server) from failure
        if not isinstance(reply, hiredis.ReplyError):
            return reply
        server, is_asking = _redirected(named(reply), place, server, hops)
        hops += 1


def _redirected(failure: Unavailable, place: Server | Shards, server: Server, hops: int) -> tuple[Server, bool]:
    """The server to ask instead, and whether for this once; raises the failure when there is none."""
    if isinstance(failure, Redirected) and isinstance(place, Shards) and hops < _MOST_HOPS:
        return place.redirected(failure, server), failure.is_ask
    raise _noted(failure, place, server)


def _noted(failure: Unavailable, place: Server | Shards, server: Server) -> Unavailable:
    failure.node = server.name
    if isinstance(place, Shards):
        if failure.reason in _DOUBTFUL:
            place.doubt()
    elif isinstance(failure, CrossSlot):
        place.is_cluster = True
    return failure


class Subscription:
    """A connection that waits for messages on one channel."""

    def __init__(self, channel: str) -> None:
        """Subscribe. Raises Unavailable."""
        try:
            self._connection = places.current().server_for(None).open()
            self._connection.send_command("SUBSCRIBE", channel)
            self._connection.read_response()
        except FAILURES as failure:
            raise named(failure) from failure

    def wait(self, seconds: float) -> bool:
        """Whether a message came within `seconds`. Raises Unavailable."""
        try:
            if not self._connection.can_read(timeout=seconds):
                return False
            self._connection.read_response()
        except FAILURES as failure:
            self.close()
            raise named(failure) from failure
        return True

    def close(self) -> None:
        self._connection.disconnect()


def _without_nonce(reply: Any, nonce: int) -> list[int]:
    if not isinstance(reply, list) or not reply or reply[0] != nonce:
        places.drop()  # another caller's reply: trust none of these connections again
        raise Unavailable("nonsense", "The reply does not belong to the question.")
    del reply[0]
    return cast("list[int]", reply)
