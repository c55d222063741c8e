"""Since when could this process not ask a server, and is that over? Spans, which leave with the counts.

A span is told at once when it begins and when it ends, and in between as long as it lasts, each time with the
moment at which the server was last found silent: a process that dies cannot say that its span ended.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any

from ratelimit_app.usage.tally import storable

#: Spans that are kept while the queue takes nothing; an outage has a few each process.
_SPANS = 500


@dataclass(slots=True)
class _Span:
    last_seen: float
    is_over: bool = False
    #: Whether there is something that no batch holds, and whether that can wait for the counts.
    is_new: bool = True
    is_urgent: bool = True


class Outages:
    """The spans of one process."""

    def __init__(self) -> None:
        #: Stands for this process in the rows.
        self.gateway = secrets.token_hex(6)
        # By server, beginning and reason: a server that fails in two ways has two.
        self._spans: dict[tuple[str, float, str], _Span] = {}
        self._lock = threading.Lock()

    def note(self, server: str, *, since: float, reason: str) -> None:
        """The server was just found silent, as it has been since then, in seconds since 1970."""
        with self._lock:
            span = self._spans.get((server, since, reason))
            if span is not None:
                span.last_seen, span.is_new = time.time(), True
            elif len(self._spans) < _SPANS:
                self._spans[server, since, reason] = _Span(last_seen=time.time())

    def end(self, server: str, *, since: float) -> None:
        """The server answers again."""
        with self._lock:
            for (name, began, _reason), span in self._spans.items():
                if (name, began) == (server, since):
                    span.last_seen, span.is_over = time.time(), True
                    span.is_new = span.is_urgent = True

    def freeze(self, *, everything: bool) -> list[list[Any]]:
        """Rows of what is new. Spans that are over are forgotten with it."""
        with self._lock:
            told = [key for key, span in self._spans.items() if span.is_urgent or (everything and span.is_new)]
            rows = []
            for key in told:
                (server, since, reason), span = key, self._spans[key]
                rows.append(
                    [
                        *(self.gateway, storable(server, 100), since, storable(reason, 50)),
                        *(span.last_seen, int(span.is_over)),
                    ]
                )
                span.is_new = span.is_urgent = False
                if span.is_over:
                    del self._spans[key]
            return rows
