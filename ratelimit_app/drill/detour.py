"""How is one process made to believe that Redis is slow or gone? It reaches the real one through a gate of its own.

The gate stands in this process and passes bytes on, so that sockets, timeouts, breaker and probes are
those of every day. Nobody else comes through it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from django.test.utils import override_settings  # announces the change, as `connections` expects

from ratelimit_app import conf

_CHUNK = 65_536


class NoDetour(Exception):
    """The way to Redis cannot be led through a gate."""


class Detour:
    """Within its block, this process asks Redis through a gate that can be slow or shut."""

    def __init__(self) -> None:
        alias = conf.current().cache
        caches = conf.cache_options() or {}
        location = caches.get(alias, {}).get("LOCATION", "")
        url = location if isinstance(location, str) else next(iter(location), "")
        self._address, path = _address_of(url)
        #: Where Redis really is, without credentials.
        self.place = self._address if isinstance(self._address, str) else ":".join(map(str, self._address))
        self._slow_by_seconds = 0.0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._gate = _bound(0)
        self._port: int = self._gate.getsockname()[1]
        self._listen()
        ours = {**caches[alias], "LOCATION": path.format(place=f"127.0.0.1:{self._port}")}
        self._override = override_settings(CACHES={**caches, alias: ours})

    def __enter__(self) -> Self:
        self._override.enable()
        return self

    def __exit__(self, *error: object) -> None:
        self._override.disable()
        self._gate.close()
        self._cut()

    def slow_down(self, seconds: float) -> None:
        """Hold each reply back for so long, from now on."""
        self._slow_by_seconds = seconds

    def shut(self) -> None:
        """Cut every connection, and refuse new ones."""
        _hang_up(self._gate)
        self._gate = _bound(self._port)  # bound, but not listening: connections are refused, and the port is kept
        self._cut()

    def open(self) -> None:
        """Let everything pass as before."""
        if self._slow_by_seconds:
            self._slow_by_seconds = 0.0
        else:
            self._listen()

    def _listen(self) -> None:
        self._gate.listen(128)
        threading.Thread(target=self._accept, args=(self._gate,), name="ratelimit_app.drill", daemon=True).start()

    def _accept(self, gate: socket.socket) -> None:
        while True:
            try:
                here, _ = gate.accept()
            except OSError:
                return
            try:
                there = _connected(self._address)
            except OSError:
                here.close()
                continue
            with self._lock:
                self._open |= {here, there}
            for source, target, is_reply in ((here, there, False), (there, here, True)):
                threading.Thread(target=self._pass_on, args=(source, target, is_reply), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if is_reply and self._slow_by_seconds:
                    time.sleep(self._slow_by_seconds)
                target.sendall(data)
        with self._lock:
            self._open -= {source, target}
        _hang_up(source)
        _hang_up(target)

    def _cut(self) -> None:
        with self._lock:
            cut, self._open = self._open, set()
        for connection in cut:
            _hang_up(connection)


def _address_of(url: str) -> tuple[str | tuple[str, int], str]:
    """Where a URL leads: a path, or host and port; and the URL with a place to fill in."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 6379
    except ValueError:
        raise NoDetour("The URL of Redis cannot be read.") from None
    credentials = parts.netloc.rpartition("@")[0].replace("{", "%7B").replace("}", "%7D")
    at = f"{credentials}@{{place}}" if credentials else "{place}"
    query = parts.query.replace("{", "%7B").replace("}", "%7D")
    if parts.scheme == "unix":
        database = parse_qs(query).get("db", ["0"])[0]
        return unquote(parts.path), f"redis://{at}/{database}"
    if parts.scheme not in ("redis", "rediss") or not host:
        raise NoDetour(
            "A drill needs one Redis server, named by a URL that begins with redis://, rediss:// or unix://. The nodes "
            "of a cluster, and what sentinels find, are reached by addresses of their own: stop one of them instead."
        )
    if parts.scheme == "rediss":  # its certificate is for the real host, and is checked otherwise
        query = "&".join(filter(None, [query, "ssl_check_hostname=false"]))
    return (host, port), urlunsplit((parts.scheme, at, parts.path, query, ""))


def _bound(port: int) -> socket.socket:
    gate = socket.socket()
    gate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    gate.bind(("127.0.0.1", port))
    return gate


def _connected(address: str | tuple[str, int]) -> socket.socket:
    if isinstance(address, tuple):
        connection = socket.create_connection(address, timeout=5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
    connection.settimeout(None)
    return connection


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
