"""Does anybody gain by the move from one Redis to a cluster? The two ways that docs/operations.md describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from redis.crc import key_slot

from project.demo import processes
from ratelimit_app import buckets
from ratelimit_app.limits import Caller
from tests import clusters, stored
from tests.clusters import Cluster
from tests.outages import redis_at
from tests.servers import RedisServer
from tests.twins import ALGORITHMS, limit

pytestmark = pytest.mark.timeout(180)

LIMITS = [
    limit(algorithm, requests=10, period_seconds=36_000, burst=10, id=number)
    for number, algorithm in enumerate(ALGORITHMS, start=1)
]
CALLERS = [Caller(key_id=number, bucket_identity=f"caller-{number}") for number in range(6)]


def left() -> list[int]:
    return [
        weighed.remaining
        for caller in CALLERS
        for weighed in buckets.take(tuple(LIMITS), caller, dry=True, patience_ticks=10**12).weighed
    ]


def spend() -> None:
    for number, caller in enumerate(CALLERS, start=1):
        for each in LIMITS:
            buckets.take((each,), caller, cost=number, patience_ticks=10**12)


def names() -> Iterator[bytes]:
    return (buckets.name_of(each, caller) for caller in CALLERS for each in LIMITS)


def test_a_server_that_becomes_the_first_node_keeps_and_hands_out_its_buckets(
    redis_server: Callable[..., RedisServer], tmp_path
) -> None:
    server = redis_server()
    with redis_at(server.url):
        spend()
        before = left()
        assert max(before) < 10
        with server.client() as client:
            client.save()
        server.stop()
        server.options = ("--cluster-enabled", "yes", "--cluster-port", str(processes.free_port()))
        server.start()
        clusters.join_alone(server)
        assert left() == before  # by the old address, too
    cluster = Cluster(tmp_path, masters=0)
    try:
        other = cluster.add()
        cluster.masters = [server, other]
        clusters.meet(server, other)
        with redis_at(f"redis+cluster://127.0.0.1:{server.port}/0"):
            assert left() == before
            moved = sorted({key_slot(name) for name in names()})[::2]
            for slot in moved:
                cluster.move_slot(slot, to=other)
            assert left() == before
        assert clusters.ask(other, "DBSIZE") > 0
    finally:
        cluster.stop()


def test_buckets_that_are_copied_are_as_they_were(redis_server: Callable[..., RedisServer], tmp_path) -> None:
    server = redis_server()
    with redis_at(server.url):
        spend()
        before = left()
        assert max(before) < 10
    cluster = Cluster(tmp_path, has_replicas=False)
    try:
        # What `redis-cli --cluster import --cluster-copy --cluster-replace` does.
        for key in {stored.key(name) for name in names()}:
            target = cluster.serving(key)
            clusters.ask(server, "MIGRATE", "127.0.0.1", target.port, key, 0, 5_000, "COPY", "REPLACE")
        with redis_at(cluster.url):
            assert left() == before
            ttl = clusters.ask(cluster.serving(key), "PTTL", key)
            assert 0 < ttl <= 72_000_000
    finally:
        cluster.stop()
