"""Who sends requests during a soak? Threads with one connection each; and what were they answered?"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.soak.site import Web

PAUSE_SECONDS = 0.02
#: Whoever waits longer for an answer is said to hang.
HANG_SECONDS = 10.0
PATHS = {"gunicorn": ("/api/ping/", "/plain/ping/", "/api/items/"), "uvicorn": ("/async/ping/",)}
#: What the answer to a request may be.
EXPECTED = (200, 429, 503)


class Answer(NamedTuple):
    """What one request got."""

    at: float
    plan: str
    #: 0 when there was no answer.
    status: int
    #: Whether it carries rate headers, as what Redis decided does.
    is_exact: bool
    seconds: float
    error: str = ""


class Callers:
    """Their threads; leaving the block ends them."""

    def __init__(self, webs: Sequence[Web], keys: Mapping[str, str]) -> None:
        self.answers: deque[Answer] = deque()
        self._stopped = threading.Event()
        # Each plan's caller at each server.
        self._threads = [
            threading.Thread(target=self._call, args=(web, plan, key), name="caller")
            for web in webs
            for plan, key in keys.items()
        ]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _call(self, web: Web, plan: str, key: str) -> None:
        paths = itertools.cycle(PATHS[web.name])
        connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=HANG_SECONDS)
        while not self._stopped.wait(PAUSE_SECONDS):
            began = time.monotonic()
            try:
                connection.request("GET", next(paths), headers={"Authorization": f"Bearer {key}"})
                answer = connection.getresponse()
                answer.read()
                status, is_exact, error = answer.status, "X-RateLimit-Remaining" in answer.headers, ""
            except (OSError, http.client.HTTPException) as failure:
                status, is_exact, error = 0, False, repr(failure)
                connection.close()
            self.answers.append(Answer(began, plan, status, is_exact, time.monotonic() - began, error))
        connection.close()


class Summary(NamedTuple):
    """The answers of one span of time, in short."""

    requests: int
    by_status: Counter[int]
    slowest_ms: float
    #: Seconds from the beginning of the span to the first answer that Redis decided; None: there was none.
    exact_after_seconds: float | None


def summary(answers: Sequence[Answer], *, since: float, until: float) -> Summary:
    of_then = [answer for answer in answers if since <= answer.at < until]
    exact = [answer.at for answer in of_then if answer.is_exact]
    return Summary(
        requests=len(of_then),
        by_status=Counter(answer.status for answer in of_then),
        slowest_ms=1_000 * max((answer.seconds for answer in of_then), default=0.0),
        exact_after_seconds=min(exact) - since if exact else None,
    )
