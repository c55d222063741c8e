"""How are Redis and the queue of this deployment? What the package cannot know: it is asked for the operations page."""

from __future__ import annotations

from dataclasses import dataclass

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from ratelimit_app.connections import ClusterURL

#: The page waits no longer than this for each server.
TIMEOUT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RedisHealth:
    """The server that holds the buckets."""

    version: str
    memory_bytes: int
    clients: int
    uptime_seconds: int
    #: What Redis does when its memory is full; anything but "noeviction" hands exhausted callers a full bucket.
    eviction_policy: str
    evicted_keys: int

    @property
    def evicts(self) -> bool:
        return self.eviction_policy != "noeviction"


@dataclass(frozen=True, slots=True)
class Health:
    #: None when it does not answer; `redis_problem` says why.
    redis: RedisHealth | None
    redis_problem: str
    #: Batches of usage that no worker has taken yet; None when nobody can tell.
    queue_depth: int | None
    queue_problem: str


def look() -> Health:
    """Ask both servers. Takes at most about four timeouts, and never raises for a server that is down."""
    server, redis_problem, depth, queue_problem = None, "", None, ""
    try:
        server = _redis()
    except redis.RedisError as failure:
        redis_problem = str(failure)
    if settings.BROKER_URL.startswith(("redis://", "rediss://")):
        try:
            depth = _queue_depth()
        except redis.RedisError as failure:
            queue_problem = str(failure)
    else:
        queue_problem = "The broker is not Redis: look at its own tools."
    return Health(server, redis_problem, depth, queue_problem)


def _redis() -> RedisHealth:
    """The server, or the nodes of a cluster that `REDIS_URL` lists, added up."""
    cluster = ClusterURL.parse(settings.REDIS_URL)
    urls = [settings.REDIS_URL] if cluster is None else [cluster.of_node(node) for node in cluster.seeds]
    infos = []
    for url in urls:
        with _connect(url) as client:
            infos.append(client.info())
    first = infos[0]
    return RedisHealth(
        version=f"{first.get('server_name', 'redis')} {first.get('valkey_version', first['redis_version'])}",
        memory_bytes=sum(info["used_memory"] for info in infos),
        clients=sum(info["connected_clients"] for info in infos),
        uptime_seconds=min(info["uptime_in_seconds"] for info in infos),
        eviction_policy=max((info["maxmemory_policy"] for info in infos), key=lambda policy: policy != "noeviction"),
        evicted_keys=sum(info["evicted_keys"] for info in infos),
    )


def _queue_depth() -> int:
    with _connect(settings.BROKER_URL) as client:
        return int(client.llen(settings.CELERY_TASK_DEFAULT_QUEUE))


def _connect(url: str) -> redis.Redis:
    client: redis.Redis = redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return client
