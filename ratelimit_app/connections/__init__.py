"""How is Redis reached? A connection factory for django-redis, and free lists of bare connections.

django-redis shares one pool per URL, whatever the options, and redis-py's client costs more than
the server's answer. So: own pools, own timeouts, no retry. redis-py opens a connection (password,
TLS, unix socket); a decision takes one from a free list, which is one atomic `pop`, talks on its
socket, and puts it back only when the reply was read whole. A connection whose call was interrupted
is never used again.

Every way that Redis can fail leaves this module as `Unavailable`, with one word for the reason.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import hiredis
from django.core.signals import setting_changed
from redis import exceptions

from ratelimit_app import conf
from ratelimit_app.connections.factory import ConnectionFactory
from ratelimit_app.connections.failures import FAILURES, CrossSlot, NoScript, Unavailable, named
from ratelimit_app.connections.server import Server

__all__ = [
    "Arguments",
    "ConnectionFactory",
    "CrossSlot",
    "Script",
    "Subscription",
    "Unavailable",
    "acall",
    "call",
    "command",
    "is_cluster",
    "packed",
]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script: its text, and the SHA-1 that a server knows it by."""

    text: bytes
    sha: bytes


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a script, packed for the wire."""

    count: int
    data: bytes


_server: Server | None = None
_server_of: conf.Settings | None = None
_nonces = itertools.count(random.SystemRandom().randrange(1 << 40))


def _current_server() -> Server:
    global _server, _server_of
    settings = conf.current()
    server = _server
    if server is None or _server_of is not settings or server.pid != os.getpid():
        _drop_server()
        server = _server = Server(settings.cache)
        _server_of = settings
    return server


def _drop_server() -> None:
    global _server
    dropped, _server = _server, None
    if dropped is not None and dropped.pid == os.getpid():  # a forked child must not close its parent's
        dropped.close()


def _forget_server(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        _drop_server()
        ConnectionFactory._pools.clear()


setting_changed.connect(_forget_server, dispatch_uid="ratelimit_app.connections")


def is_cluster() -> bool:
    """Whether the server turned out to be part of a cluster."""
    return _server is not None and _server.is_cluster


def packed(*numbers: int) -> Arguments:
    """Numbers as they travel to a script, so that what never changes is packed once."""
    return Arguments(len(numbers), b"".join(_bulk(b"%d" % number) for number in numbers))


def call(script: Script, keys: Sequence[bytes], *args: Arguments) -> list[int]:
    """Run a script and return its reply, without the nonce that it must begin with.

    One round trip, or two when the server does not know the script yet. Raises Unavailable.
    """
    nonce = next(_nonces)
    try:
        return _without_nonce(_exchange(_evaluation(b"EVALSHA", script.sha, keys, nonce, args)), nonce)
    except NoScript:
        return _without_nonce(_exchange(_evaluation(b"EVAL", script.text, keys, nonce, args)), nonce)


async def acall(script: Script, keys: Sequence[bytes], *args: Arguments) -> list[int]:
    """`call` for async code, on connections of the running event loop."""
    nonce = next(_nonces)
    try:
        return _without_nonce(await _aexchange(_evaluation(b"EVALSHA", script.sha, keys, nonce, args)), nonce)
    except NoScript:
        return _without_nonce(await _aexchange(_evaluation(b"EVAL", script.text, keys, nonce, args)), nonce)


def command(*words: str | bytes | int) -> Any:
    """Send one command and return its reply. Raises Unavailable."""
    try:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    except UnicodeError as failure:
        raise Unavailable("encode", str(failure)) from failure
    return _exchange(b"*%d\r\n%b" % (len(encoded), b"".join(map(_bulk, encoded))))


def _evaluation(verb: bytes, script: bytes, keys: Sequence[bytes], nonce: int, args: tuple[Arguments, ...]) -> bytes:
    return b"*%d\r\n%b%b%b%b%b%b" % (
        4 + len(keys) + sum([part.count for part in args]),
        _bulk(verb),
        _bulk(script),
        _bulk(b"%d" % len(keys)),
        b"".join([b"$%d\r\n%b\r\n" % (len(key), key) for key in keys]),
        _bulk(b"%d" % nonce),
        b"".join([part.data for part in args]),
    )


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(word), word)


def _exchange(message: bytes) -> Any:
    try:
        server = _current_server()
        connection = server.acquire()
        try:
            reply = connection.ask(message)
        except BaseException:
            connection.close()
            raise
    except FAILURES as failure:
        raise named(failure) from failure
    server.release(connection)
    if isinstance(reply, hiredis.ReplyError):
        raise _noted(named(reply), server)
    return reply


async def _aexchange(message: bytes) -> Any:
    server = None
    try:
        server = _current_server()
        connections = await server.on_this_loop()
        connection = await connections.acquire()
        try:
            await connection.send_packed_command([message])
            reply = await connection.read_response()
        except exceptions.ResponseError:
            await connections.release(connection)
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
    except FAILURES as failure:
        raise _noted(named(failure), server) from failure
    await connections.release(connection)
    return reply


def _noted(failure: Unavailable, server: Server | None) -> Unavailable:
    if isinstance(failure, CrossSlot) and server is not None:
        server.is_cluster = True
    return failure


class Subscription:
    """A connection that waits for messages on one channel."""

    def __init__(self, channel: str) -> None:
        """Subscribe. Raises Unavailable."""
        try:
            self._connection = _current_server().open()
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
        _drop_server()  # another caller's reply: trust none of these connections again
        raise Unavailable("nonsense", "The reply does not belong to the question.")
    return cast("list[int]", reply[1:])
