"""How do the tests break Redis? Another address, and servers that answer whatever a test wants."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, cast

from django.conf import settings
from django.test import override_settings

from ratelimit_app import limiter

#: Nobody listens here.
REFUSING = "redis://127.0.0.1:1/0"


@contextlib.contextmanager
def redis_at(url: str, *, options: dict[str, Any] | None = None, **entries: Any) -> Iterator[None]:
    """The limiter asks another server for the length of a block; `entries` go into `RATELIMIT_APP`."""
    cache = cast("dict[str, Any]", settings.CACHES["ratelimit"])
    changed = {**cache, "LOCATION": url, "OPTIONS": {**cache["OPTIONS"], **(options or {})}}
    with override_settings(
        CACHES={**settings.CACHES, "ratelimit": changed}, RATELIMIT_APP={**settings.RATELIMIT_APP, **entries}
    ):
        yield


def redis_is_asked() -> bool:
    """Whether this process asks Redis; after a few failures in a row it does not, until a probe is answered."""
    return not limiter._process_breaker.is_open


class ScriptedServer:
    """A server that sends fixed bytes to whatever it is asked, and counts what it was asked.

    Each new connection gets the next of `answers`, the last one for ever; None closes at once.
    `byte_seconds` is how long it takes to send one byte of them.
    """

    def __init__(self, *answers: bytes | None, then_close: bool = False, byte_seconds: float = 0.0) -> None:
        self.answers: Sequence[bytes | None] = answers
        self.then_close = then_close
        self.byte_seconds = byte_seconds
        self.connections = 0
        self.questions = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            answer = self.answers[min(self.connections, len(self.answers) - 1)]
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection, answer), daemon=True).start()

    def _serve(self, connection: socket.socket, answer: bytes | None) -> None:
        with contextlib.suppress(OSError):
            while answer is not None and connection.recv(65_536):
                self.questions += 1
                self._send(connection, answer)
                if self.then_close:
                    break
            connection.shutdown(socket.SHUT_RDWR)

    def _send(self, connection: socket.socket, answer: bytes) -> None:
        if not self.byte_seconds:
            connection.sendall(answer)
            return
        for place in range(len(answer)):
            connection.sendall(answer[place : place + 1])
            time.sleep(self.byte_seconds)
