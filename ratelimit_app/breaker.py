"""Is Redis worth asking right now? Answered from memory; finding out again is never a request's work.

A few failures in a row open the breaker: from then on no request of this process makes a Redis
call. A thread probes in the background, one probe at a time, and the first that is answered closes
it. A single failure between successes changes nothing.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable

from ratelimit_app import connections, usage

logger = logging.getLogger("ratelimit_app")

FAILURES_IN_A_ROW = 3
#: The first pause before a probe; it doubles with each that fails, up to the longest.
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 1.0
#: Failures of one bucket or one name: they say nothing about the server.
_OF_ONE_BUCKET = ("wrongtype", "encode", "crossslot")


class Open(connections.Unavailable):
    """Redis is not asked while its breaker is open."""


class Breaker:
    """The breaker of one process."""

    def __init__(self, *, probe: Callable[[], None], on_recovery: Callable[[], None] = lambda: None) -> None:
        """`probe` raises Unavailable while Redis cannot decide: it writes, for a full server still reads."""
        self.is_open = False
        #: Why it opened, and when (seconds since 1970).
        self.reason = ""
        self.opened_at = 0.0
        self.pid = os.getpid()
        self._probe = probe
        self._on_recovery = on_recovery
        self._failures = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def demand_closed(self) -> None:
        """Raise Open while Redis should not be asked."""
        if self.is_open:
            raise Open(self.reason)

    def succeeded(self) -> None:
        """Redis decided."""
        if self._failures:
            self._failures = 0

    def failed(self, failure: connections.Unavailable) -> None:
        """Redis could not decide."""
        if isinstance(failure, Open) or failure.reason in _OF_ONE_BUCKET:
            return
        with self._lock:
            self._failures += 1
            if self.is_open or self._failures < FAILURES_IN_A_ROW:
                return
            self.is_open, self.reason, self.opened_at = True, failure.reason, time.time()
        logger.error("Redis is not asked any more until it answers a probe: %s", str(failure))
        usage.note_outage("", since=self.opened_at, reason=self.reason)
        self._thread = threading.Thread(target=self._probe_until_answered, name="ratelimit_app.breaker", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the probing; for tests."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _probe_until_answered(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped.wait(pause * random.uniform(0.9, 1.0)):  # noqa: S311 - spreads the probes of a fleet
            try:
                self._probe()
                self._on_recovery()
            except Exception as failure:  # whatever it is: without this thread nothing would close the breaker
                self.reason = getattr(failure, "reason", type(failure).__name__)
                usage.note_outage("", since=self.opened_at, reason=self.reason)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
                continue
            self._failures = 0
            self.is_open = False
            usage.end_outage("", since=self.opened_at)
            logger.warning("Redis decides again, after %.1f s.", time.time() - self.opened_at)
            return
