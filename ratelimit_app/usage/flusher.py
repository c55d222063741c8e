"""How do records leave the process without a request noticing? By one thread, which counts and ships them.

Rows with a refusal leave every `FLUSH_SECONDS`, all others every `COUNTS_FLUSH_SECONDS`. A batch is
sent unchanged, with its id, until the broker confirms it. No other is made before that: what is
counted meanwhile can still be added up, so a broker that is away for long costs `BUFFER_SIZE` rows.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections import deque
from dataclasses import dataclass

from ratelimit_app import conf, shipping
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.usage.outages import Outages
from ratelimit_app.usage.tally import Batch, Tally

logger = logging.getLogger("ratelimit_app")

_LONGEST_PAUSE_SECONDS = 4.0
_SECONDS_BETWEEN_STARTS = 1.0
#: Records counted while the lock is held once: by the flush thread, and by a request that helps out.
_RECORDS_AT_ONCE = 256
_RECORDS_HELPED_WITH = 8

Record = tuple[Decision, Caller, str, str, float, float]


@dataclass(frozen=True, slots=True)
class BufferState:
    """What a process still holds, and what it could not keep."""

    #: Decisions that are recorded but not counted yet.
    records: int
    #: Rows and refusals in full that are in no batch yet.
    rows: int
    #: Batches that the broker has not confirmed yet.
    batches: int
    #: What was dropped since the process began, by kind; see `tally.Tally.dropped`.
    dropped: dict[str, int]
    #: Attempts to send a batch that failed, since the last that did not.
    failures: int
    #: Why the last attempt failed; "" when it did not.
    last_error: str


class Flusher:
    """The records of one process, and the thread that takes them away."""

    def __init__(self) -> None:
        settings = conf.current()
        self.size = settings.buffer_size
        #: What requests append to.
        self.records: deque[Record] = deque()
        self.outages = Outages()
        #: Set by `flush` for each that waits until all is shipped.
        self.waiting: set[threading.Event] = set()
        self.wake = threading.Event()
        self.running = False
        self.stopped = False
        self._starting = threading.Lock()
        self._next_start = 0.0
        self._counting = threading.Lock()
        self._tally = Tally(self.size)
        # A step of this counter is atomic, which `+= 1` is not.
        self._overrun = itertools.count()
        self._overrun_noticed = 0
        self._batches: deque[Batch] = deque()
        self._failures = 0
        self._last_error = ""
        self._next_attempt = 0.0
        # Processes that started together should not ship together.
        self._next_counts = time.monotonic() + random.random() * settings.counts_flush_seconds  # noqa: S311

    def relieve(self) -> bool:
        """Count a few records in the request itself, since the thread is behind. Returns whether one more fits."""
        if self._counting.acquire(blocking=False):
            try:
                self._count(_RECORDS_HELPED_WITH)
            finally:
                self._counting.release()
        elif len(self.records) >= 10 * self.size:
            next(self._overrun)
            return False
        return True

    def start(self) -> None:
        """Start the thread, unless another caller is about to, or it has only just died."""
        if time.monotonic() < self._next_start or not self._starting.acquire(blocking=False):
            return
        try:
            if not self.running and not self.stopped:
                self.running = True
                self._next_start = time.monotonic() + _SECONDS_BETWEEN_STARTS
                threading.Thread(target=self._run, name="ratelimit_app usage", daemon=True).start()
        except RuntimeError:  # no thread to be had, or the interpreter is ending; the next record tries again
            self.running = False
        finally:
            self._starting.release()

    def state(self) -> BufferState:
        with self._counting:
            self._notice_overrun()
            return BufferState(
                records=len(self.records),
                rows=len(self._tally.rows) + len(self._tally.samples),
                batches=len(self._batches),
                dropped=dict(self._tally.dropped),
                failures=self._failures,
                last_error=self._last_error,
            )

    def _run(self) -> None:
        try:
            while not self.stopped:
                self.wake.wait(0.1 if self.waiting else conf.current().flush_seconds)
                self.wake.clear()
                self._cycle()
        finally:
            self.running = False
            shipping.disconnect()

    def _cycle(self) -> None:
        settings, waiting = conf.current(), self.waiting.copy()
        self.size = self._tally.size = settings.buffer_size
        for _ in range(len(self.records) // _RECORDS_AT_ONCE + 1):
            with self._counting:
                self._count(_RECORDS_AT_ONCE)
        now = time.monotonic()
        if now < self._next_attempt and not waiting:
            return
        self._ship()
        if self._batches:
            return
        with self._counting:
            self._notice_overrun()
            everything = bool(waiting) or now >= self._next_counts or 2 * len(self._tally.rows) >= self.size
            spans = self.outages.freeze(everything=everything)
            self._batches.extend(self._tally.freeze(everything=everything, outages=spans))
        if everything:
            self._next_counts = now + settings.counts_flush_seconds
        self._ship()
        if not self._batches:
            for shipped in waiting:
                shipped.set()

    def _ship(self) -> None:
        while self._batches and not self.stopped:
            try:
                shipping.publish(self._batches[0])
            except shipping.NotPublished as error:
                if not self._failures:
                    logger.warning("Usage cannot be sent to the queue and is kept for later: %s", error)
                self._failures, self._last_error = self._failures + 1, str(error)
                pause = min(_LONGEST_PAUSE_SECONDS, conf.current().flush_seconds * 2 ** min(self._failures, 10))
                self._next_attempt = time.monotonic() + pause * random.uniform(0.7, 1.0)  # noqa: S311
                return
            self._batches.popleft()
            if self._failures:
                logger.warning("Usage reaches the queue again, after %d failed attempts.", self._failures)
                self._failures, self._last_error, self._next_attempt = 0, "", 0.0

    def _count(self, most: int) -> None:
        for _ in range(most):
            try:
                record = self.records.popleft()
            except IndexError:
                return
            self._tally.count(*record)

    def _notice_overrun(self) -> None:
        new = next(self._overrun) - self._overrun_noticed
        self._overrun_noticed += new + 1  # looking was a step as well
        if new:
            self._tally.drop("usage", new)
