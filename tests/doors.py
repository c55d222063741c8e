"""How does a test knock at every door? `@every_door` runs one body at each of them, over HTTP.

Beside the doors: a clock that a test stops and steps, and the handlers that servers call.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.test import AsyncClient, Client

from ratelimit_app import connections, denials
from ratelimit_app.buckets import questions
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND

LEGACY_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
RATE_HEADERS = (*LEGACY_HEADERS, "RateLimit-Policy", "RateLimit")


@dataclass(frozen=True)
class Door:
    """One way in: views of one kind, below one path."""

    name: str
    #: Views below it: `ping/`, and `outcome/<status>/` that ends in that status.
    path: str
    is_async: bool = False

    def send(self, key: str | None, view: str = "ping/", *, method: str = "GET", **headers: str) -> Any:
        """One request with this key; `Access_Control_Request_Method="GET"` is a header too."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent.setdefault("Authorization", f"Bearer {key}")
        return self.request(method, sent, view)

    def request(self, method: str, headers: dict[str, str], view: str = "ping/") -> Any:
        client = _client(self.is_async, tuple(settings.MIDDLEWARE))
        answer = client.generic(method, self.path + view, headers=headers)
        return _awaited(answer) if self.is_async else answer

    def drain(self, key: str, *, at_most: int = 10_000) -> int:
        """Send until refused; returns how many were served."""
        for served in range(at_most):
            if self.send(key).status_code != 200:
                return served
        raise AssertionError(f"{at_most} requests were served and none refused")


@async_to_sync
async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


@lru_cache(maxsize=16)
def _client(is_async: bool, middleware: tuple[str, ...]) -> Any:
    return (AsyncClient if is_async else Client)(raise_request_exception=False)


DRF = Door("drf", "/api/")
#: The middleware cannot read this view ahead, so `PlanThrottle` decides.
DRF_LATE = Door("drf-late", "/api/late/")
PLAIN = Door("plain", "/plain/")
ASYNC = Door("async", "/async/", is_async=True)
DOORS = (DRF, DRF_LATE, PLAIN, ASYNC)


def at(*doors: Door) -> pytest.MarkDecorator:
    """Run a test once at each of these doors."""
    return pytest.mark.parametrize("door", doors, ids=[door.name for door in doors])


every_door = at(*DOORS)


# --- What an answer says -----------------------------------------------------------------------


def statuses(answers: Sequence[Any]) -> list[int]:
    return [answer.status_code for answer in answers]


def remaining(answers: Sequence[Any]) -> list[str]:
    """As sent; "none" where the header is missing."""
    return [answer.get("X-RateLimit-Remaining", "none") for answer in answers]


def retry_after(answer: Any) -> int:
    """The header as a number; fails unless it is a whole one of at least 1."""
    text = answer.get("Retry-After", "")
    assert re.fullmatch("[1-9][0-9]*", text), f"Retry-After: {text!r}"
    return int(text)


def limits_of(answer: Any) -> list[str]:
    """The names of the limits that the answer's headers show."""
    return [part.split(";")[0].strip('" ') for part in answer.get("RateLimit", "").split(",") if part]


def problem(answer: Any) -> dict[str, Any]:
    assert answer["Content-Type"] == "application/problem+json"
    return json.loads(answer.content)


# --- Time ----------------------------------------------------------------------------


class Clock:
    """The moment at which buckets are weighed; stands still until told otherwise."""

    def __init__(self) -> None:
        self._set(int((time.time() - EPOCH_SECONDS) * TICKS_PER_SECOND))

    @property
    def seconds(self) -> float:
        """Seconds since 1970."""
        return EPOCH_SECONDS + self.ticks / TICKS_PER_SECOND

    def advance(self, seconds: float) -> None:
        """A negative number steps back."""
        self._set(self.ticks + round(seconds * TICKS_PER_SECOND))

    def _set(self, ticks: int) -> None:
        self.ticks = ticks
        # What the script is told instead of "use the server's clock": our moment, really taken, and
        # an expiry that real time does not reach.
        questions.LIVE = connections.packed(ticks, 0, 600_000)
        denials.forget()  # they last by the real clock


@contextlib.contextmanager
def stopped_clock() -> Iterator[Clock]:
    """Send the script a moment of our own, as its arguments allow; everything else is as always."""
    live = questions.LIVE
    try:
        yield Clock()
    finally:
        questions.LIVE = live
        denials.forget()


# --- Below Django's test client: what a real server hands over --------------------------------


@dataclass(frozen=True)
class RawAnswer:
    """What a handler gave back for one request."""

    status_code: int
    headers: dict[str, str]
    content: bytes

    def __getitem__(self, name: str) -> str:
        return self.headers[name.lower()]

    def get(self, name: str, default: str = "") -> str:
        return self.headers.get(name.lower(), default)


RawHeaders = Sequence[tuple[str, bytes]]


def through_wsgi(path: str, headers: RawHeaders, *, peer: str | None = None) -> RawAnswer:
    """Hand a request to the WSGI handler, with header values as bytes on the wire; `peer` is REMOTE_ADDR."""
    environ: dict[str, Any] = {"PATH_INFO": path}
    setup_testing_defaults(environ)
    if peer is not None:
        environ["REMOTE_ADDR"] = peer
    for name, value in headers:
        place, text = "HTTP_" + name.upper().replace("-", "_"), value.decode("latin-1")
        environ[place] = f"{environ[place]},{text}" if place in environ else text  # as servers join them
    started: list[Any] = []

    def start(status: str, found: Any, *_: Any) -> Callable[[bytes], object]:
        started.append((status, found))
        return started.append

    response: Any = WSGIHandler()(environ, start)
    content = b"".join(response)
    response.close()
    [(status, found)] = started
    return RawAnswer(int(status.split()[0]), {name.lower(): value for name, value in found}, content)


@async_to_sync
async def through_asgi(path: str, headers: RawHeaders, *, peer: str | None = None) -> RawAnswer:
    """The same for the ASGI handler; `peer` is the client's address."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value) for name, value in headers],
        "client": None if peer is None else (peer, 1234),
    }
    server = ApplicationCommunicator(ASGIHandler(), scope)
    await server.send_input({"type": "http.request", "body": b"", "more_body": False})
    start = await server.receive_output(10)
    content = b""
    while (part := await server.receive_output(10)).get("more_body"):
        content += part["body"]
    await server.wait(10)
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return RawAnswer(start["status"], found, content + part.get("body", b""))


RAW_HANDLERS = (through_wsgi, through_asgi)
by_every_handler = pytest.mark.parametrize("handler", RAW_HANDLERS, ids=["wsgi", "asgi"])
