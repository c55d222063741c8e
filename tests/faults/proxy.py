"""What lies between the limiter and its server? A network that counts what is asked, and breaks when it is told to."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

import hiredis

from project.demo import processes
from ratelimit_app import buckets
from ratelimit_app.buckets import giving_back, questions

#: What the commands that matter here are called in `Proxy.asked`; the others by their own names.
_SCRIPTS = {
    questions.TAKE.sha: "take",
    questions.TAKE.text: "take",
    questions.TAKE_BUCKETS.sha: "take",
    questions.TAKE_BUCKETS.text: "take",
    giving_back.REFUND.sha: "refund",
    giving_back.REFUND.text: "refund",
    buckets.HEARTBEAT.sha: "probe",
    buckets.HEARTBEAT.text: "probe in full",
}
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """A TCP proxy in front of one server; leaving the block ends it."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.port = processes.free_port()
        #: How often each thing was asked: "take", "probe", or the name of a command.
        self.asked: Counter[str] = Counter()
        #: Added to each reply.
        self.delay_seconds = 0.0
        #: Each reply is cut off after so many bytes, and its connection with it.
        self.cut_after_bytes = 0
        self._is_silent = False
        self._listener: socket.socket | None = None
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        #: Clients of which not all is counted yet.
        self._asking: set[socket.socket] = set()
        self._fillers: list[socket.socket] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Nobody listens any more, and what was open is reset: as when the server's process dies."""
        self._stop_listening()
        with self._lock:
            pairs = list(self._pairs)
        for client, server in pairs:
            _reset(client)
            _reset(server)

    def vanish(self) -> None:
        """Nothing arrives, nothing is answered, nothing is reset: as when a cable is pulled."""
        self._is_silent = True
        self._stop_listening()
        self._listener = self._bound(backlog=0)  # nobody accepts: once it is full, the kernel drops what knocks
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
            self._fillers.append(filler)

    def listen(self) -> None:
        """Be a network again."""
        self.refuse()
        self.delay_seconds, self.cut_after_bytes, self._is_silent = 0.0, 0, False
        self._listener = self._bound(backlog=128)
        threading.Thread(target=self._accept, args=(self._listener,), name="proxy", daemon=True).start()

    def _bound(self, *, backlog: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(backlog)
        return listener

    def _stop_listening(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None
        while self._fillers:
            self._fillers.pop().close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port), timeout=5)
            except OSError:
                _reset(client)
                client.close()
                continue
            server.settimeout(None)
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
                self._asking.add(client)
            for pump in (self._ask, self._answer):
                threading.Thread(target=pump, args=pair, name="proxy", daemon=True).start()

    @property
    def has_counted_everything(self) -> bool:
        """Whether all that clients have sent so far is in `asked`, the questions of those that hung up, too."""
        with self._lock:
            return not select.select(self._asking, [], [], 0)[0]

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        reader = hiredis.Reader()
        with contextlib.suppress(OSError):
            while received := client.recv(65_536, socket.MSG_PEEK):  # what is not counted yet is not read yet
                reader.feed(received)
                while (words := reader.gets()) is not False:
                    self._count(words)
                client.recv(len(received))
                if not self._is_silent:
                    server.sendall(received)
        with self._lock:
            self._asking.discard(client)
        self._end(client, server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := server.recv(65_536):
                if self.delay_seconds:
                    time.sleep(self.delay_seconds)
                if self._is_silent:
                    continue
                if self.cut_after_bytes:
                    client.sendall(received[: self.cut_after_bytes])
                    break
                client.sendall(received)
        self._end(client, server)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        """One direction has ended: end the other, and close both when that has, too."""
        for each in (client, server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            is_last = (client, server) not in self._pairs
            self._pairs.discard((client, server))
        if is_last:
            client.close()
            server.close()

    def _count(self, words: list[bytes]) -> None:
        name = words[0].decode().upper()
        with self._lock:
            self.asked[_SCRIPTS.get(words[1], name) if name in ("EVALSHA", "EVAL") else name] += 1


def _reset(connection: socket.socket) -> None:
    """Let the other end see a reset; its own thread closes it."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        connection.shutdown(socket.SHUT_RDWR)
