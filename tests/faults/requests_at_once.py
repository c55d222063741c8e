"""Who sends the requests? Threads as gunicorn's, or coroutines of one event loop; several at once, over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple, Self

from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client

#: Requests that are on their way at the same time.
AT_ONCE = 8


class Answer(NamedTuple):
    key: str
    status: int
    #: Whether it carries rate headers: only what Redis decided does.
    is_exact: bool
    seconds: float


class Threads:
    """A pool of threads; each request is answered by a DRF view or a plain one."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="request")
        self._paths = itertools.cycle(["/plain/ping/", "/api/ping/"])

    def __enter__(self) -> Self:
        self.everybody_works()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def everybody_works(self) -> None:
        """Start every thread of the pool, so that none of them is taken for a leak later."""
        barrier = threading.Barrier(AT_ONCE)
        for started in [self._pool.submit(barrier.wait) for _ in range(AT_ONCE)]:
            started.result(60)

    def send(self, keys: Sequence[str]) -> list[Answer]:
        """One request for each key."""
        return list(self._pool.map(self._send, keys, itertools.islice(self._paths, len(keys)), timeout=120))

    def _send(self, key: str, path: str) -> Answer:
        began = time.monotonic()
        try:
            answer = Client(raise_request_exception=False).get(path, headers={"Authorization": f"Bearer {key}"})
        finally:
            connections.close_all()
        return _noted(key, answer, began)


class EventLoop:
    """One event loop; each request is answered by an async view."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        self._runner.run(sync_to_async(connections.close_all)())  # asgiref's thread is started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.run(sync_to_async(connections.close_all)())
        self._runner.__exit__(kind, error, traceback)

    def send(self, keys: Sequence[str]) -> list[Answer]:
        """One request for each key."""
        return self._runner.run(self._send_all(keys))

    async def _send_all(self, keys: Sequence[str]) -> list[Answer]:
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.timeout(120):
            return await asyncio.gather(*(self._send(key, turns) for key in keys))

    async def _send(self, key: str, turns: asyncio.Semaphore) -> Answer:
        async with turns:
            began = time.monotonic()
            client = AsyncClient(raise_request_exception=False)
            return _noted(key, await client.get("/async/ping/", headers={"Authorization": f"Bearer {key}"}), began)


def _noted(key: str, answer: Any, began: float) -> Answer:
    return Answer(key, answer.status_code, "X-RateLimit-Remaining" in answer, time.monotonic() - began)
