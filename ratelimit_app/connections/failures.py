"""How did Redis fail? One word for every way it can."""

from __future__ import annotations

import asyncio

import hiredis
from django.core.exceptions import ImproperlyConfigured
from redis import exceptions


class Unavailable(Exception):
    """Redis could not decide."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{self.__doc__} ({reason}) {detail}".strip())
        #: One word: refused, timeout, noauth, loading, readonly, oom, busy, masterdown, ...
        self.reason = reason
        #: The node of a cluster that failed; "" where there is one server.
        self.node = ""

    @property
    def each(self) -> tuple[Unavailable, ...]:
        """The failures that this one stands for."""
        return (self,)


class NotAsked(Unavailable):
    """Redis is not asked while its breaker is open."""


class Redirected(Unavailable):
    """Another node holds this name."""

    def __init__(self, reason: str, detail: str) -> None:
        """`detail` is "<slot> <host>:<port>", as the server says. ValueError when it is not."""
        super().__init__(reason, detail)
        slot, address = detail.split()[:2]
        host, _colon, port = address.rpartition(":")
        self.slot, self.port = int(slot), int(port)
        #: "" means the host that said so.
        self.host = "" if host == "?" else host.strip("[]")
        #: For this one question; the name may still live where it was.
        self.is_ask = reason == "ask"


class CrossSlot(Unavailable):
    """The server is part of a cluster, and these names do not live together."""


class NoScript(Unavailable):
    """The server does not know the script."""


#: Everything that a connection may raise when Redis is not what it should be.
FAILURES = (
    exceptions.RedisError,
    exceptions.RedisClusterException,  # not a RedisError
    hiredis.ProtocolError,
    OSError,
    UnicodeError,  # a name that does not encode
    ImproperlyConfigured,  # CACHES names no such server: a system check says so, and no thread of ours may die of it
    asyncio.TimeoutError,
)
#: What a failure is called, by its class: those of redis-py, sockets and hiredis.
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.TimeoutError, "timeout"),
    (TimeoutError, "timeout"),
    (exceptions.BusyLoadingError, "loading"),
    (exceptions.AuthenticationError, "noauth"),
    (exceptions.NoPermissionError, "noauth"),
    (exceptions.ReadOnlyError, "readonly"),
    (exceptions.OutOfMemoryError, "oom"),
    (exceptions.MasterDownError, "masterdown"),
    (exceptions.ClusterDownError, "clusterdown"),
    (exceptions.RedisClusterException, "clusterdown"),
    (exceptions.TryAgainError, "tryagain"),
    (exceptions.DataError, "encode"),
    (UnicodeError, "encode"),
    (exceptions.InvalidResponse, "nonsense"),
    (hiredis.ProtocolError, "nonsense"),
    (ConnectionRefusedError, "refused"),
    (ImproperlyConfigured, "misconfigured"),
)
#: The same by a word of its text: error replies, and what redis-py has no class for.
_REASONS_BY_WORD = {
    "max number of clients": "maxclients",
    "unauthenticated": "noauth",  # a stranger's command of more than ten words is not even read
    "refused": "refused",
    "LOADING": "loading",
    "NOAUTH": "noauth",
    "WRONGPASS": "noauth",
    "NOPERM": "noauth",
    "READONLY": "readonly",
    "OOM": "oom",
    "MASTERDOWN": "masterdown",
    "CLUSTERDOWN": "clusterdown",
    "MISCONF": "misconf",
    "NOREPLICAS": "noreplicas",
    "TRYAGAIN": "tryagain",
    "WRONGTYPE": "wrongtype",
    "BUSY": "busy",
}


def named(failure: BaseException) -> Unavailable:
    """What a failure, or an error reply, is called."""
    text = str(failure)
    if isinstance(failure, exceptions.NoScriptError) or text.startswith("NOSCRIPT"):
        return NoScript("noscript")
    if isinstance(failure, exceptions.ClusterCrossSlotError) or text.startswith("CROSSSLOT"):
        return CrossSlot("crossslot", text)
    if isinstance(failure, exceptions.AskError) or text.startswith(("MOVED ", "ASK ")):
        is_moved = isinstance(failure, exceptions.MovedError) or text.startswith("MOVED ")
        try:
            return Redirected("moved" if is_moved else "ask", text.removeprefix("MOVED ").removeprefix("ASK "))
        except ValueError:
            return Unavailable("nonsense", text)
    for kind, reason in _REASONS:
        if isinstance(failure, kind) or (kind is ConnectionRefusedError and isinstance(failure.__context__, kind)):
            return Unavailable(reason, text)
    for word, reason in _REASONS_BY_WORD.items():
        if word in text:
            return Unavailable(reason, text)
    is_reply = isinstance(failure, exceptions.ResponseError | hiredis.ReplyError)
    return Unavailable("error" if is_reply else "connection", text)
