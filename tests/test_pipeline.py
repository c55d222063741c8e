"""Does every decision arrive in the database, once? Real processes, a real broker and worker, really killed."""

from __future__ import annotations

import os
import random
import re
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from django.db.models import Sum

from project.celery import app
from ratelimit_app import recording, shipping, usage
from ratelimit_app.models import Batch, Refusal, RefusalMinute, SetAside, UsageMinute
from ratelimit_app.resolutions import DECISIONS, PLANS, REFUSALS, USAGE
from tests import brokers, statistics
from tests.decisions import ALLOWED, CALLER, LIMIT
from tests.workers import Worker, no_batch_can_be_written, record_from_threads, stored

pytestmark = pytest.mark.timeout(120)

broker = pytest.fixture(brokers.chosen)


@pytest.fixture
def pipeline(broker, redis_server, process_environment, tmp_path) -> Iterator[Callable[[], Worker]]:
    """`start_worker = pipeline`: a private broker, and workers that write to the database of this test."""
    server = redis_server()
    _client, queue = broker(server.url)
    workers: list[Worker] = []

    def start(*, visibility_seconds: int = 2, processes_at_work: int = 1) -> Worker:
        environment = {
            **process_environment,
            "BROKER_URL": server.url,
            "TEST_VISIBILITY_SECONDS": str(visibility_seconds),
        }
        log_path = tmp_path / f"worker-{len(workers)}.log"
        workers.append(Worker(environment, queue=queue, log_path=log_path, processes_at_work=processes_at_work))
        return workers[-1]

    start.server = server  # type: ignore[attr-defined]
    start.client, start.queue = _client, queue  # type: ignore[attr-defined]

    yield start

    for worker in workers:
        worker.stop()


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


@pytest.mark.postgresql
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_four_processes_that_write_the_same_rows_at_once_count_exactly(pipeline, wait_until):
    """Every batch twice, callers and totals all the same, minutes that are rolled up and deleted meanwhile."""
    now = int(time.time()) // 60 * 60
    minutes = [now - ago for ago in (0, 60, 7200, 90_000, 400_000)]
    callers, batches = [f"caller-{number}" for number in range(40)], 60
    for number in range(batches):
        shuffled = random.Random(number).sample(callers, len(callers))
        batch = {
            "id": str(uuid.uuid4()),
            "usage": [[minute, caller, 1, 3, 2, 0, 1, 0, 0] for caller in shuffled for minute in minutes],
            "refusals": [[minute, caller, 7, "items", 2, 0] for caller in shuffled for minute in minutes],
            "decisions": [[minute, 500, 5] for minute in minutes],
            "key_uses": [[place, now] for place in range(40)],
        }
        for _ in range(2):
            shipping.publish(batch)
        if number % 6 == 0:
            app.send_task(
                ("ratelimit_app.tasks.roll_up", "ratelimit_app.tasks.prune")[number % 12 // 6], queue=pipeline.queue
            )
    worker = pipeline(processes_at_work=4)
    wait_until(lambda: Batch.objects.count() == batches and not pipeline.client.hlen("unacked"), seconds=400)
    wait_until(lambda: not pipeline.client.llen(pipeline.queue), seconds=100)

    recording.prune()
    expected = batches * len(callers) * len(minutes)
    for fact, column, each in ((USAGE, "allowed", 3), (PLANS, "refused", 2), (REFUSALS, "refused", 2)):
        assert statistics.total(fact, column) == expected * each
    assert statistics.total(DECISIONS, "decisions") == batches * len(minutes) * 5
    assert not SetAside.objects.exists()
    assert len({pid for pid in re.findall(r"ForkPoolWorker-(\d+)", worker.log())}) == 4
    for word in ("Traceback", "deadlock", "IntegrityError"):
        assert word not in worker.log()
