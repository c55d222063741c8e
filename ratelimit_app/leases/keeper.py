"""Who gives unused tokens back? The leases of one process, and a thread that looks after them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from ratelimit_app import buckets, connections
from ratelimit_app.leases.lease import LEASE_SECONDS, Key, Lease
from ratelimit_app.limits import Caller, Decision, Limit

logger = logging.getLogger("ratelimit_app")

#: How often the thread looks for tokens that have to go back.
_SWEEP_SECONDS = LEASE_SECONDS / 4
#: Callers that a process keeps in mind; those beyond are decided in Redis.
_MOST_CALLERS = 10_000
_FORGET_AFTER_SECONDS = 1.0


class Keeper:
    """The leases of one process, and the thread that gives unused tokens back."""

    def __init__(self) -> None:
        self.leases: dict[Key, Lease] = {}
        self.stopped = False
        # Sets and deques: what is done to them here is atomic.
        self._holding: set[Lease] = set()
        self._unused: deque[tuple[Decision, int]] = deque()
        self._wake = threading.Event()
        self._is_running = False
        self._starting = threading.Lock()
        self._next_look = 0.0

    def lease_of(self, limits: tuple[Limit, ...], caller: Caller) -> Lease | None:
        """The lease of this caller on these limits; None when there are too many callers to keep in mind."""
        key = (limits, *[caller.identity(limit.per) for limit in limits])
        lease = self.leases.get(key)
        if lease is None:
            if len(self.leases) >= _MOST_CALLERS:
                return None
            lease = self.leases.setdefault(key, Lease(limits, key, watch=self.watch, put_back=self.put_back))
            self._run_on()
        return lease

    def watch(self, lease: Lease) -> None:
        self._holding.add(lease)
        self._run_on()

    def put_back(self, decision: Decision, tokens: int) -> None:
        self._unused.append((decision, tokens))
        self._run_on()

    def give_back(self, *, all_of_it: bool = False, until: float = float("inf")) -> None:
        """Give back what has to go back now. Raises connections.Unavailable; the tokens are lost then.

        In a cluster, those of nodes that answer are given back all the same.
        """
        failed: connections.Unavailable | None = None
        for lease in list(self._holding):
            holds, unused = lease.take_unused(time.monotonic(), all_of_it=all_of_it)
            if not holds:
                self._holding.discard(lease)
                if lease.take_unused(0.0)[0]:  # a new batch came in between
                    self._holding.add(lease)
            if unused:
                self._unused.append(unused)
        while self._unused and time.monotonic() < until:
            try:
                decision, tokens = self._unused.popleft()
            except IndexError:  # the thread and the exit may both be here
                break
            try:
                buckets.give_back_unused(decision, tokens=tokens)
            except connections.Unavailable as failure:
                failed = failure
                if not connections.is_cluster():
                    break
        if failed is not None:
            raise failed

    def stop(self) -> None:
        self.stopped = True
        self._wake.set()

    def _run_on(self) -> None:
        if not self._is_running and not self.stopped and self._starting.acquire(blocking=False):
            try:
                if not self._is_running:
                    threading.Thread(target=self._run, name="ratelimit_app leases", daemon=True).start()
                    self._is_running = True
            except RuntimeError:  # no thread to be had, or the interpreter is ending; the next one tries again
                pass
            finally:
                self._starting.release()
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        try:
            while not self.stopped:
                self._wake.clear()
                try:
                    self.give_back()
                except connections.Unavailable as failure:
                    self._unused.clear()  # too old to be worth anything when Redis is back
                    logger.info("Unused tokens of leases are lost: %s", str(failure))
                self._forget_idle()
                if self._holding:
                    time.sleep(_SWEEP_SECONDS)
                else:
                    self._wake.wait(_FORGET_AFTER_SECONDS if self.leases else None)
        finally:
            self._is_running = False

    def _forget_idle(self) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _FORGET_AFTER_SECONDS
            for lease in list(self.leases.values()):
                if lease.used_at < now - _FORGET_AFTER_SECONDS and lease not in self._holding:
                    self.leases.pop(lease.key, None)
