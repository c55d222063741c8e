"""Does a batch reach the queue, and does a broken broker say so in time? Real brokers, really broken."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from project.celery import app
from ratelimit_app import shipping, usage
from tests import brokers, decisions
from tests.decisions import ALLOWED, CALLER

broker = pytest.fixture(brokers.chosen)

#: A refused, stalled or silent broker must say so within this. Generous: the machine may be busy.
PATIENCE_SECONDS = 3.0


@pytest.fixture
def silent_url():
    """An address that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


def batch(**tables: Any) -> dict[str, Any]:
    return {"id": str(uuid.uuid4()), **tables}


def seconds_until_not_published() -> float:
    started = time.monotonic()
    with pytest.raises(shipping.NotPublished):
        shipping.publish(batch())
    return time.monotonic() - started


# --- A broker that works -----------------------------------------------------------------------


def test_a_batch_arrives_unchanged_on_the_queue_of_the_settings(broker):
    client, queue = broker()
    sent = batch(usage=[[60, "a\N{SNOWMAN}", 1, 2, 0, 0, 0, 0]])
    shipping.publish(sent)
    assert list(decisions.queued(client, queue=queue)) == [sent]


def test_no_result_is_asked_for_and_the_message_carries_no_second_copy(broker):
    client, queue = broker()
    shipping.publish(batch(usage=[["needle"]] * 10))
    headers = json.loads(client.lpop(queue))["headers"]
    assert headers["ignore_result"] is True
    assert "needle" not in headers["argsrepr"] + headers["kwargsrepr"]


def test_the_default_queue_is_used_when_the_settings_name_none(broker, configure, redis_server):
    client, _queue = broker(redis_server().url)
    configure(QUEUE="")
    sent = batch()
    shipping.publish(sent)
    assert list(decisions.queued(client, queue=app.conf.task_default_queue)) == [sent]


def test_the_projects_own_transport_options_are_kept(broker, redis_server, monkeypatch):
    client, queue = broker(redis_server().url)
    monkeypatch.setitem(app.conf, "broker_transport_options", {"global_keyprefix": "tenant-"})
    shipping.publish(batch())
    assert client.llen(f"tenant-{queue}") == 1


# --- Brokers that do not -----------------------------------------------------------------------


def test_a_closed_port_is_noticed_at_once(broker):
    broker("redis://127.0.0.1:1/0")
    assert seconds_until_not_published() < PATIENCE_SECONDS


def test_a_broker_that_never_answers_is_given_up(broker, silent_url):
    broker(silent_url)
    assert seconds_until_not_published() < PATIENCE_SECONDS


def test_a_stalled_broker_is_given_up_on_a_warm_connection_and_on_a_cold_one(broker, redis_server):
    server = redis_server()
    client, queue = broker(server.url)
    shipping.publish(batch())
    server.pause()
    assert seconds_until_not_published() < PATIENCE_SECONDS
    assert seconds_until_not_published() < PATIENCE_SECONDS
    server.resume()
    shipping.publish(last := batch())
    assert last in list(decisions.queued(client, queue=queue))


def test_a_restarted_broker_is_found_again(broker, redis_server):
    server = redis_server()
    client, queue = broker(server.url)
    shipping.publish(batch())
    server.restart()
    try:
        shipping.publish(sent := batch())
    except shipping.NotPublished:  # the old connection, perhaps
        shipping.publish(sent := batch())
    assert sent in list(decisions.queued(client, queue=queue))


def test_a_full_broker_is_not_mistaken_for_a_confirmed_one(broker, redis_server):
    server = redis_server()
    client, _queue = broker(server.url)
    shipping.publish(batch())
    client.config_set("maxmemory", "1")
    assert seconds_until_not_published() < PATIENCE_SECONDS
    client.config_set("maxmemory", "0")
    shipping.publish(batch())


def test_a_project_without_a_celery_app_is_told_so(broker):
    broker()
    invented = Celery("default")  # takes the place that the project's app had in this thread
    try:
        with pytest.raises(shipping.NotPublished, match="no Celery app"):
            shipping.publish(batch())
    finally:
        app.set_current()
        invented.close()


def test_nothing_is_sent_where_tasks_run_eagerly(broker, monkeypatch):
    client, queue = broker()
    monkeypatch.setitem(app.conf, "task_always_eager", True)
    with pytest.raises(shipping.NotPublished, match="task_always_eager"):
        shipping.publish(batch())
    assert client.llen(queue) == 0


# --- The flush thread and a broken broker (case C28) -------------------------------------------


def record_many(number: int) -> float:
    """Record, a few at a time. Returns the 99th percentile of what one cost, in seconds."""
    took = []
    for step in range(number):
        started = time.perf_counter()
        usage.record(ALLOWED, decisions.caller(step % 10 + 1), route="items", method="GET", seconds=0.0)
        took.append(time.perf_counter() - started)
        if step % 50 == 0:
            time.sleep(0.001)
    return sorted(took)[int(number * 0.99) - 1]


def test_c28_nothing_is_lost_at_a_closed_port_and_all_flows_again_when_the_broker_is_back(
    broker, redis_server, wait_until
):
    server = redis_server()
    client, queue = broker(server.url)
    server.stop()
    assert record_many(2_000) < 0.005
    wait_until(lambda: usage.state().failures or usage.flush(0.01))
    server.start()
    assert record_many(500) < 0.005
    assert usage.flush(20)
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 2_500}
    assert usage.state().failures == 0


def test_c28_nothing_is_lost_in_front_of_a_broker_that_never_answers(broker, silent_url, redis_server, wait_until):
    broker(silent_url, COUNTS_FLUSH_SECONDS=0.05)
    assert record_many(2_000) < 0.005
    wait_until(lambda: usage.state().failures)
    held = usage.state()
    assert held.batches
    assert held.dropped == {}
    client, queue = broker(redis_server().url)
    assert usage.flush(20)
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 2_000}


def test_c28_a_stalled_broker_gets_each_batch_again_under_the_same_id(broker, redis_server, wait_until):
    server = redis_server()
    client, queue = broker(server.url, COUNTS_FLUSH_SECONDS=0.05)
    usage.record(ALLOWED, CALLER, seconds=0.0)
    assert usage.flush(20)
    server.pause()
    assert record_many(2_000) < 0.005
    wait_until(lambda: usage.state().failures >= 2)
    server.resume()
    assert usage.flush(20)
    delivered = list(decisions.queued(client, queue=queue))
    by_id = {delivery["id"]: delivery for delivery in delivered}
    assert all(by_id[delivery["id"]] == delivery for delivery in delivered)
    assert decisions.totals(by_id.values()) == {"allowed": 2_001}


def test_refusals_leave_without_being_asked_to(broker, wait_until: Callable[..., None]):
    client, queue = broker()
    usage.record(decisions.refused(), CALLER, seconds=0.0)
    wait_until(lambda: client.llen(queue))
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"refused": 1}
