"""What was decided, and how does it leave the process? Counted in memory, then off to the queue in batches.

    record()        one append; no I/O, no lock that a request could wait for      here
    counting        rows per minute, a sample of refusals in full                   tally
    outages         since when which server could not be asked                      outages
    shipping        one flush thread per process freezes batches and sends them    flusher

A killed process loses what it recorded since its last flush (refusals: `FLUSH_SECONDS`, the rest:
`COUNTS_FLUSH_SECONDS`). One that ends in order loses nothing, and waits 2.5 s at most for the broker.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time

from ratelimit_app.limits import Caller, Decision
from ratelimit_app.usage.flusher import BufferState, Flusher
from ratelimit_app.usage.tally import LATENCY_BOUNDS, storable

__all__ = [
    "EXIT_SECONDS",
    "LATENCY_BOUNDS",
    "BufferState",
    "end_outage",
    "flush",
    "keep_to_itself",
    "note_outage",
    "record",
    "reset",
    "state",
    "storable",
]

logger = logging.getLogger("ratelimit_app")

#: How long a process that ends waits for the broker.
EXIT_SECONDS = 2.5

#: By process id, so that a fork begins with an empty one of its own: uWSGI forks without running
#: the hooks of Python, and what the parent holds is the parent's to ship.
_flushers: dict[int, Flusher] = {}


def record(decision: Decision, caller: Caller, *, route: str = "", method: str = "", seconds: float) -> None:
    """Take note of a decision and of the `seconds` it took. About a microsecond; never waits."""
    if decision.source == "off":
        return
    flusher = _this_flusher()
    if len(flusher.records) < flusher.size or flusher.relieve():
        flusher.records.append((decision, caller, route, method, seconds, time.time()))
    if not flusher.running:
        flusher.start()


def note_outage(server: str, *, since: float, reason: str) -> None:
    """Take note that a server could not be asked since then (seconds since 1970), and still cannot; "" is the one.

    To be called when that begins and again while it lasts. Never waits for the queue.
    """
    flusher = _this_flusher()
    flusher.outages.note(server, since=since, reason=reason)
    flusher.start()


def end_outage(server: str, *, since: float) -> None:
    """Take note that a server answers again which could not be asked since then."""
    flusher = _this_flusher()
    flusher.outages.end(server, since=since)
    flusher.start()


def flush(timeout_seconds: float) -> bool:
    """Ship all that is recorded by now. Returns whether the broker confirmed it in time."""
    flusher = _flushers.get(os.getpid())
    if flusher is None:
        return True
    shipped = threading.Event()
    flusher.waiting.add(shipped)
    flusher.wake.set()
    if not flusher.running:
        flusher.start()
    try:
        return shipped.wait(timeout_seconds)
    finally:
        flusher.waiting.discard(shipped)


def keep_to_itself() -> None:
    """Ship nothing from this process any more, until `reset`: what it counts is for nobody."""
    _this_flusher().stopped = True


def state() -> BufferState:
    """What this process still holds and what it dropped, for pages and metrics."""
    return (_flushers.get(os.getpid()) or Flusher()).state()


def reset() -> None:
    """Forget all that is not shipped, and end the flush thread. For tests."""
    flusher = _flushers.pop(os.getpid(), None)
    if flusher is not None:
        flusher.stopped = True
        flusher.wake.set()


def _this_flusher() -> Flusher:
    return _flushers.get(os.getpid()) or _first_of_this_process()


def _first_of_this_process() -> Flusher:
    # Without a lock: a thread of the parent might have held it in the moment of the fork.
    pid = os.getpid()
    flusher = _flushers.setdefault(pid, Flusher())
    for other in list(_flushers):
        if other != pid:
            _flushers.pop(other, None)
    return flusher


def _flush_at_exit() -> None:
    if not flush(EXIT_SECONDS):
        logger.warning("The process ends with usage that the queue did not take: %s", state())


atexit.register(_flush_at_exit)
