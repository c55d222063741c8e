"""What is each failure of Redis called? Real servers in every bad state, and scripted ones for the rest."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
import redis
from django.core.cache import caches
from django_redis import get_redis_connection

from project.demo import processes
from ratelimit_app import buckets, connections, testing
from ratelimit_app.limits import Caller, Decision, Limit
from tests.outages import REFUSING, ScriptedServer, redis_at

CALLER = Caller(bucket_identity="one")
LIMIT = Limit(id=1, name="x", requests=1, period_seconds=3600, burst=10)

Ask = Callable[[], Decision]


def ask_sync() -> Decision:
    return buckets.take((LIMIT,), CALLER)


def ask_async() -> Decision:
    return asyncio.run(buckets.atake((LIMIT,), CALLER))


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request) -> Ask:
    return request.param


def reason(ask: Ask) -> str:
    with pytest.raises(connections.Unavailable) as failure:
        ask()
    return failure.value.reason


# --- Real servers in a bad state ---------------------------------------------------------------------


def test_nobody_listening_is_called_refused(ask):
    with redis_at(REFUSING):
        assert reason(ask) == "refused"


def test_a_stalled_server_is_called_timeout_within_the_bound_warm_and_cold(ask, redis_server):
    server = redis_server()
    with redis_at(server.url, TIMEOUT_SECONDS=0.05, CONNECT_TIMEOUT_SECONDS=0.05):
        ask()
        server.pause()
        for _warm_then_cold in range(3):
            started = time.perf_counter()
            assert reason(ask) == "timeout"
            assert time.perf_counter() - started < 5  # the bound is 0.1; the rest is for a busy machine
        server.resume()
        assert ask().allowed


@pytest.mark.parametrize("password", ["", ":wrong@", "somebody:wrong@"])
def test_a_missing_or_wrong_password_is_called_noauth_and_never_shown(ask, password, redis_server, caplog):
    server = redis_server("--requirepass", "right")
    with redis_at(f"redis://{password}127.0.0.1:{server.port}/0"):
        with pytest.raises(connections.Unavailable) as failure:
            ask()
        assert failure.value.reason == "noauth"
        assert "wrong" not in f"{failure.value}"
        assert "wrong@" not in caplog.text


def test_a_password_of_reserved_characters_works_percent_encoded(ask, redis_server):
    password = "p@ss:w/rd#1%"
    server = redis_server("--requirepass", password)
    with redis_at(f"redis://:{quote(password, safe='')}@127.0.0.1:{server.port}/0"):
        assert ask().allowed


def test_a_replica_is_called_readonly(ask, redis_server):
    main = redis_server()
    replica = redis_server("--replicaof", "127.0.0.1", str(main.port))
    with redis_at(replica.url):
        assert reason(ask) == "readonly"


def test_a_replica_that_lost_its_master_is_called_masterdown(ask, redis_server):
    replica = redis_server("--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no")
    with redis_at(replica.url):
        assert reason(ask) == "masterdown"


def test_a_full_server_is_called_oom(ask, redis_server):
    server = redis_server("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    with redis_at(server.url):
        assert reason(ask) == "oom"


def test_a_server_that_reads_its_file_is_called_loading(ask, redis_server):
    server = redis_server()
    with server.client() as client:
        client.mset({f"filler-{number}": "x" * 500 for number in range(500)})
        client.save()
    slow = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    server.options += slow
    server.restart()
    with redis_at(server.url):
        assert reason(ask) == "loading"


def test_a_server_busy_with_a_script_is_called_busy(ask, redis_server):
    server = redis_server("--busy-reply-threshold", "1")

    def block() -> None:
        with server.client(socket_timeout=30) as client, pytest.raises(redis.ResponseError):
            client.eval("while true do end", 0)

    blocker = threading.Thread(target=block)
    with redis_at(server.url), server.client() as client:
        blocker.start()
        try:
            deadline = time.monotonic() + 10
            while reason_or_none(ask) != "busy":
                assert time.monotonic() < deadline
        finally:
            client.script_kill()
            blocker.join(10)


def reason_or_none(ask: Ask) -> str | None:
    try:
        ask()
    except connections.Unavailable as failure:
        return failure.reason
    return None


def test_a_server_without_a_free_place_is_called_maxclients(ask, redis_server):
    server = redis_server("--maxclients", "1")
    with server.client() as client:
        client.ping()
        with redis_at(server.url):
            assert reason(ask) == "maxclients"


def test_a_cluster_node_without_slots_is_called_clusterdown(ask, redis_server):
    # By default the port plus 10,000, where systems take client ports from.
    bus_port = str(processes.free_port())
    with redis_at(redis_server("--cluster-enabled", "yes", "--cluster-port", bus_port).url):
        assert reason(ask) == "clusterdown"


# --- Replies that are no replies ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "called"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "nonsense"),
        (b"+OK\r\n", "nonsense"),
        (b"*0\r\n", "nonsense"),
        (b"$-1\r\n", "nonsense"),
        (b"*4\r\n:5\r\n:1\r\n:1\r\n:0\r\n", "nonsense"),  # somebody else's nonce
        (b"*4\r\n:1\r\n", "timeout"),
        (b"", "timeout"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "loading"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", "masterdown"),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", "misconf"),
        (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "tryagain"),
        (b"-NOPERM this user has no permissions\r\n", "noauth"),
    ],
)
def test_a_strange_reply_has_a_name_and_is_asked_for_once(ask, reply, called):
    with ScriptedServer(reply) as server, redis_at(server.url, TIMEOUT_SECONDS=0.1):
        assert reason(ask) == called
        assert (server.connections, server.questions) == (1, 1)


@pytest.mark.parametrize("reply", [b"*4\r\n:1\r\n", b"*", b"$100\r\nabc", b""])
def test_half_a_reply_and_then_the_end_is_called_connection(ask, reply):
    with ScriptedServer(reply, then_close=True) as server, redis_at(server.url):
        assert reason(ask) == "connection"


def test_a_connection_closed_at_once_is_called_connection(ask):
    with ScriptedServer(None) as server, redis_at(server.url):
        assert reason(ask) == "connection"


def test_a_server_that_never_knows_the_script_is_asked_twice_and_no_more(ask):
    with ScriptedServer(b"-NOSCRIPT No matching script.\r\n") as server, redis_at(server.url):
        with pytest.raises(connections.Unavailable):
            ask()
        assert server.questions == 2


def test_a_connection_with_a_foreign_reply_is_never_used_again():
    with ScriptedServer(b"*4\r\n:5\r\n:1\r\n:1\r\n:0\r\n") as server, redis_at(server.url):
        for asked in range(1, 4):
            assert reason(ask_sync) == "nonsense"
            assert server.connections == asked


def test_a_reply_that_drips_cannot_hold_a_request_for_long(ask):
    slow = ScriptedServer(b"*9\r\n" + b":1\r\n" * 9, byte_seconds=0.25)  # eleven seconds for the whole reply
    with slow as server, redis_at(server.url, TIMEOUT_SECONDS=0.2):
        started = time.perf_counter()
        assert reason(ask) == "timeout"
        assert time.perf_counter() - started < 5


# --- Settings ----------------------------------------------------------------------------------------


def test_a_name_that_does_not_encode_is_called_encode():
    with pytest.raises(connections.Unavailable) as failure:
        connections.command("GET", "\ud800")
    assert failure.value.reason == "encode"


def test_another_cache_with_the_same_url_opened_first_does_not_set_our_timeouts(settings, configure):
    configure(TIMEOUT_SECONDS=0.25, CONNECT_TIMEOUT_SECONDS=0.75)
    url = settings.CACHES["ratelimit"]["LOCATION"]
    first = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": {"SOCKET_TIMEOUT": 9}}
    settings.CACHES = {"first": first, **settings.CACHES}
    caches["first"].get("x")
    options = get_redis_connection("ratelimit").connection_pool.connection_kwargs
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (0.25, 0.75)
    assert get_redis_connection("first").connection_pool.connection_kwargs["socket_timeout"] == 9


class NamedFactory(connections.ConnectionFactory):
    def make_connection_params(self, url):
        return {**super().make_connection_params(url), "client_name": "ours"}


def test_a_connection_factory_of_the_project_is_used(redis_server):
    server = redis_server()
    with redis_at(server.url, options={"CONNECTION_FACTORY": f"{__name__}.NamedFactory"}), server.client() as client:
        ask_sync()
        assert "ours" in [listed["name"] for listed in client.client_list()]


@pytest.mark.parametrize("decode", [False, True])
def test_decoding_of_replies_makes_no_difference(ask, decode, redis_server):
    options = {"CONNECTION_POOL_KWARGS": {"decode_responses": decode}}
    with redis_at(redis_server().url, options=options):
        assert ask().remaining == 9
        assert testing.delete_all() == 1


def test_the_database_number_of_the_url_is_used(ask, redis_server):
    server = redis_server()
    with redis_at(f"redis://127.0.0.1:{server.port}/3"), server.client() as client:
        ask()
        assert client.dbsize() == 0
        assert client.info("keyspace")["db3"]["keys"] == 1


def test_a_unix_socket_works(ask, redis_server, tmp_path):
    path = tmp_path / "s"
    redis_server("--unixsocket", str(path))
    with redis_at(f"unix://{path}"):
        assert ask().allowed
