"""Does the script run on a Redis Cluster? Case C17 from the field, on a real node in cluster mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from project.demo import processes
from ratelimit_app import denials, keys
from ratelimit_app.buckets import questions
from tests.doors import (
    PLAIN,
    every_door,
    remaining,
    statuses,
)
from tests.outages import redis_at
from tests.servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def names_below(client: redis.Redis, prefix: str) -> list[Any]:
    return list(client.scan_iter(match=f"{prefix}:*", count=1000))


# --- C17 ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster_server(tmp_path_factory) -> Iterator[RedisServer]:
    """A cluster of one node that owns every slot; it takes two seconds to believe in itself."""
    options = ("--cluster-enabled", "yes", "--cluster-port", str(processes.free_port()))
    server = RedisServer(tmp_path_factory.mktemp("cluster") / "redis", *options)
    with server.client() as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 20
        while client.cluster("INFO")["cluster_state"] != "ok":
            assert time.monotonic() < deadline, client.cluster("INFO")
            time.sleep(0.02)
    yield server
    server.stop()


@pytest.fixture
def cluster(cluster_server) -> Iterator[redis.Redis]:
    """A client of the cluster; the buckets are there."""
    with cluster_server.client(decode_responses=True) as client, redis_at(cluster_server.url):
        for script in (questions.TAKE, questions.TAKE_BUCKETS):
            client.script_load(script.text)  # so that MONITOR shows EVALSHA alone
        yield client


class Watched:
    """What MONITOR saw: the names each script call declared, and those that scripts touched."""

    def __init__(self, client: redis.Redis, send: Callable[[], Any]) -> None:
        self.declared: list[list[str]] = []
        self.touched: set[str] = set()
        with client.monitor() as monitor:
            send()
            client.echo("the end")
            while (seen := monitor.next_command())["command"] != "ECHO the end":
                words = seen["command"].split(" ")
                if words[0] == "EVALSHA":
                    self.declared.append(words[3 : 3 + int(words[2])])
                elif seen["client_type"] == "lua" and words[0] != "TIME":
                    assert words[0] in ("HGET", "HSET", "PTTL", "PEXPIRE"), words
                    self.touched.add(words[1])


@every_door
@pytest.mark.parametrize("braces", ["", "{a}b", "a}{b", "{}"])
def test_c17_a_script_touches_declared_names_in_one_slot(door, braces, cluster, configure, prefix, make_plan, make_key):
    configure(PREFIX=f"{prefix}{braces}")
    plan = make_plan(requests=1, period_seconds=3600, burst=3)
    plan.limits.create(name="daily", requests=1000, period_seconds=86_400, burst=1000)
    key = make_key(plan)[1]
    answers: list[Any] = []
    watched = Watched(cluster, lambda: answers.extend(door.send(key) for _ in range(4)))
    assert statuses(answers) == [200, 200, 200, 429]
    assert remaining(answers) == ["2", "1", "0", "0"]
    assert len(watched.declared) == 4, "one script call for each request"

    plan.limits.filter(name="daily").update(burst=500)  # now each call declares the earlier bucket, too
    denials.forget()  # the limit that refuses is the same as before
    later = Watched(cluster, lambda: answers.append(door.send(key)))
    assert answers[-1].status_code == 429
    assert [len(names) for names in later.declared] == [3]

    for seen in (watched, later):
        assert seen.touched <= {name for names in seen.declared for name in names}
        for names in seen.declared:
            assert len({cluster.cluster("KEYSLOT", name) for name in names}) == 1


@every_door
def test_c17_limits_that_count_by_different_things_work_on_a_cluster(
    door, cluster, make_plan, make_key, django_user_model
):
    plan = make_plan(requests=1, period_seconds=3600, burst=3)
    plan.limits.create(name="by-user", requests=1, period_seconds=3600, burst=50, per="user")
    plan.limits.create(name="by-address", requests=1, period_seconds=3600, burst=50, per="address")
    make_plan("Everyone", 1, 3600, 50, audience="everyone", per="address")
    key = make_key(plan, owner=django_user_model.objects.create_user("owner"))[1]
    answers = [door.send(key) for _ in range(4)]
    assert statuses(answers) == [200, 200, 200, 429]
    assert remaining(answers) == ["2", "1", "0", "0"]


@pytest.mark.parametrize("braced", ["{rl_live}_0123456789ab_secret", "}{", "{}"])
def test_c17_a_key_with_braces_is_no_key(braced, cluster, prefix):
    assert keys.parse(braced) is None
    assert PLAIN.send(braced).status_code == 401
    assert not names_below(cluster, prefix)
