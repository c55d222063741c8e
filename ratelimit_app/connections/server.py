"""Which connections to a server are free? One list per process; the coroutines of an event loop share one."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import hiredis

from ratelimit_app.connections.failures import FAILURES
from ratelimit_app.connections.line import SharedLine

#: A connection that lay idle for longer is looked at before use: the server may have closed it.
_TRUSTED_IDLE_SECONDS = 0.05
#: Free connections kept per process.
_KEPT = 256


class Server:
    """A server, as one process reaches it."""

    #: There is nothing to find out before it is asked.
    is_known = True

    def __init__(self, url: str, factory: Any, *, address: tuple[str, int] = ("", 0), name: str = "") -> None:
        #: What the breaker knows it by; "" where there is no other.
        self.name = name
        self.address = address
        self.url = url
        self._params: dict[str, Any] = factory.make_connection_params(url)
        pool = factory.get_or_create_connection_pool(self._params)
        self._make: Callable[[], Any] = lambda: pool.connection_class(**pool.connection_kwargs)
        #: Whether a script was refused because its keys live on different nodes.
        self.is_cluster = False
        self.pid = os.getpid()
        self.free: deque[Connection] = deque()
        self._is_closed = False
        self._lines: dict[asyncio.AbstractEventLoop, SharedLine] = {}

    def server_for(self, key: bytes | None) -> Server:
        return self

    def ask(self, *messages: bytes) -> Any:
        """Send commands, one after the other, on a free connection; the last reply. An error reply is returned."""
        try:
            connection = self.free.pop()
        except IndexError:
            connection = Connection(self.open())
        else:
            lay_idle_seconds = time.monotonic() - connection.used_at
            if lay_idle_seconds > _TRUSTED_IDLE_SECONDS and not connection.is_usable():
                connection = Connection(self.open())
        try:
            for message in messages:
                reply = connection.ask(message)
        except BaseException:
            connection.close()  # its reply may still come
            raise
        if len(self.free) < _KEPT and not self._is_closed:
            self.free.append(connection)
        else:
            connection.close()
        return reply

    def close(self) -> None:
        """Close what is free, and what comes back."""
        self._is_closed = True
        for loop, line in list(self._lines.items()):
            line.close_soon(loop)
        while self.free:
            try:
                self.free.pop().close()
            except IndexError:
                return  # another thread was faster

    def open(self, *, timeout_seconds: float | None = None) -> Any:
        """A new connection of redis-py's, handshake done."""
        opened = self._make()
        if timeout_seconds is not None:
            opened.socket_timeout = opened.socket_connect_timeout = timeout_seconds
        opened.connect()
        return opened

    async def aask(self, *messages: bytes) -> Any:
        """`ask` for async code, on the line that the coroutines of the running loop share."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = SharedLine(self.url, self._params)
            await line.close_with(loop, self._lines)
        return await line.ask(*messages)


class Connection:
    """An open connection: one question, one answer."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._socket = opened._sock
        self._timeout_seconds = self._socket.gettimeout() or math.inf
        self._reader = hiredis.Reader()
        #: Monotonic seconds.
        self.used_at = time.monotonic()
        # Python's own socket over no more than the system: neither TLS nor one of gevent's.
        self._is_plain = type(self._socket).__module__ == "socket"

    def ask(self, message: bytes) -> Any:
        """Send a command and read its reply whole; an error reply is returned, not raised."""
        if self._is_plain:
            try:
                # Before a call with a timeout Python asks whether it would block. This one never does, but for a hang.
                sent = os.write(self._socket.fileno(), message)
            except BlockingIOError:
                sent = 0
            message = message[sent:]
        if message:
            self._socket.sendall(message)
        reply: Any = False
        started = 0.0
        while reply is False:
            received = self._socket.recv(16_384)
            if not received:
                raise ConnectionResetError("Redis closed the connection.")
            self._reader.feed(received)
            reply = self._reader.gets()
            if reply is False:  # in pieces: all of them together have the time that one has
                started = started or time.monotonic()
                if time.monotonic() - started > self._timeout_seconds:
                    raise TimeoutError("Redis does not finish its reply.")
        self.used_at = time.monotonic()
        return reply

    def is_usable(self) -> bool:
        """False when the server closed it meanwhile, or it holds a reply that nobody waits for."""
        try:
            if not self._opened.can_read():
                return True
        except FAILURES:
            pass
        self.close()
        return False

    def close(self) -> None:
        self._opened.disconnect()
