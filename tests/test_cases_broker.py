"""Does a broker that is away cost a caller anything? Case C28 from the field, at every door."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from project.celery import app
from project.demo import processes
from ratelimit_app import shipping, usage
from tests import brokers, decisions
from tests.doors import every_door, statuses
from tests.servers import RedisServer

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)

ANSWER_SECONDS = 5.0


class Nobody:
    """No server at all: connections are refused."""

    def __init__(self) -> None:
        self.port = processes.free_port()

    def leave(self) -> None:
        pass


class Silence:
    """Accepts connections, and never says a word."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", processes.free_port()), backlog=200)
        self.port = self._listener.getsockname()[1]

    def leave(self) -> None:
        self._listener.close()


@pytest.fixture(params=[Nobody, Silence], ids=["closed", "silent"])
def away(request) -> Iterator[Nobody | Silence]:
    """Where the broker should be."""
    instead = request.param()
    yield instead
    instead.leave()


@every_door
@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_c28_refusals_are_as_fast_as_ever_and_counted_when_the_broker_is_back(
    door,
    scheme,
    away,
    broker,
    make_plan,
    make_key,
    tmp_path,
    caplog,
    wait_until: Callable[..., None],
):
    broker(f"redis://127.0.0.1:{away.port}/0")
    if scheme == "amqp":
        app.conf.update(broker_url=f"amqp://guest:guest@127.0.0.1:{away.port}//")
        shipping.disconnect()
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=1))[1]
    answers, seconds = [], []
    for _ in range(51):
        started = time.perf_counter()
        answers.append(door.send(key))
        seconds.append(time.perf_counter() - started)
    assert statuses(answers) == [200] + [429] * 50
    assert max(seconds) < ANSWER_SECONDS

    wait_until(lambda: usage.state().failures, seconds=20)
    held = usage.state()
    assert held.dropped == {}
    assert held.batches or held.rows
    assert "Usage cannot be sent to the queue and is kept for later" in caplog.text

    away.leave()
    server = RedisServer(tmp_path / "broker", port=away.port if scheme == "redis" else None)
    try:
        client, queue = broker(server.url)
        assert usage.flush(20)
        assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 1, "refused": 50}
        assert usage.state().failures == 0
    finally:
        server.stop()
