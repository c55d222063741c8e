"""How does a batch of usage reach the queue? By task name, over a connection and with timeouts of its own.

A project's own broker settings may wait for seconds, or for ever; these give up after about three
timeouts. Even so `publish` belongs off the request path: only the flush thread calls it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.app import app_or_default
from kombu import Producer

from ratelimit_app import conf

TASK = "ratelimit_app.tasks.record_usage"
TIMEOUT_SECONDS = 0.5
#: The longest that a worker holds on to a batch that the database does not take, before it tries again.
LONGEST_PAUSE_SECONDS = 60

#: By the broker library's own name: what it needs to give up in time, and to say so when it did.
_TRANSPORT_OPTIONS: dict[str, dict[str, Any]] = {
    "redis": {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS, "max_retries": 0},
    # Without confirms a stalled or full RabbitMQ takes messages and loses them; without the read
    # timeout closing the channel waits for ever.
    "amqp": {
        "confirm_publish": True,
        "read_timeout": TIMEOUT_SECONDS,
        "write_timeout": TIMEOUT_SECONDS,
        "max_retries": 0,
    },
}

# Per thread, since a broker connection is for one thread alone; a fork starts without one too,
# because its flush thread is a new thread.
_local = threading.local()


class NotPublished(Exception):
    """The broker did not confirm the batch. It may have arrived all the same: send it again with the same id."""


def publish(batch: Mapping[str, Any]) -> None:
    """Put one batch on the queue. Raises `NotPublished`, after about 1.5 s at most."""
    try:
        app = app_or_default()
        _refuse_to_guess(app)
        app.send_task(
            TASK,
            kwargs={"batch": batch},
            producer=_producer(app),
            queue=conf.current().queue or None,
            retry=False,
            confirm_timeout=TIMEOUT_SECONDS,
            ignore_result=True,
            add_to_parent=False,
            # Celery would otherwise spend more on a readable copy than on the message.
            argsrepr="()",
            kwargsrepr=f"{{'batch': {batch.get('id')!r}}}",
        )
    except NotPublished:
        raise
    except Exception as error:
        # What can fail is an open set (kombu, amqp, redis, ssl, missing modules, signal handlers
        # of other apps) and every member of it means the same here.
        disconnect()
        raise NotPublished(f"{type(error).__name__}: {error}") from error


def redelivers_after_seconds() -> float | None:
    """After how long a broker in Redis gives another worker what one has not finished; None for other brokers."""
    app = app_or_default()
    if not str(app.conf.broker_url or "").startswith(("redis", "sentinel")):
        return None
    return float((app.conf.broker_transport_options or {}).get("visibility_timeout", 3600))


def disconnect() -> None:
    """Drop this thread's connection; the next batch opens another one."""
    producer: Producer | None = getattr(_local, "producer", None)
    _local.producer = _local.app = None
    if producer is not None:
        _local.connection.release()


def _refuse_to_guess(app: Celery) -> None:
    # Where a project has no app, Celery invents one that talks to a RabbitMQ on this machine.
    if app.main == "default" and not app.conf.broker_url:
        raise NotPublished("no Celery app is configured")
    if app.conf.task_always_eager:
        raise NotPublished("task_always_eager is on, and usage is only counted by a worker")


def _producer(app: Celery) -> Producer:
    producer: Producer | None = getattr(_local, "producer", None)
    if producer is None or _local.app is not app:
        disconnect()
        connection = app.connection_for_write(connect_timeout=TIMEOUT_SECONDS)
        options = {
            **(connection.transport_options or {}),
            **_TRANSPORT_OPTIONS.get(connection.transport.driver_type, {}),
        }
        _local.connection = connection.clone(transport_options=options)
        producer = app.amqp.Producer(_local.connection, auto_declare=False)
        _local.producer, _local.app = producer, app
    return producer
