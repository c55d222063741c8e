"""Does every decision arrive once by way of RabbitMQ, too, whatever is killed on the way?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ratelimit_app import usage
from ratelimit_app.models import SetAside
from tests import brokers
from tests.rabbitmq import RabbitServer
from tests.workers import Worker, no_batch_can_be_written, record_from_threads, stored

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(600), pytest.mark.django_db(transaction=True)]

broker = pytest.fixture(brokers.chosen)


@pytest.fixture
def rabbit(broker) -> Iterator[RabbitServer]:
    with TemporaryDirectory(prefix="ratelimit_app_rabbitmq_") as directory:
        Path(directory).chmod(0o755)  # the server enters as another user
        server = RabbitServer(Path(directory) / "node")
        try:
            broker(server.url)
            yield server
        finally:
            usage.reset()
            server.stop()


@pytest.fixture
def start_worker(rabbit, prefix, process_environment, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def start() -> Worker:
        environment = {**process_environment, "BROKER_URL": rabbit.url}
        log_path = tmp_path / f"worker-{len(workers)}.log"
        workers.append(Worker(environment, queue=f"{prefix}-usage", log_path=log_path))
        return workers[-1]

    yield start

    for worker in workers:
        worker.stop()


def test_a_worker_killed_in_the_middle_of_a_batch_neither_loses_nor_doubles_it(start_worker, wait_until):
    first = start_worker()
    record_from_threads(1, each=60)
    assert usage.flush(60)
    wait_until(lambda: stored()["refused"] == 30, seconds=120)
    with no_batch_can_be_written():
        record_from_threads(2, each=600)
        assert usage.flush(60)
        wait_until(first.is_busy, seconds=60)
        first.kill()
    start_worker()
    wait_until(lambda: stored() == Counter(allowed=420, refused=630, unchecked=210), seconds=120)
    assert not SetAside.objects.exists()


def test_a_broker_that_stalls_and_one_that_is_killed_with_batches_in_it_lose_nothing(rabbit, start_worker, wait_until):
    record_from_threads(1, each=60)
    assert usage.flush(60)
    rabbit.pause()
    record_from_threads(1, each=600)
    wait_until(lambda: usage.state().failures, seconds=60)
    rabbit.resume()
    assert usage.flush(60)
    rabbit.restart()  # nobody has fetched anything yet
    record_from_threads(1, each=60)
    assert usage.flush(60)
    start_worker()
    wait_until(lambda: stored() == Counter(allowed=240, refused=360, unchecked=120), seconds=120)
    rabbit.restart()  # with a worker connected, which comes back by itself
    record_from_threads(1, each=60)
    assert usage.flush(60)
    wait_until(lambda: stored() == Counter(allowed=260, refused=390, unchecked=130), seconds=120)
    assert set(usage.state().dropped) <= {"samples"}
