"""How is a cluster guarded, and who else asks it? Passwords, rights, TLS; another process, the operations page."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from project import health
from project.demo import processes
from ratelimit_app import buckets, changes, connections, fallback
from ratelimit_app.limits import Caller
from tests import clusters
from tests.clusters import Cluster
from tests.followed_pages import section
from tests.outages import redis_at
from tests.peers import Peer, becomes
from tests.servers import RedisServer
from tests.twins import ALGORITHMS, limit

pytestmark = pytest.mark.timeout(180)

CALLERS = [Caller(key_id=number, bucket_identity=f"caller-{number}") for number in range(8)]
LIMITS = tuple(limit(algorithm, id=number) for number, algorithm in enumerate(ALGORITHMS, start=1))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), has_replicas=False)
    yield cluster
    cluster.stop()


def test_the_rights_that_the_page_lists_are_enough(cluster, prefix) -> None:
    text = section("docs/operations.md", "Redis")
    listed = text[text.index("Its user needs") :].partition("on keys")[0] + "`CLUSTER SLOTS` `ASKING`"
    commands = [name.lower().replace(" ", "|") for name in listed.split("`")[1::2]]
    rights = ["on", ">p@ss:w/rd", f"~{prefix}:*", f"&{prefix}:changed", *(f"+{name}" for name in commands)]
    for node in cluster.masters:
        clusters.ask(node, "ACL", "SETUSER", "limiter", *rights)
    with redis_at(cluster.url.replace("://", "://limiter:p%40ss%3Aw%2Frd@")):
        for caller in CALLERS:
            decision = buckets.take(LIMITS, caller, patience_ticks=10**9)
            assert decision.allowed
            assert asyncio.run(buckets.atake(LIMITS, caller)).source == "redis"
            buckets.refund(decision)
            buckets.reset(LIMITS, caller)
        fallback.beat()
        fallback.probe(f"127.0.0.1:{cluster.masters[2].port}")
        subscription = connections.Subscription(changes._channel())
        connections.command("PUBLISH", changes._channel(), "keys")
        assert subscription.wait(10)
        subscription.close()


def test_a_wrong_password_is_a_named_failure_and_never_shown(cluster) -> None:
    with redis_at(cluster.url.replace("://", "://limiter:wrong@")):
        with pytest.raises(connections.Unavailable) as failure:
            buckets.take(LIMITS, CALLERS[0])
        assert failure.value.reason == "noauth"
        assert "wrong@" not in str(failure.value)


def test_the_operations_page_adds_the_nodes_up(cluster, settings) -> None:
    settings.REDIS_URL, settings.BROKER_URL = cluster.url, "amqp://nowhere"
    found = health.look()
    assert found.redis is not None
    assert found.redis.eviction_policy == "noeviction"
    assert found.redis.memory_bytes > 0
    settings.REDIS_URL = "redis+cluster://127.0.0.1:1/0"
    assert health.look().redis is None


@pytest.mark.django_db(transaction=True)
def test_an_edit_reaches_another_process_by_a_message_through_the_cluster(
    cluster, process_environment, make_plan, make_key, prefix, wait_until
) -> None:
    environment = {**process_environment, "REDIS_URL": cluster.url, "BROKER_URL": process_environment["REDIS_URL"]}
    plan = make_plan(burst=3)
    with Peer(environment, POLL_SECONDS=30.0) as peer, redis_at(cluster.url):
        assert peer.bursts() == [3]
        wait_until(lambda: any(is_listening(node, f"{prefix}:changed") for node in cluster.masters))
        plan.limits.update(burst=7)
        assert becomes(peer.bursts, [7], seconds=10)


def is_listening(node: RedisServer, channel: str) -> bool:
    return bool(clusters.ask(node, "PUBSUB", "NUMSUB", channel)[1])


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A key, and a certificate of this machine that vouches for itself."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return key, certificate


# The embedded server was built without TLS.
@pytest.mark.skipif(not shutil.which("redis-server"), reason="needs an installed redis-server, for TLS")
def test_a_cluster_behind_tls_is_reached_and_a_stranger_is_not_believed(
    certificate, redis_server: Callable[..., RedisServer], monkeypatch
) -> None:
    key, trusted = certificate
    port = processes.free_port()
    monkeypatch.setenv("REDIS_SERVER", str(shutil.which("redis-server")))
    # fmt: off
    server = redis_server(
        "--tls-port", str(port), "--tls-cluster", "yes", "--tls-auth-clients", "no", "--tls-cert-file", str(trusted),
        "--tls-key-file", str(key), "--tls-ca-cert-file", str(trusted), "--cluster-enabled", "yes",
        "--cluster-port", str(processes.free_port()),
    )
    # fmt: on
    clusters.join_alone(server)
    url = f"rediss+cluster://127.0.0.1:{port}/0"
    with redis_at(f"{url}?ssl_ca_certs={trusted}"):
        assert buckets.take(LIMITS, CALLERS[0]).source == "redis"
        assert asyncio.run(buckets.atake(LIMITS, CALLERS[1])).source == "redis"
    with redis_at(url):
        with pytest.raises(connections.Unavailable) as failure:
            buckets.take(LIMITS, CALLERS[0])
        assert failure.value.reason == "connection"
