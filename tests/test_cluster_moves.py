"""Is a name found that moves? Redirects, slots between two masters, and nodes that come and go."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator

import pytest
from redis.crc import key_slot

from ratelimit_app import buckets, connections
from ratelimit_app.connections import places
from ratelimit_app.connections.shards import Shards
from ratelimit_app.limits import Caller, Decision, Limit
from tests import clusters
from tests.clusters import Cluster, calls
from tests.outages import ScriptedServer, redis_at
from tests.servers import RedisServer

pytestmark = pytest.mark.timeout(180)

LIMIT = Limit(id=1, name="x", requests=1, period_seconds=3600, burst=10)
SECOND = Limit(id=2, name="y", requests=1, period_seconds=3600, burst=20)

Take = Callable[..., Decision]


def take_sync(caller: Caller, *limits: Limit) -> Decision:
    return buckets.take(limits or (LIMIT,), caller)


def take_async(caller: Caller, *limits: Limit) -> Decision:
    return asyncio.run(buckets.atake(limits or (LIMIT,), caller))


@pytest.fixture(params=[take_sync, take_async], ids=["sync", "async"])
def take(request) -> Take:
    return request.param


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), has_replicas=False)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    with redis_at(running.url):
        yield running


def a_caller() -> Caller:
    return Caller(key_id=1, bucket_identity=uuid.uuid4().hex)


def slot_of(caller: Caller) -> int:
    return key_slot(buckets.name_of(LIMIT, caller))


def home_and_another(cluster: Cluster, caller: Caller) -> tuple[RedisServer, RedisServer]:
    home = cluster.serving(buckets.name_of(LIMIT, caller))
    return home, next(node for node in cluster.masters if node is not home)


def test_a_name_that_moved_is_followed_and_counted_on(take, cluster) -> None:
    caller = a_caller()
    assert take(caller).remaining == 9
    _home, other = home_and_another(cluster, caller)
    cluster.move_slot(slot_of(caller), to=other)
    assert take(caller).remaining == 8
    before = {node.port: calls(node) for node in cluster.masters}
    assert take(caller).remaining == 7  # this time it is known where
    assert sum(calls(node) - before[node.port] for node in cluster.masters) == 1
    assert calls(other) == before[other.port] + 1


def test_a_new_name_of_a_moving_slot_is_asked_for_at_its_new_home(take, cluster) -> None:
    caller = a_caller()
    home, other = home_and_another(cluster, caller)
    seen: list[int | None] = []

    def half_way() -> None:
        seen.append(take(caller).remaining)
        seen.append(take(caller).remaining)
        assert clusters.ask(home, "CLUSTER", "GETKEYSINSLOT", slot_of(caller), 10) == []

    clusters.ask(other, "SCRIPT", "FLUSH")  # the redirected question is one for a script that is not known there
    cluster.move_slot(slot_of(caller), to=other, half_way=half_way)
    assert [*seen, take(caller).remaining] == [9, 8, 7]


def test_a_name_that_has_not_moved_yet_is_counted_where_it_is(take, cluster) -> None:
    caller = a_caller()
    assert take(caller).remaining == 9
    _home, other = home_and_another(cluster, caller)
    seen: list[int | None] = []
    cluster.move_slot(slot_of(caller), to=other, half_way=lambda: seen.append(take(caller).remaining))
    assert [*seen, take(caller).remaining] == [8, 7]


def test_names_that_are_torn_apart_by_a_move_are_a_named_failure(take, cluster) -> None:
    caller = a_caller()
    take(caller)  # of the first limit there is a bucket, of the second one none
    _home, other = home_and_another(cluster, caller)
    reasons: list[str] = []

    def half_way() -> None:
        with pytest.raises(connections.Unavailable) as failure:
            take(caller, LIMIT, SECOND)
        reasons.append(failure.value.reason)

    cluster.move_slot(slot_of(caller), to=other, half_way=half_way)
    assert reasons == ["tryagain"]
    assert [weighed.remaining for weighed in take(caller, LIMIT, SECOND).weighed] == [8, 19]


def test_a_node_that_joined_is_found(take, running, cluster, wait_until) -> None:
    take(a_caller())
    newcomer = running.add()
    clusters.meet(running.nodes[0], newcomer)
    caller = a_caller()
    take(caller)
    cluster.move_slot(slot_of(caller), to=newcomer)
    assert take(caller).remaining == 8
    assert cluster.serving(buckets.name_of(LIMIT, caller)) is newcomer
    wait_until(lambda: connections.tag_on(f"127.0.0.1:{newcomer.port}"))
    running.masters.append(newcomer)


def test_a_table_that_is_all_wrong_is_mended_by_the_first_redirect(cluster, wait_until) -> None:
    take_sync(a_caller())
    place = places.current()
    assert isinstance(place, Shards)
    right = list(place._table)
    wait_until(lambda: not place._is_doubting)
    place._looked_at = float("-inf")
    place._table = [right[0]] * len(right)
    while take_sync(caller := a_caller()) and cluster.serving(buckets.name_of(LIMIT, caller)) is cluster.masters[0]:
        pass
    wait_until(lambda: place._table == right)


def test_redirects_that_go_round_end(take) -> None:
    with ScriptedServer(b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n", b"-MOVED 5 127.0.0.1:1\r\n") as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        server.answers = [b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n" % port, b"-MOVED 5 :%d\r\n" % port]
        with redis_at(f"redis+cluster://127.0.0.1:{port}/0"):
            with pytest.raises(connections.Unavailable) as failure:
                take(a_caller())
            assert failure.value.reason == "moved"


def test_a_slot_that_nobody_holds_is_a_failure_of_its_own_callers_only(take, cluster, wait_until) -> None:
    caller, other = a_caller(), a_caller()
    take(caller)
    home, _another = home_and_another(cluster, caller)
    for node in cluster.masters:
        clusters.ask(node, "CLUSTER", "DELSLOTS", slot_of(caller))

    def why() -> str:
        with pytest.raises(connections.Unavailable) as failure:
            take(caller)
        return failure.value.reason

    wait_until(lambda: why() == "uncovered")
    assert take(other).allowed
    for node in cluster.masters:
        clusters.ask(node, "CLUSTER", "SETSLOT", slot_of(caller), "NODE", clusters.identity(home))

    def is_taken() -> bool:
        try:
            return take(caller).allowed
        except connections.Unavailable:
            return False

    wait_until(is_taken)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_is_gone_is_left_without_a_connection(is_async, cluster, wait_until) -> None:
    async def play() -> None:
        callers = [a_caller() for _ in range(40)]
        for caller in callers:
            await buckets.atake((LIMIT,), caller) if is_async else buckets.take((LIMIT,), caller)
        leaving = cluster.masters[0]
        place = places.current()
        assert isinstance(place, Shards)
        server = next(server for server in place.servers() if server.name == f"127.0.0.1:{leaving.port}")
        assert connections_to(leaving) > 0
        server.close()  # as is done with those that a new table does not name
        await asyncio.to_thread(wait_until, lambda: not connections_to(leaving))

    asyncio.run(play())


def connections_to(node: RedisServer) -> int:
    listed = clusters.ask(node, "CLIENT", "LIST", "TYPE", "NORMAL").decode().splitlines()
    return sum("cmd=evalsha" in line or "cmd=eval " in line for line in listed)


# --- How it is found -----------------------------------------------------------------------------


def test_a_seed_that_is_gone_does_not_matter(take, cluster) -> None:
    with redis_at(f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.masters[0].port}/0"):
        assert take(a_caller()).allowed


def test_a_cluster_of_which_nobody_answers_is_a_named_failure(take) -> None:
    with redis_at("redis+cluster://127.0.0.1:1,127.0.0.1:2/0"):
        for reason in ("refused", "clusterdown"):  # who asks again at once is not kept waiting for the same
            with pytest.raises(connections.Unavailable) as failure:
                take(a_caller())
            assert failure.value.reason in (reason, "refused")


def test_a_server_that_is_no_cluster_is_a_named_failure(take, redis_server) -> None:
    with redis_at(redis_server().url.replace("redis://", "redis+cluster://")):
        with pytest.raises(connections.Unavailable) as failure:
            take(a_caller())
        assert "cluster support disabled" in str(failure.value)


@pytest.mark.parametrize("url", ["redis+cluster://127.0.0.1:7000/1", "redis+cluster:///0", "redis+cluster://a:b/0"])
def test_an_address_that_cannot_be_is_a_named_failure(take, url) -> None:
    with redis_at(url):
        with pytest.raises(connections.Unavailable) as failure:
            take(a_caller())
        assert failure.value.reason == "misconfigured"


def test_an_address_of_one_node_alone_does_not_follow_and_says_so(take, cluster) -> None:
    with redis_at(cluster.masters[0].url):
        while cluster.serving(buckets.name_of(LIMIT, caller := a_caller())) is cluster.masters[0]:
            pass
        with pytest.raises(connections.Unavailable) as failure:
            take(caller)
        assert failure.value.reason == "moved"
