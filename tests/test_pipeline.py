"""Does every decision arrive in the database, once? Real processes, a real broker and worker, really killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Sum

from project.celery import app
from project.demo import processes
from ratelimit_app import usage
from ratelimit_app.models import Batch, Refusal, RefusalMinute, SetAside, UsageMinute
from tests import brokers, decisions
from tests.decisions import ALLOWED, CALLER, LIMIT

pytestmark = pytest.mark.timeout(120)

broker = pytest.fixture(brokers.chosen)


class Worker:
    """A Celery worker in processes of its own, on the queue of the test."""

    def __init__(self, environment: dict[str, str], *, queue: str, log_path: Path) -> None:
        self.log_path = log_path
        options = "--concurrency 1 --loglevel INFO --without-mingle --without-gossip --without-heartbeat"
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


@pytest.fixture
def pipeline(broker, redis_server, process_environment, tmp_path) -> Iterator[Callable[[], Worker]]:
    """`start_worker = pipeline`: a private broker, and workers that write to the database of this test."""
    server = redis_server()
    _client, queue = broker(server.url)
    workers: list[Worker] = []

    def start(*, visibility_seconds: int = 2) -> Worker:
        environment = {
            **process_environment,
            "BROKER_URL": server.url,
            "TEST_VISIBILITY_SECONDS": str(visibility_seconds),
        }
        workers.append(Worker(environment, queue=queue, log_path=tmp_path / f"worker-{len(workers)}.log"))
        return workers[-1]

    start.server = server  # type: ignore[attr-defined]
    start.client, start.queue = _client, queue  # type: ignore[attr-defined]

    yield start

    for worker in workers:
        worker.stop()


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


@pytest.mark.django_db(transaction=True)
def test_what_threads_record_arrives_through_a_worker_to_the_last_one(pipeline, wait_until):
    worker = pipeline()
    recorded: Counter[str] = Counter()
    for _ in range(3):
        recorded += record_from_threads(4, each=600)
        assert usage.flush(20)
    wait_until(lambda: stored() == recorded, seconds=40)
    assert RefusalMinute.objects.aggregate(Sum("refused"))["refused__sum"] == recorded["refused"]
    refusals = RefusalMinute.objects.filter(refused__gt=0)
    assert set(refusals.values_list("limit_id", "route")) == {(LIMIT.id, "items")}
    assert 0 < Refusal.objects.count() <= recorded["refused"]
    assert not SetAside.objects.exists()
    assert "Traceback" not in worker.log()


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_in_the_middle_of_a_batch_neither_loses_nor_doubles_it(pipeline, wait_until):
    first = pipeline()
    record_from_threads(1, each=60)
    assert usage.flush(20)
    wait_until(lambda: stored()["refused"] == 30, seconds=40)
    with no_batch_can_be_written():
        record_from_threads(2, each=600)
        assert usage.flush(20)
        wait_until(lambda: pipeline.client.hlen("unacked") and not pipeline.client.llen(pipeline.queue))
        # What the worker fetched is with its child, which waits for the lock.
        first.kill()
    pipeline()
    wait_until(lambda: stored() == Counter(allowed=420, refused=630, unchecked=210), seconds=60)
    wait_until(lambda: not pipeline.client.hlen("unacked"), seconds=30)
    assert stored() == Counter(allowed=420, refused=630, unchecked=210)


@pytest.mark.django_db(transaction=True)
def test_a_killed_child_of_a_worker_neither_loses_nor_doubles_its_batch(pipeline, wait_until):
    worker = pipeline(visibility_seconds=3600)  # the broker will not notice; the worker itself must
    usage.record(ALLOWED, CALLER, seconds=0.0)
    assert usage.flush(20)
    wait_until(lambda: stored()["allowed"] == 1, seconds=40)
    pids = worker.child_pids()
    assert pids
    with no_batch_can_be_written():
        usage.record(ALLOWED, CALLER, seconds=0.0)
        assert usage.flush(20)
        wait_until(worker.is_busy, seconds=20)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: worker.log().count("received") >= 3, seconds=40)
    wait_until(lambda: stored()["allowed"] == 2, seconds=40)
    wait_until(lambda: not pipeline.client.hlen("unacked"), seconds=30)
    assert stored() == Counter(allowed=2)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_cannot_take_a_batch_delays_it(pipeline, wait_until):
    table = UsageMinute._meta.db_table
    with connection.schema_editor() as editor:
        editor.alter_db_table(UsageMinute, table, "elsewhere")
    try:
        worker = pipeline()
        usage.record(ALLOWED, CALLER, seconds=0.0)
        assert usage.flush(20)
        wait_until(lambda: "Retry in" in worker.log(), seconds=40)
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(UsageMinute, "elsewhere", table)
    wait_until(lambda: stored()["allowed"] == 1, seconds=40)


@pytest.mark.django_db(transaction=True)
def test_c28_a_broker_that_stalls_and_one_that_restarts_lose_nothing(pipeline, wait_until):
    record_from_threads(1, each=60)
    wait_until(lambda: pipeline.client.llen(pipeline.queue))
    pipeline.server.pause()
    record_from_threads(1, each=600)
    wait_until(lambda: usage.state().failures)
    pipeline.server.resume()
    assert usage.flush(20)
    pipeline()
    wait_until(lambda: stored() == Counter(allowed=220, refused=330, unchecked=110), seconds=40)
    wait_until(lambda: not pipeline.client.hlen("unacked"))
    pipeline.server.restart()
    record_from_threads(1, each=60)
    assert usage.flush(20)
    wait_until(lambda: stored() == Counter(allowed=240, refused=360, unchecked=120), seconds=60)
