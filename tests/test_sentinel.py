"""Is the new master found that sentinels name? Real sentinels, and a master that is killed, stalled or deposed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache import caches

from ratelimit_app import denials, fallback, limiter, plan_cache
from ratelimit_app.connections import places
from ratelimit_app.limits import Caller
from tests import asking
from tests.outages import redis_at, redis_is_asked
from tests.sentinels import MASTER, PASSWORD, URL, Watched

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

BURST = 20
PATIENCE_SECONDS = 90


@pytest.fixture
def watched(tmp_path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.stop()


@pytest.fixture
def found(watched: Watched) -> Iterator[Watched]:
    with redis_at(URL, options=watched.options, FLEET_SIZE=1):
        yield watched


@pytest.fixture
def caller(make_plan: Callable[..., Any]) -> Caller:
    caller = asking.caller(make_plan(requests=1, period_seconds=36_000, burst=BURST))
    plan_cache.table()
    return caller


def test_the_master_is_found_sync_and_async_and_by_django_redis(found, caller) -> None:
    assert limiter.check(caller).source == "redis"
    assert asyncio.run(limiter.acheck(caller)).remaining == BURST - 2
    fallback.beat()
    assert fallback.fleet_size() == 1
    caches["ratelimit"].set("x", 1, 60)
    assert caches["ratelimit"].get("x") == 1
    with found.master.client(password=PASSWORD) as client:
        assert client.dbsize() == 3  # the bucket, the gateways, and x
        client.delete(":1:x")
    caches["ratelimit"].close()


def kill(watched: Watched) -> None:
    watched.master.kill()


def stall(watched: Watched) -> None:
    watched.master.pause()


@pytest.mark.parametrize("break_", [kill, stall])
def test_the_promoted_master_is_found_while_callers_keep_asking(break_, found, caller, wait_until) -> None:
    for _ in range(5):
        assert limiter.check(caller).source == "redis"
    with found.master.client(password=PASSWORD) as client:
        client.set("behind all five", 1, ex=60)
        assert client.wait(1, 30_000) == 1, "a replica that did not hear of them cannot know them"
    break_(found)
    assert limiter.check(caller).source == "local"
    wait_until(lambda: found.named_master() == found.replica.port, seconds=PATIENCE_SECONDS)
    wait_until(lambda: limiter.check(caller, cost=0).source == "redis", seconds=PATIENCE_SECONDS)
    assert redis_is_asked()
    with found.replica.client(password=PASSWORD) as client:
        assert client.dbsize() > 0
    fallback.settle(seconds=5)  # what the watching thread does each second
    # Five were counted before, and replicated; one was granted from memory, and is charged.
    assert limiter.peek(caller).remaining == BURST - 6


def test_a_master_that_was_deposed_is_left_at_the_first_refusal_to_write(found, caller, wait_until) -> None:
    limiter.check(caller)
    found.sentinels[0].ask("FAILOVER", MASTER)
    wait_until(lambda: found.named_master() == found.replica.port, seconds=PATIENCE_SECONDS)
    place = places.current()

    def is_followed() -> bool:
        limiter.check(caller)
        return place.server_for(None).address[1] == found.replica.port

    wait_until(is_followed, seconds=PATIENCE_SECONDS)
    wait_until(redis_is_asked, seconds=PATIENCE_SECONDS)
    denials.forget()
    assert limiter.check(caller).source == "redis"


def test_sentinels_that_are_gone_change_nothing_while_the_master_lives(found, caller, wait_until) -> None:
    limiter.check(caller)
    for sentinel in found.sentinels:
        sentinel.stop()
    with found.master.client(password=PASSWORD) as client:
        client.client_kill_filter(_type="normal", skipme=True)
        client.config_set("maxmemory", "1")
        wait_until(lambda: not (limiter.check(caller).source == "redis" or redis_is_asked()))
        client.config_set("maxmemory", "0")
    wait_until(redis_is_asked, seconds=PATIENCE_SECONDS)
    assert limiter.check(caller).source == "redis"


def test_sentinels_of_whom_none_answers_are_a_named_failure(caller) -> None:
    options = {
        "CONNECTION_FACTORY": "ratelimit_app.connections.SentinelConnectionFactory",
        "SENTINELS": [("127.0.0.1", 1), ("127.0.0.1", 2)],
    }
    with redis_at(URL, options=options):
        decision = limiter.check(caller)
    assert (decision.source, decision.failure) == ("local", "connection")
