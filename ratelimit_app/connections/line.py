"""How do the coroutines of one event loop share a connection? Questions go out in turn, replies come back in turn.

Nobody waits for a free connection, and many questions travel in one packet. Whoever is cancelled
leaves a place in the line, whose reply nobody gets. A server that does not answer the first in
the line in time answers nobody: the connection is closed, and all that wait are told. A loop that
is busy is no slow server: time counts from when a question was sent, and a reply that lies there
when the loop comes round is in time.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

import hiredis
import redis.asyncio.connection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

#: Turns of the loop, in which it sees what came, before a reply that is overdue is given up.
_TURNS = 2

#: Lines whose server may be forgotten before their event loop ends, which has to close them.
_until_their_loop_ends: set[SharedLine] = set()


class SharedLine:
    """The line of one event loop to a server: opened when somebody asks, and again when it broke."""

    def __init__(self, url: str, params: dict[str, Any]) -> None:
        plain = {name: value for name, value in params.items() if name not in ("url", "parser_class", "retry")}
        pool = redis.asyncio.connection.ConnectionPool.from_url(url, **plain, retry=Retry(NoBackoff(), 0))
        self._make: Callable[[], Any] = lambda: pool.connection_class(**pool.connection_kwargs)
        self._line: Line | None = None
        self._opening: asyncio.Task[Line] | None = None
        self._is_closed = False
        self._end: AsyncGenerator[None, None] | None = None

    async def ask(self, *messages: bytes) -> Any:
        """Send commands, one after the other; the last reply. An error reply is returned, not raised."""
        line = self._line
        if line is None or line.is_closing:
            line = await self._open_together()
        reply = line.ask(*messages)
        if self._is_closed:
            line.close()
        return await reply

    async def close_with(self, loop: asyncio.AbstractEventLoop, lines: dict[Any, SharedLine]) -> None:
        """Close the line when the loop ends: a loop that shuts down closes its async generators."""

        async def end() -> AsyncGenerator[None, None]:
            try:
                yield
            finally:
                lines.pop(loop, None)
                _until_their_loop_ends.discard(self)
                self._is_closed = True
                if self._line is not None:
                    self._line.end(ConnectionResetError("The event loop ends."))
                    await asyncio.sleep(0)  # in which the transport lets go of its socket

        _until_their_loop_ends.add(self)
        self._end = end()
        await anext(self._end)

    def close_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the line once all are answered that wait, on the loop that it belongs to; callable from any thread."""
        try:
            loop.call_soon_threadsafe(self._close)
        except RuntimeError:
            pass  # the loop has ended, and has closed it itself

    def _close(self) -> None:
        self._is_closed = True
        if self._line is not None:
            self._line.close()

    async def _open_together(self) -> Line:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        # Whoever is cancelled does not cancel it for the others.
        return await asyncio.shield(self._opening)

    async def _open(self) -> Line:
        connection = self._make()
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._line = Line(connection)
        return self._line

    def _opened(self, opening: asyncio.Task[Line]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # looked at, though all that wanted to know may be gone


class Packet:
    """Questions that were sent together."""

    __slots__ = ("sent_at",)

    def __init__(self) -> None:
        #: By the loop's clock.
        self.sent_at = math.inf


class Line(asyncio.Protocol):
    """An open connection, and who waits for a reply on it."""

    def __init__(self, opened: Any) -> None:
        """`opened` is a connection of redis-py's, handshake done; it is ours from now on."""
        self._loop = asyncio.get_running_loop()
        self._timeout_seconds: float = opened.socket_timeout or math.inf
        # The writer is kept: it closes its transport when it is thrown away.
        self._writer, before, opened._writer, opened._reader = opened._writer, opened._reader, None, None
        self._transport = self._writer.transport
        self._transport.set_protocol(self)
        self._reader = hiredis.Reader()
        self._reader.feed(bytes(before._buffer))  # a server without a free place says so unasked, and hangs up
        self._failure: Exception | None = ConnectionResetError("Redis closed the connection.") if before._eof else None
        #: Who waits, in the order of the questions; None for a reply that nobody wants.
        self._waiting: deque[tuple[asyncio.Future[Any] | None, Packet]] = deque()
        self._outgoing: list[bytes] = []
        self._packet = Packet()
        self._watch: asyncio.TimerHandle | None = None
        #: Whether nobody else may ask.
        self.is_closing = self._failure is not None

    def ask(self, *messages: bytes) -> asyncio.Future[Any]:
        """Queue commands; the last reply."""
        if not self._outgoing:  # what all that are about to run now will ask goes out together
            self._loop.call_soon(self._send)
        for _ in messages[1:]:
            self._waiting.append((None, self._packet))
        self._outgoing += messages
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((reply, self._packet))
        if self._watch is None and self._timeout_seconds < math.inf:
            self._watch = self._loop.call_later(self._timeout_seconds, self._look)
        return reply

    def close(self) -> None:
        """Take no more questions, and close the connection once all are answered."""
        self.is_closing = True
        if not self._waiting:
            self.end(ConnectionResetError("Closed."))

    def end(self, failure: Exception) -> None:
        """Close the connection now, and tell all that wait."""
        self.is_closing, self._failure = True, self._failure or failure
        if self._watch is not None:
            self._watch.cancel()
        self._transport.abort()
        while self._waiting:
            waiting, _packet = self._waiting.popleft()
            if waiting is not None and not waiting.done():
                waiting.set_exception(self._failure)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._deliver()
        if self.is_closing or (self._reader.has_data() and not self._waiting):  # nobody asked for what is left
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deliver()
        self.end(exc or ConnectionResetError("Redis closed the connection."))

    def _send(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        self._packet.sent_at = self._loop.time()
        self._packet = Packet()
        if self._failure is None:
            self._transport.write(b"".join(outgoing))
        self._deliver()
        if self._failure is not None:
            self.end(self._failure)

    def _deliver(self) -> None:
        try:
            while self._waiting and (reply := self._reader.gets()) is not False:
                waiting, _packet = self._waiting.popleft()
                if waiting is not None and not waiting.done():
                    waiting.set_result(reply)
        except hiredis.ProtocolError as failure:
            self.end(failure)

    def _look(self) -> None:
        self._watch = None
        if self._waiting:
            _first, packet = self._waiting[0]
            left = min(self._timeout_seconds, packet.sent_at + self._timeout_seconds - self._loop.time())
            if left > 0:
                self._watch = self._loop.call_later(left, self._look)
            else:
                self._give_up_on(packet, _TURNS)

    def _give_up_on(self, packet: Packet, turns: int) -> None:
        self._watch = None
        if not self._waiting or self._waiting[0][1] is not packet:
            self._look()
        elif turns:
            self._watch = self._loop.call_later(0, self._give_up_on, packet, turns - 1)
        else:
            self.end(TimeoutError("Redis does not answer in time."))
