"""Is Redis worth asking right now? Answered from memory; finding out again is never a request's work.

A few failures in a row open the breaker: from then on no request of this process makes a Redis
call. A thread probes in the background, one probe at a time, and the first that is answered closes
it. A single failure between successes changes nothing.

In a cluster each node has failures, probes and a state of its own; the others go on being asked.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable

from ratelimit_app import connections, usage
from ratelimit_app.limits import Decision

logger = logging.getLogger("ratelimit_app")

FAILURES_IN_A_ROW = 3
#: The first pause before a probe; it doubles with each that fails, up to the longest.
FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 1.0
#: Failures of one bucket, one name or one slot: they say nothing about the server.
_OF_ONE_BUCKET = ("wrongtype", "encode", "crossslot", "tryagain", "ask", "uncovered")

#: What is raised while a breaker is open.
Open = connections.NotAsked


class Breaker:
    """The breaker of one process."""

    def __init__(self, *, probe: Callable[[str], None], on_recovery: Callable[[], None] = lambda: None) -> None:
        """`probe` raises Unavailable while a node cannot decide: it writes, for a full server still reads.

        A node is named as in `Unavailable.node`: "" is the one server, or all of them.
        """
        #: Why it opened last, and when (seconds since 1970).
        self.reason = ""
        self.opened_at = 0.0
        self.pid = os.getpid()
        self._probe = probe
        self._on_recovery = on_recovery
        #: How often each node failed since it last decided.
        self._failures: dict[str, int] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        connections.shunned.clear()  # a forked child finds out for itself

    @property
    def is_open(self) -> bool:
        """Whether any node is not asked."""
        return bool(connections.shunned)

    def demand_closed(self) -> None:
        """Raise Open while Redis should not be asked at all; single nodes are left out where they would be asked."""
        if connections.shunned and "" in connections.shunned:
            raise Open(connections.shunned[""])

    def succeeded(self, decision: Decision) -> None:
        """Redis decided."""
        if self._failures:
            for weighed in decision.weighed:
                self._failures.pop(connections.node_of(weighed.bucket), None)

    def failed(self, failure: connections.Unavailable) -> None:
        """Redis could not decide."""
        for each in failure.each:
            if not isinstance(each, Open) and each.reason not in _OF_ONE_BUCKET:
                self._count(each)

    def stop(self) -> None:
        """End the probing, and ask every node; for tests."""
        self._stopped.set()
        for thread in list(self._threads.values()):
            thread.join(2.0)
        connections.shunned.clear()

    def _count(self, failure: connections.Unavailable) -> None:
        node = failure.node
        with self._lock:
            self._failures[node] = self._failures.get(node, 0) + 1
            if node in connections.shunned or self._failures[node] < FAILURES_IN_A_ROW:
                return
            opened_at = self.opened_at = time.time()
            self.reason = connections.shunned[node] = failure.reason
            del self._failures[node]
        thread = threading.Thread(
            target=self._probe_until_answered, args=(node, opened_at), name="ratelimit_app.breaker", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: nothing would close it again; the next failures try anew
            connections.shunned.pop(node, None)
            return
        self._threads[node] = thread
        logger.error("%s is not asked any more until it answers a probe: %s", _called(node), str(failure))
        usage.note_outage(node, since=opened_at, reason=failure.reason)

    def _probe_until_answered(self, node: str, opened_at: float) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped.wait(pause * random.uniform(0.9, 1.0)):  # noqa: S311 - spreads the probes of a fleet
            try:
                self._probe(node)
                self._on_recovery()
            except Exception as failure:  # whatever it is: without this thread nothing would close the breaker
                if self._stopped.is_set():
                    return
                self.reason = connections.shunned[node] = getattr(failure, "reason", type(failure).__name__)
                usage.note_outage(node, since=opened_at, reason=self.reason)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
                continue
            self._failures.pop(node, None)
            connections.shunned.pop(node, None)
            usage.end_outage(node, since=opened_at)
            logger.warning("%s decides again, after %.1f s.", _called(node), time.time() - opened_at)
            return


def _called(node: str) -> str:
    return f"Node {node}" if node else "Redis"
