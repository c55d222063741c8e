"""How do tests see usage through to the database? Workers in processes of their own, and what they stored."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.db.models import Sum

from project.celery import app
from project.demo import processes
from ratelimit_app import usage
from ratelimit_app.models import Batch, UsageMinute
from tests import decisions
from tests.decisions import ALLOWED


class Worker:
    """A Celery worker in processes of its own, on the queue of the test."""

    def __init__(self, environment: dict[str, str], *, queue: str, log_path: Path, processes_at_work: int = 1) -> None:
        self.log_path = log_path
        options = (
            f"--concurrency {processes_at_work} --loglevel INFO --without-mingle --without-gossip --without-heartbeat"
        )
        self.process = processes.start(
            [*(sys.executable, "-m", "celery", "--app", "tests.celery_app", "worker"), "-Q", queue, *options.split()],
            log_path=log_path,
            environment=environment,
            directory=Path(__file__).parent.parent,
        )

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """As a power cut would."""
        processes.signal_group(self.process, signal.SIGKILL)
        self.process.wait()

    def child_pids(self) -> list[int]:
        """The processes that run the tasks."""
        return [pid for stats in self._inspect("stats") for pid in stats["pool"]["processes"]]

    def is_busy(self) -> bool:
        """Whether a child process has begun a task."""
        return any(self._inspect("active"))

    def _inspect(self, what: str) -> Iterable[Any]:
        with app.connection_for_write() as connection:
            answers = getattr(app.control.inspect(timeout=5, limit=1, connection=connection), what)()
        return (answers or {}).values()

    def stop(self) -> None:
        processes.stop(self.process)


@contextmanager
def no_batch_can_be_written() -> Iterator[None]:
    """Hold the lock that every batch needs: a task waits in the middle of its work."""
    with transaction.atomic():  # on SQLite this takes the one lock there is
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {Batch._meta.db_table} IN EXCLUSIVE MODE")
        yield


def stored() -> Counter[str]:
    sums = UsageMinute.objects.aggregate(**{outcome: Sum(outcome, default=0) for outcome in decisions.OUTCOMES})
    return +Counter(sums)


def record_from_threads(threads: int, *, each: int) -> Counter[str]:
    """Half of it refused, a sixth unchecked. Returns what was recorded."""
    cycle = (ALLOWED, decisions.refused, decisions.UNCHECKED, decisions.refused, ALLOWED, decisions.refused)

    def work() -> None:
        for number in range(each):
            made = cycle[number % 6]
            decision = made() if callable(made) else made
            usage.record(decision, decisions.caller(number % 10 + 1), route="items", method="GET", seconds=0.001)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return Counter(allowed=threads * each // 3, refused=threads * each // 2, unchecked=threads * each // 6)
