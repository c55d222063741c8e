"""What do the five algorithms leave in Redis, and what can befall it? Expiry, wrong types, clocks, memory."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit_app import buckets, connections, names
from ratelimit_app.limits import TICKS_PER_SECOND, Caller, Limit
from tests import stored
from tests.outages import redis_at
from tests.twins import MIDNIGHT, InRedis, both_twins, edited, every_algorithm, limit, standing

storage = pytest.fixture(stored.storage, params=stored.WAYS, autouse=True)

CALLER = Caller(key_id=1, bucket_identity="one", user_id="7", address="203.0.113.9")
#: More than any queue here is long.
PATIENCE = 10**6 * TICKS_PER_SECOND
KINDS = {
    "token_bucket": b"string",
    "leaky_bucket": b"string",
    "fixed_window": b"hash",
    "sliding_window": b"hash",
    "sliding_log": b"list",
}


def key_of(of: Limit) -> bytes:
    return stored.key(buckets.take((of,), CALLER, dry=True).weighed[0].bucket)


def remaining(*limits: Limit) -> list[int]:
    decision = buckets.take(limits, CALLER, patience_ticks=PATIENCE, dry=True)
    return [weighed.remaining for weighed in decision.weighed]


# --- One decision ----------------------------------------------------------------------------------


def mixed() -> tuple[Limit, Limit, Limit]:
    return (
        limit("token_bucket", 1, 3600, 9, id=1),
        limit("sliding_log", 9, 3600, id=2, per="address"),
        limit("sliding_window", 2, 3600, id=3, per="user"),
    )


def test_three_limits_of_three_algorithms_are_one_script_call(redis_server):
    limits = mixed()
    server = redis_server()  # nobody else's calls are counted there
    with redis_at(server.url), server.client() as client:
        buckets.take(limits, CALLER)
        client.config_resetstat()
        decisions = [buckets.take(limits, CALLER) for _ in range(10)]
        counted = client.info("commandstats")
    assert counted["cmdstat_evalsha"]["calls"] == 10
    assert not {"cmdstat_eval", "cmdstat_script|load", "cmdstat_multi"} & set(counted)
    assert sum(decision.allowed for decision in decisions) == 1


def test_a_refusal_by_the_third_leaves_the_first_two_as_they_were(redis_client):
    limits = mixed()
    assert buckets.take(limits, CALLER, cost=2).allowed
    keys = [key_of(each) for each in limits]
    before = [redis_client.dump(key) for key in keys]
    for _ in range(5):
        decision = buckets.take(limits, CALLER)
        assert decision.refused_by is limits[2]
        assert [weighed.charged for weighed in decision.weighed] == [0, 0, 0]
    assert [redis_client.dump(key) for key in keys] == before
    assert remaining(*limits) == [7, 7, 0]


@every_algorithm
def test_no_cost_passes_and_writes_nothing(algorithm, redis_client, prefix):
    of = limit(algorithm)
    assert buckets.take((of,), CALLER, cost=0).allowed
    assert not list(redis_client.scan_iter(f"{prefix}*"))
    buckets.take((of,), CALLER, cost=3, patience_ticks=PATIENCE)
    held = redis_client.dump(key_of(of))
    # In a queue it waits its turn like any other request.
    assert buckets.take((of,), CALLER, cost=0, patience_ticks=PATIENCE).allowed
    assert redis_client.dump(key_of(of)) == held


@every_algorithm
@pytest.mark.parametrize("cost", [4, 10**9, 10**30, 10**400])
def test_a_cost_above_the_capacity_never_passes_and_drains_nothing(algorithm, cost):
    decision = buckets.take((limit(algorithm),), CALLER, cost=cost, patience_ticks=PATIENCE)
    assert (decision.allowed, decision.weighed[0].wait_ticks) == (False, None)
    assert remaining(limit(algorithm)) == [3]


# --- Expiry ----------------------------------------------------------------------------------------


@every_algorithm
def test_every_bucket_expires_whatever_was_done_to_it(algorithm, redis_client, prefix, storage):
    def assert_expiring() -> None:
        names = list(redis_client.scan_iter(f"{prefix}*"))
        assert names
        assert all(0 < redis_client.pttl(name) <= 2 * 3_600_000 for name in names)

    now = limit(algorithm, 5, 3600, 5)
    first = buckets.take((now,), CALLER, cost=2, patience_ticks=PATIENCE)
    assert redis_client.type(key_of(now)) == (b"hash" if storage and now.is_bucket else KINDS[algorithm])
    assert_expiring()
    buckets.take((now,), CALLER, cost=5)
    assert_expiring()
    for other in KINDS:
        now = edited(now, algorithm=other, requests=9, burst=9)
        buckets.take((now,), CALLER, patience_ticks=PATIENCE)
        assert_expiring()
    buckets.refund(first)
    assert_expiring()


@every_algorithm
def test_a_bucket_lives_until_it_is_full_again_and_no_longer_but_in_a_hash(algorithm, redis_client, storage):
    of = limit(algorithm, 100, 10, 100)
    decision = buckets.take((of,), CALLER, cost=30, patience_ticks=PATIENCE)
    least_ms = most_ms = -(-decision.weighed[0].level.full_ticks // 10_000)
    if storage and of.is_bucket:
        least_ms, most_ms = 10_000, 20_000
    assert least_ms - 1_000 < redis_client.pttl(key_of(of)) <= most_ms


@every_algorithm
def test_a_bucket_that_somebody_persisted_gets_its_expiry_back_even_by_a_refusal(algorithm, redis_client):
    of = limit(algorithm, 3, 3600, 3)
    buckets.take((of,), CALLER, cost=3, patience_ticks=PATIENCE)
    assert redis_client.persist(key_of(of))
    assert not buckets.take((of,), CALLER).allowed
    assert redis_client.pttl(key_of(of)) > 0
    assert remaining(of) == [0]


# --- What others did -------------------------------------------------------------------------------


def spoil(client: Any, of: Limit, how: str) -> None:
    key, field = names.parted(buckets.name_of(of, CALLER))
    writes = {
        "string": lambda: client.set(key, "not a number"),
        "hash": lambda: client.hset(key, mapping={field or "window": "x", "current": "y", "previous": "z"}),
        "half a hash": lambda: client.hset(key, field or "window", 10**15 if not field else ""),
        "list": lambda: client.rpush(key, "x", "y"),
        "set": lambda: client.sadd(key, "x"),
    }
    writes[how]()
    client.expire(key, 60)


@every_algorithm
@pytest.mark.parametrize("how", ["string", "hash", "half a hash", "list", "set"])
def test_a_spoilt_bucket_is_a_named_failure_and_leaves_no_charge_elsewhere(algorithm, how, redis_client):
    sound = limit("token_bucket", 1, 3600, 9, id=1)
    spoilt = limit(algorithm, 3, 3600, 3, id=2)
    spoil(redis_client, spoilt, how)
    for order in ((sound, spoilt), (spoilt, sound)):
        with pytest.raises(connections.Unavailable) as failure:
            buckets.take(order, CALLER)
        assert failure.value.reason == "wrongtype"
    assert remaining(sound) == [9]


@every_algorithm
def test_a_spoilt_bucket_of_an_earlier_generation_is_a_named_failure_too(algorithm, redis_client):
    old = limit(algorithm, 3, 3600, 3)
    spoil(redis_client, old, "set")
    with pytest.raises(connections.Unavailable) as failure:
        buckets.take((edited(old, requests=4, burst=4),), CALLER)
    assert failure.value.reason == "wrongtype"


# --- Clocks ----------------------------------------------------------------------------------------


@both_twins
@every_algorithm
@pytest.mark.parametrize("polls", [True, False], ids=["polling", "patient"])
def test_a_clock_that_steps_back_a_day_freezes_nobody(algorithm, twin, polls):
    of, buckets_of = limit(algorithm, 3, 60, 3), twin()
    for _ in range(3):
        assert buckets_of.take(of, at=MIDNIGHT, patience_ticks=PATIENCE).allowed
    back = MIDNIGHT - 86_400 * TICKS_PER_SECOND
    [refused] = buckets_of.take(of, at=back).weighed
    assert refused.wait_ticks, "what was taken still counts"
    periods = 2 if algorithm == "sliding_window" else 1
    assert refused.level.full_ticks <= periods * 60 * TICKS_PER_SECOND + 3
    if polls:
        for moment in range(back, back + refused.wait_ticks, TICKS_PER_SECOND):
            assert not buckets_of.take(of, at=moment).allowed
    assert buckets_of.take(of, at=back + refused.wait_ticks).allowed


@both_twins
@every_algorithm
def test_a_clock_that_jumps_ahead_gives_one_full_bucket_and_no_more(algorithm, twin):
    of, buckets_of = limit(algorithm, 3, 60, 3), twin()
    for at in (MIDNIGHT, MIDNIGHT + 365 * 86_400 * TICKS_PER_SECOND):
        assert buckets_of.take(of, at=at, cost=3, patience_ticks=PATIENCE).allowed
        assert not buckets_of.take(of, at=at).allowed


@both_twins
@every_algorithm
def test_a_refund_gives_back_what_was_taken_and_no_more(algorithm, twin):
    of, buckets_of = limit(algorithm, 10, 60, 10), twin()
    first = buckets_of.take(of, at=MIDNIGHT, cost=4, patience_ticks=PATIENCE)
    other = buckets_of.take(of, at=MIDNIGHT + 1, cost=3, patience_ticks=PATIENCE)
    for _ in range(2 if algorithm == "sliding_log" else 1):  # a log knows which tokens are meant
        buckets_of.refund(first, at=MIDNIGHT + 1)
    assert buckets_of.take(of, at=MIDNIGHT + 1, patience_ticks=PATIENCE, dry=True).remaining == 7
    for _ in range(3):
        buckets_of.refund(other, at=MIDNIGHT + 1)
    assert buckets_of.take(of, at=MIDNIGHT + 1, patience_ticks=PATIENCE, dry=True).remaining == 10


@both_twins
@every_algorithm
def test_a_glance_changes_nothing(algorithm, twin):
    of, buckets_of = limit(algorithm), twin()
    buckets_of.take(of, at=MIDNIGHT, patience_ticks=PATIENCE)
    seen = [standing(buckets_of.take(of, at=MIDNIGHT + 1, cost=2, dry=True)) for _ in range(3)]
    assert seen[0] == seen[1] == seen[2]
    assert standing(buckets_of.take(of, at=MIDNIGHT + 1, cost=0, dry=True))[0][1] == 0


# --- Memory ----------------------------------------------------------------------------------------


def test_a_log_keeps_no_more_moments_than_its_limit_and_one(redis_client):
    twin, now = InRedis(), limit("sliding_log", 50, 1)
    at = MIDNIGHT
    for number in range(600):
        at += TICKS_PER_SECOND // 80
        if number in (200, 400):  # the one: it marks that an earlier generation was carried over
            now = edited(now, requests=40 if number == 200 else 50)
        decision = twin.take(now, at=at)
        assert redis_client.llen(decision.weighed[0].bucket) <= now.requests + 1
    assert redis_client.llen(decision.weighed[0].bucket) >= 49


def test_a_log_of_ten_thousand_is_charged_at_once_and_takes_about_ten_bytes_a_token(redis_client):
    of = limit("sliding_log", 10_000, 3600)
    decision = buckets.take((of,), CALLER, cost=10_000)
    assert decision.allowed
    name = decision.weighed[0].bucket
    assert redis_client.llen(name) == 10_000
    assert redis_client.memory_usage(name, samples=0) < 12 * 10_000
    assert not buckets.take((of,), CALLER).allowed
    buckets.refund(decision)
    assert not redis_client.exists(name)
