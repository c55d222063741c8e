"""Which broker does a test publish to? The one it names, on a queue of its own: `broker = pytest.fixture(chosen)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import redis

from project.celery import app
from ratelimit_app import shipping, usage


def chosen(configure: Callable[..., None], prefix: str) -> Iterator[Callable[..., tuple[redis.Redis, str]]]:
    """`client, queue = broker(url)`: publish there from now on; without a URL, where the tests' settings say."""
    usual, queue = app.conf.broker_url, f"{prefix}-usage"
    clients: list[redis.Redis] = []

    def choose(url: str = "", **entries: Any) -> tuple[redis.Redis, str]:
        configure(QUEUE=queue, **entries)
        app.conf.update(broker_url=url or usual)
        shipping.disconnect()
        clients.append(redis.Redis.from_url(app.conf.broker_url if not url.startswith("amqp") else usual))
        return clients[-1], queue

    yield choose

    usage.reset()
    shipping.disconnect()
    if clients and app.conf.broker_url == usual:
        # What a worker would keep for ever: the names of its queues.
        clients[-1].delete(queue, f"_kombu.binding.{queue}")
    app.conf.update(broker_url=usual)
    for client in clients:
        client.close()
