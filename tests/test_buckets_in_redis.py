"""What do the buckets look like from Redis? Names, expiry, round trips, and what others did to them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratelimit_app import buckets, connections, testing
from ratelimit_app.limits import Caller, Limit
from tests import stored
from tests.outages import redis_at

storage = pytest.fixture(stored.storage, params=stored.WAYS, autouse=True)

CALLER = Caller(bucket_identity="one", user_id="7", address="203.0.113.9")
FIRST = Limit(id=1, name="first", requests=1, period_seconds=3600, burst=10)
SECOND = Limit(id=2, name="second", requests=1, period_seconds=3600, burst=10)


def left(limit: Limit = FIRST) -> int:
    return buckets.take((limit,), CALLER, dry=True).weighed[0].remaining


def names(redis_client: Any, prefix: str) -> list[bytes]:
    return sorted(redis_client.scan_iter(f"{prefix}*"))


# --- Names -----------------------------------------------------------------------------------------


def test_a_bucket_is_one_small_number_that_expires_when_it_is_full_or_its_hash_cannot_matter(
    storage, redis_client, prefix
):
    decision = buckets.take((FIRST,), CALLER)
    [name] = names(redis_client, prefix)
    assert name == stored.key(decision.weighed[0].bucket)
    assert stored.read(redis_client, decision.weighed[0].bucket).isdigit()
    least, most = (36_000_000, 72_000_000) if storage else (3_590_000, 3_600_000)
    assert least < redis_client.pttl(name) <= most


@pytest.mark.parametrize(
    "hostile", ["') redis.call('FLUSHALL') --", "\0", "\r\nFLUSHALL\r\n", "\ud800", "{tag}", "x" * 10**6]
)
def test_hostile_text_becomes_a_short_hashed_name(hostile, redis_client, prefix):
    caller = Caller(bucket_identity=hostile)
    assert buckets.take((FIRST,), caller).allowed
    [name] = names(redis_client, prefix)
    assert len(name) < 60
    assert name.count(b"{") == name.count(b"}") == 1


parts = st.text(max_size=6) | st.sampled_from(["a:b", "c", "a", "b:c", "1:a", "{", "\0", "key", "user"])


@given(st.tuples(parts, parts, parts), st.tuples(parts, parts, parts), st.sampled_from(["key", "user", "address"]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_callers_share_a_bucket_exactly_when_the_limit_counts_them_as_one(one, other, per):
    limit = Limit(id=1, name="x", requests=1, period_seconds=1, burst=1, per=per)
    callers = [Caller(bucket_identity=key, user_id=user, address=address) for key, user, address in (one, other)]
    bucket_names = {buckets.take((limit,), caller, dry=True).weighed[0].bucket for caller in callers}
    assert (len(bucket_names) == 1) == (callers[0].identity(per) == callers[1].identity(per))


def test_buckets_of_one_caller_share_a_hash_tag_and_differ_by_limit_and_generation():
    other = Limit(id=1, name="first", requests=1, period_seconds=3600, burst=10, generation=2)
    found = {buckets.take((limit,), CALLER, dry=True).weighed[0].bucket for limit in (FIRST, SECOND, other)}
    assert len(found) == 3
    assert len({name[name.index(b"{") : name.index(b"}")] for name in found}) == 1


# --- Round trips -----------------------------------------------------------------------------------


def test_a_decision_over_many_limits_is_one_script_call(redis_server):
    limits = (FIRST, SECOND, Limit(id=3, name="third", requests=1, period_seconds=60, burst=5, per="address"))
    server = redis_server()  # nobody else's calls are counted there
    with redis_at(server.url), server.client() as client:
        buckets.take(limits, CALLER)
        client.config_resetstat()
        for _ in range(10):
            buckets.take(limits, CALLER)
        counted = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
    assert counted.pop("cmdstat_evalsha") == 10
    assert not {"cmdstat_eval", "cmdstat_script|load", "cmdstat_hello", "cmdstat_client|setinfo"} & set(counted)


def test_a_script_that_the_server_forgot_is_sent_again_and_charged_once(redis_client):
    buckets.take((FIRST,), CALLER)
    redis_client.script_flush()
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(buckets.take((FIRST,), CALLER).weighed[0].remaining))
        for _ in range(9)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(9))


def test_a_server_that_restarted_is_used_again_at_once(redis_server):
    server = redis_server()
    with redis_at(server.url):
        for _ in range(3):
            buckets.take((FIRST,), CALLER)
        server.restart()
        time.sleep(0.06)  # a connection used a moment ago is trusted for 50 ms
        assert buckets.take((FIRST,), CALLER).weighed[0].remaining == 9


# --- What others did -------------------------------------------------------------------------------


def test_a_bucket_that_somebody_persisted_gets_its_expiry_back_even_by_a_refusal(redis_client):
    buckets.take((FIRST,), CALLER, cost=10)
    name = stored.key(buckets.take((FIRST,), CALLER, dry=True).weighed[0].bucket)
    assert redis_client.persist(name)
    assert not buckets.take((FIRST,), CALLER).allowed
    assert redis_client.pttl(name) > 0


@pytest.mark.parametrize("spoil", ["list", "text", "nothing"])
def test_a_spoilt_bucket_is_a_named_failure_and_leaves_no_charge_elsewhere(spoil, redis_client):
    name = buckets.take((SECOND,), CALLER, dry=True).weighed[0].bucket
    if spoil == "list":
        redis_client.rpush(stored.key(name), "x")
        redis_client.expire(stored.key(name), 60)
    else:
        stored.write(redis_client, name, "not a number" if spoil == "text" else "")
    for order in ((FIRST, SECOND), (SECOND, FIRST)):
        with pytest.raises(connections.Unavailable) as failure:
            buckets.take(order, CALLER)
        assert failure.value.reason == "wrongtype"
    assert left(FIRST) == 10


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "-5", "12.75", "0x10"])
def test_odd_numbers_in_a_bucket_neither_free_nor_freeze_a_caller(value, redis_client):
    name = buckets.take((FIRST,), CALLER, dry=True).weighed[0].bucket
    stored.write(redis_client, name, value)
    decision = buckets.take((FIRST,), CALLER)
    assert 0 <= decision.weighed[0].remaining <= 9
    assert decision.weighed[0].level.full_ticks <= FIRST.capacity_ticks
    assert 0 < redis_client.pttl(stored.key(name)) <= 3_600_000 * 20


def test_a_bucket_idle_past_its_expiry_is_gone_and_full(redis_client, prefix, wait_until):
    quick = Limit(id=9, name="quick", requests=100, period_seconds=1, burst=5)
    buckets.take((quick,), CALLER, cost=5)
    wait_until(lambda: not names(redis_client, prefix))
    assert left(quick) == 5


# --- Clearing ----------------------------------------------------------------------------------------


def test_deleting_everything_leaves_the_keys_of_others_alone(redis_client, prefix):
    others = [f"{prefix}x:1", f"x{prefix}:1"]
    for name in others:
        redis_client.set(name, "1", ex=60)
    buckets.take((FIRST,), CALLER)
    assert testing.delete_all() == 1
    assert all(redis_client.exists(name) for name in others)


def test_deleting_everything_of_one_project_leaves_a_project_whose_prefix_begins_alike(configure, prefix):
    buckets.take((FIRST,), CALLER, cost=10)
    configure(PREFIX=f"{prefix}:eu")
    buckets.take((FIRST,), CALLER, cost=10)
    configure(PREFIX=prefix)
    testing.delete_all()
    configure(PREFIX=f"{prefix}:eu")
    assert left() == 0


@pytest.mark.parametrize("odd", ["a*b", "a?b", "a[b]", "a{b}c", "a b", "Ä", "a\\b"])
def test_any_prefix_can_be_counted_under_and_cleared(odd, configure, prefix):
    configure(PREFIX=f"{prefix}{odd}")
    assert buckets.take((FIRST,), CALLER).remaining == 9
    assert testing.delete_all() == 1
    assert buckets.take((FIRST,), CALLER).remaining == 9
