"""How is Redis reached? A connection factory for django-redis, and free lists of bare connections.

django-redis shares one pool per URL, whatever the options, and redis-py's client costs as much
again as the server's answer. So: own pools, own timeouts, no retry; and a decision takes a bare
connection from a free list, which is one atomic `pop`, and puts it back only when the reply was
read whole. A connection whose call was interrupted is never used again.

Every way that Redis can fail leaves this module as `Unavailable`, with one word for the reason.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio.connection
import redis.connection
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string
from django_redis import pool as django_redis_pool
from redis import exceptions
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from ratelimit_app import conf

#: A connection that lay idle for longer is looked at before use: the server may have closed it.
_TRUSTED_IDLE_SECONDS = 0.05
#: Free connections kept per process (and per event loop).
_KEPT = 256

_FACTORY = "ratelimit_app.connections.ConnectionFactory"


class Unavailable(Exception):
    """Redis could not decide."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{self.__doc__} ({reason}) {detail}".strip())
        #: One word: refused, timeout, noauth, loading, readonly, oom, busy, masterdown, ...
        self.reason = reason


class ConnectionFactory(django_redis_pool.ConnectionFactory):  # type: ignore[type-arg]
    """`CONNECTION_FACTORY` of the cache alias: pools of its own, short timeouts, no retry, RESP2."""

    _pools: dict[str, Any] = {}  # noqa: RUF012 - django-redis keeps its pools on the class

    def make_connection_params(self, url: str) -> dict[str, Any]:
        params = super().make_connection_params(url)
        settings = conf.current()
        return {
            **params,
            "socket_timeout": settings.timeout_seconds,
            "socket_connect_timeout": settings.connect_timeout_seconds,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,  # spares two round trips on a new connection
        }

    def get_or_create_connection_pool(self, params: dict[str, Any]) -> Any:
        key = repr(sorted((name, value) for name, value in params.items() if name != "retry"))
        if key not in self._pools:
            self._pools[key] = self.get_connection_pool(params)
        return self._pools[key]


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script: its text, and the SHA-1 that a server knows it by."""

    text: str
    sha: str


class _Server:
    """The server that the cache alias names, as one process reaches it."""

    def __init__(self, alias: str) -> None:
        options = (conf.cache_options() or {}).get(alias)
        if options is None:
            raise ImproperlyConfigured(f"CACHES has no {alias!r}, which RATELIMIT_APP['CACHE'] names.")
        location = options.get("LOCATION", "")
        self.url = location if isinstance(location, str) else location[0]
        extra = options.get("OPTIONS", {})
        factory = import_string(extra.get("CONNECTION_FACTORY", _FACTORY))(dict(extra))
        self._params: dict[str, Any] = factory.make_connection_params(self.url)
        pool = factory.get_or_create_connection_pool(self._params)
        self._make: Callable[[], Any] = lambda: pool.connection_class(**pool.connection_kwargs)
        self.pid = os.getpid()
        self.free: deque[tuple[Any, float]] = deque(maxlen=_KEPT)
        self._loops: dict[asyncio.AbstractEventLoop, _AsyncConnections] = {}

    def acquire(self) -> Any:
        try:
            connection, used_at = self.free.pop()
        except IndexError:
            return self._make()
        if time.monotonic() - used_at > _TRUSTED_IDLE_SECONDS and connection.can_read():
            connection.disconnect()  # closed by the server, or holds a reply nobody waits for
        return connection

    def release(self, connection: Any) -> None:
        self.free.append((connection, time.monotonic()))

    async def on_this_loop(self) -> _AsyncConnections:
        loop = asyncio.get_running_loop()
        connections = self._loops.get(loop)
        if connections is None:
            connections = self._loops[loop] = _AsyncConnections(self.url, self._params)
            await connections.close_with(loop, self._loops)
        return connections


class _AsyncConnections:
    """The free list of one event loop."""

    def __init__(self, url: str, params: dict[str, Any]) -> None:
        plain = {name: value for name, value in params.items() if name not in ("url", "parser_class", "retry")}
        pool = redis.asyncio.connection.ConnectionPool.from_url(url, **plain, retry=AsyncRetry(NoBackoff(), 0))
        self._make: Callable[[], Any] = lambda: pool.connection_class(**pool.connection_kwargs)
        self.free: deque[Any] = deque(maxlen=_KEPT)
        self._end: AsyncGenerator[None, None] | None = None

    async def close_with(self, loop: asyncio.AbstractEventLoop, loops: dict[Any, _AsyncConnections]) -> None:
        """Close the connections when the loop ends: a loop that shuts down closes its async generators."""

        async def end() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                loops.pop(loop, None)
                while self.free:
                    await self.free.pop().disconnect()

        self._end = end()
        await anext(self._end)

    async def acquire(self) -> Any:
        while self.free:
            connection = self.free.pop()
            if connection.is_connected and not await connection.can_read():
                return connection
            await connection.disconnect(nowait=True)
        connection = self._make()
        await connection.connect()
        return connection


_server: _Server | None = None
_server_of: conf.Settings | None = None
_nonces = itertools.count(random.SystemRandom().randrange(1 << 40))


def _current_server() -> _Server:
    global _server, _server_of
    settings = conf.current()
    if _server is None or _server_of is not settings or _server.pid != os.getpid():
        _server, _server_of = _Server(settings.cache), settings
    return _server


def _forget_server(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        global _server
        _server = None
        ConnectionFactory._pools.clear()


setting_changed.connect(_forget_server, dispatch_uid="ratelimit_app.connections")


def call(script: Script, keys: Sequence[str], args: Sequence[int]) -> list[int]:
    """Run a script and return its reply, without the nonce that it must begin with.

    One round trip, or two when the server does not know the script yet. Raises Unavailable.
    """
    nonce = next(_nonces)
    try:
        return _without_nonce(command("EVALSHA", script.sha, len(keys), *keys, nonce, *args), nonce)
    except _NoScript:
        return _without_nonce(command("EVAL", script.text, len(keys), *keys, nonce, *args), nonce)


async def acall(script: Script, keys: Sequence[str], args: Sequence[int]) -> list[int]:
    """`call` for async code, on connections of the running event loop."""
    nonce = next(_nonces)
    try:
        return _without_nonce(await acommand("EVALSHA", script.sha, len(keys), *keys, nonce, *args), nonce)
    except _NoScript:
        return _without_nonce(await acommand("EVAL", script.text, len(keys), *keys, nonce, *args), nonce)


def command(*words: Any) -> Any:
    """Send one command on a connection of this process and return the reply. Raises Unavailable."""
    try:
        server = _current_server()
        connection = server.acquire()
        try:
            connection.send_command(*words)
            reply = connection.read_response()
        except exceptions.ResponseError:
            server.release(connection)  # an error is a whole reply too
            raise
        except BaseException:
            connection.disconnect()
            raise
    except _FAILURES as failure:
        raise _named(failure) from failure
    server.release(connection)
    return reply


async def acommand(*words: Any) -> Any:
    """`command` for async code."""
    try:
        connections = await _current_server().on_this_loop()
        connection = await connections.acquire()
        try:
            await connection.send_command(*words)
            reply = await connection.read_response()
        except exceptions.ResponseError:
            connections.free.append(connection)
            raise
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
    except _FAILURES as failure:
        raise _named(failure) from failure
    connections.free.append(connection)
    return reply


class Subscription:
    """A connection that waits for messages on one channel."""

    def __init__(self, channel: str) -> None:
        """Subscribe. Raises Unavailable."""
        try:
            self._connection = _current_server()._make()
            self._connection.send_command("SUBSCRIBE", channel)
            self._connection.read_response()
        except _FAILURES as failure:
            raise _named(failure) from failure

    def wait(self, seconds: float) -> bool:
        """Whether a message came within `seconds`. Raises Unavailable."""
        try:
            if not self._connection.can_read(timeout=seconds):
                return False
            self._connection.read_response()
        except _FAILURES as failure:
            self.close()
            raise _named(failure) from failure
        return True

    def close(self) -> None:
        self._connection.disconnect()


class _NoScript(Unavailable):
    """The server does not know the script."""


_FAILURES = (
    exceptions.RedisError,
    exceptions.RedisClusterException,  # not a RedisError
    OSError,
    UnicodeError,  # a name that does not encode
    asyncio.TimeoutError,
)
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.TimeoutError, "timeout"),
    (asyncio.TimeoutError, "timeout"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.AuthenticationError, "noauth"),
    (exceptions.NoPermissionError, "noauth"),
    (exceptions.ReadOnlyError, "readonly"),
    (exceptions.OutOfMemoryError, "oom"),
    (exceptions.MasterDownError, "masterdown"),
    (exceptions.ClusterDownError, "clusterdown"),
    (exceptions.RedisClusterException, "clusterdown"),
    (exceptions.DataError, "encode"),
    (UnicodeError, "encode"),
    (exceptions.InvalidResponse, "nonsense"),
)
_REASONS_BY_TEXT = (
    ("max number of clients", "maxclients"),
    ("WRONGTYPE", "wrongtype"),
    ("BUSY", "busy"),
    ("refused", "refused"),
)


def _named(failure: BaseException) -> Unavailable:
    if isinstance(failure, exceptions.NoScriptError):
        return _NoScript("noscript")
    text = str(failure)
    for kind, reason in _REASONS:
        if isinstance(failure, kind):
            return Unavailable(reason, text)
    for part, reason in _REASONS_BY_TEXT:
        if part in text:
            return Unavailable(reason, text)
    return Unavailable("error" if isinstance(failure, exceptions.ResponseError) else "connection", text)


def _without_nonce(reply: Any, nonce: int) -> list[int]:
    if not isinstance(reply, list) or not reply or reply[0] != nonce:
        global _server
        _server = None  # another caller's reply: trust none of these connections again
        raise Unavailable("nonsense", "The reply does not belong to the question.")
    return cast("list[int]", reply[1:])
