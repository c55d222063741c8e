"""Do callers who share a hash notice nothing of each other? Fields, expiry, resets, spread, memory."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from ratelimit_app import buckets, conf, connections, debts, limiter, names
from ratelimit_app.limits import TICKS_PER_SECOND, Caller, Limit
from tests import stored
from tests.twins import FLOOR_MS, MIDNIGHT, InMemory, every_algorithm, limit, standing

ONE, TWO, THREE = (
    Caller(key_id=number, bucket_identity=f"caller-{number}", user_id=str(number)) for number in (1, 2, 3)
)
HOURLY = limit("token_bucket", 1, 3_600, 10, id=1)
CAPACITY_MS = 36_000_000


@pytest.fixture(autouse=True)
def one_hash(configure: Any) -> None:
    configure(BUCKET_HASHES=1)


def left(caller: Caller, of: Limit = HOURLY) -> int:
    return buckets.take((of,), caller, dry=True).weighed[0].remaining


def key_of(of: Limit = HOURLY, caller: Caller = ONE) -> bytes:
    return stored.key(buckets.name_of(of, caller))


# --- Each for himself ------------------------------------------------------------------------------


def test_two_callers_in_one_hash_spend_each_from_his_own_bucket(redis_client):
    assert buckets.take((HOURLY,), ONE, cost=10).allowed
    assert not buckets.take((HOURLY,), ONE).allowed
    assert buckets.take((HOURLY,), TWO, cost=3).allowed
    assert [left(ONE), left(TWO), left(THREE)] == [0, 7, 10]
    assert redis_client.hlen(key_of()) == 2
    assert key_of(caller=ONE) == key_of(caller=TWO)


histories = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "take", "refund", "reset"]),
        st.integers(0, 3),
        st.integers(0, 2),
        st.integers(0, 3 * TICKS_PER_SECOND),
    ),
    max_size=40,
)


@given(histories)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_its_neighbours_do_each_caller_gets_what_he_would_get_alone(steps):
    """Every caller of the hash beside one in memory who has it to himself."""
    limits = (limit("token_bucket", 3, 10, 4, id=1), limit("leaky_bucket", 5, 7, 3, id=2, per="user"))
    where = f"{names.prefix().decode()}{threading.get_ident()}"
    callers = [Caller(bucket_identity=f"{where}-{number}", user_id=f"{where}-{number}") for number in range(4)]
    alone, taken, now = [InMemory() for _ in callers], {}, MIDNIGHT
    buckets_of = list(zip(callers, alone, strict=True))
    for caller in callers:
        buckets.reset(limits, caller)
    for kind, number, cost, passes in steps:
        now += passes
        caller, twin = buckets_of[number]
        if kind == "take":
            decision = buckets.take(limits, caller, cost=cost, now_ticks=now, floor_ms=FLOOR_MS)
            expected = twin.take(*limits, at=now, cost=cost)
            assert (decision.allowed, standing(decision)) == (expected.allowed, standing(expected))
            taken[number] = (decision, expected)
        elif kind == "refund" and number in taken:
            decision, expected = taken.pop(number)
            buckets.refund(decision, now_ticks=now, floor_ms=FLOOR_MS)
            twin.refund(expected, at=now)
        elif kind == "reset":
            buckets.reset(limits, caller)
            twin.reset(*limits)
            taken.pop(number, None)


@every_algorithm
def test_a_reset_leaves_the_neighbours_alone(algorithm):
    of = limit(algorithm, 5, 3_600, 5)
    for caller in (ONE, TWO):
        assert buckets.take((of,), caller, cost=5, patience_ticks=10**12).allowed
    buckets.reset((of,), ONE)
    assert [left(ONE, of), left(TWO, of)] == [1 if algorithm == "leaky_bucket" else 5, 0]


def test_a_refund_to_a_bucket_that_is_gone_makes_no_field(redis_client):
    decision = buckets.take((HOURLY,), ONE, cost=2)
    buckets.take((HOURLY,), TWO)
    buckets.reset((HOURLY,), ONE)
    buckets.refund(decision)
    assert redis_client.hlen(key_of()) == 1


@pytest.mark.parametrize("hostile", ["', 'x') --", "\0", "\r\nFLUSHALL\r\n", "\ud800", "a/b", "{tag}", "x" * 10**6])
def test_hostile_text_becomes_a_field_of_twelve_letters(hostile, redis_client):
    assert buckets.take((HOURLY,), Caller(bucket_identity=hostile)).allowed
    [field] = redis_client.hkeys(key_of())
    assert len(field) == 12
    assert field.decode().replace("-", "").replace("_", "").isalnum()


def test_addresses_and_what_all_share_stay_keys_of_their_own(redis_client, prefix):
    by_address, by_all = replace(HOURLY, id=2, per="address"), replace(HOURLY, id=3, per="everyone")
    strangers = [Caller(address=f"203.0.113.{number}") for number in range(9)]
    for stranger in strangers:
        assert buckets.take((HOURLY, by_address, by_all), stranger).allowed  # without a key they count by address
    kinds = Counter(redis_client.type(name) for name in redis_client.scan_iter(f"{prefix}*"))
    assert kinds == {b"string": 2 * len(strangers) + 1}


def test_windows_of_a_key_live_where_its_buckets_do():
    limits = (HOURLY, limit("sliding_window", 5, 60, id=2), limit("sliding_log", 5, 60, id=3))
    for caller in (ONE, TWO):
        decision = buckets.take(limits, caller)
        assert len({names.tag(weighed.bucket) for weighed in decision.weighed}) == 1
        assert len({stored.key(weighed.bucket) for weighed in decision.weighed}) == 3
    assert left(ONE, limits[1]) == left(ONE, limits[2]) == 4


# --- Edits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"])
@every_algorithm
def test_an_edit_of_the_algorithm_carries_over_what_this_caller_used_and_no_other(algorithm, to):
    old = limit(algorithm, 8, 7_200, 8)
    now = replace(old, algorithm=to, generation=2, earlier=(old,))
    assert buckets.take((old,), ONE, cost=4, patience_ticks=10**12, now_ticks=MIDNIGHT, floor_ms=FLOOR_MS).allowed
    expected = InMemory()
    assert expected.take(old, at=MIDNIGHT, cost=4, patience_ticks=10**12).allowed
    for caller, twin in ((ONE, expected), (TWO, InMemory())):
        decision = buckets.take((now,), caller, patience_ticks=10**12, now_ticks=MIDNIGHT, floor_ms=FLOOR_MS)
        assert standing(decision) == standing(twin.take(now, at=MIDNIGHT, patience_ticks=10**12))


def test_edit_after_edit_does_not_make_the_hashes_live_longer_and_longer(redis_client):
    now = HOURLY
    for _ in range(12):
        buckets.take((now,), ONE)
        now = replace(now, generation=now.generation + 1, earlier=(replace(now, earlier=()), *now.earlier)[:3])
    buckets.take((now,), ONE)
    assert redis_client.pttl(key_of(now)) <= 2 * CAPACITY_MS


# --- Expiry ----------------------------------------------------------------------------------------


def test_a_hash_outlives_the_most_debt_that_a_bucket_in_it_can_have(redis_client):
    for caller, cost in ((ONE, 10), (TWO, 1), (THREE, 0)):
        buckets.take((HOURLY,), caller, cost=cost)
        assert CAPACITY_MS < redis_client.pttl(key_of()) <= 2 * CAPACITY_MS


def test_a_hash_is_prolonged_only_when_less_is_left_of_it_than_a_bucket_may_need(redis_client):
    buckets.take((HOURLY,), ONE)
    redis_client.pexpire(key_of(), CAPACITY_MS + 3_000_000)
    buckets.take((HOURLY,), TWO)
    assert redis_client.pttl(key_of()) <= CAPACITY_MS + 3_000_000
    redis_client.pexpire(key_of(), CAPACITY_MS - 1)
    buckets.take((HOURLY,), TWO)
    assert redis_client.pttl(key_of()) > CAPACITY_MS + 3_000_000


def test_a_neighbour_with_a_smaller_bucket_does_not_shorten_the_life_of_a_larger_one(redis_client):
    buckets.take((HOURLY,), ONE, cost=10)
    buckets.take((replace(HOURLY, burst=1),), TWO)  # a boost that met the bounds
    assert redis_client.pttl(key_of()) > CAPACITY_MS


def test_a_hash_that_somebody_persisted_gets_its_expiry_back_from_any_of_its_callers(redis_client):
    buckets.take((HOURLY,), ONE)
    assert redis_client.persist(key_of())
    buckets.take((HOURLY,), TWO)
    assert redis_client.pttl(key_of()) > CAPACITY_MS


def test_a_refund_keeps_the_expiry(redis_client):
    decision = buckets.take((HOURLY,), ONE, cost=5)
    redis_client.pexpire(key_of(), 5_000_000)
    buckets.refund(decision)
    assert 0 < redis_client.pttl(key_of()) <= 5_000_000
    assert left(ONE) == 10


def test_a_server_that_forgot_is_told_the_fields_and_keeps_what_the_hash_has_left(redis_client):
    decision = buckets.take((HOURLY,), ONE, cost=4)
    full_at = decision.decided_ticks + decision.weighed[0].level.full_ticks
    buckets.reset((HOURLY,), ONE)
    buckets.take((HOURLY,), TWO, cost=10)
    debts.tell({buckets.name_of(HOURLY, ONE): full_at})
    assert [left(ONE), left(TWO)] == [6, 0]
    assert redis_client.pttl(key_of()) > CAPACITY_MS
    redis_client.delete(key_of())
    debts.tell({buckets.name_of(HOURLY, ONE): full_at})
    assert left(ONE) == 6
    assert 0 < redis_client.pttl(key_of()) <= 4 * 3_600_000


# --- What others did -------------------------------------------------------------------------------


def test_a_spoilt_field_is_a_named_failure_for_its_caller_alone(redis_client):
    stored.write(redis_client, buckets.name_of(HOURLY, ONE), "not a number")
    with pytest.raises(connections.Unavailable) as failure:
        buckets.take((HOURLY,), ONE)
    assert failure.value.reason == "wrongtype"
    assert buckets.take((HOURLY,), TWO).allowed


def test_another_number_of_hashes_begins_all_buckets_anew(configure):
    assert buckets.take((HOURLY,), ONE, cost=10).allowed
    for number in (0, 32_768):
        configure(BUCKET_HASHES=number)
        assert left(ONE) == 10
    configure(BUCKET_HASHES=1)
    assert left(ONE) == 0


# --- Spread and size -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1_000, 32_768, 1_000_000])
def test_ten_thousand_callers_spread_evenly_over_the_slots_of_a_cluster(number, configure):
    configure(BUCKET_HASHES=number)
    slots = [key_slot(key_of(caller=Caller(bucket_identity=f"caller-{n}"))) for n in range(10_000)]
    parts = Counter(slot * 8 // REDIS_CLUSTER_HASH_SLOTS for slot in slots)
    assert len(parts) == 8
    assert max(parts.values()) < 1.15 * 10_000 / 8
    assert max(Counter(slots).values()) < (40 if number == 1_000 else 12)


def test_callers_spread_evenly_over_the_hashes(configure):
    configure(BUCKET_HASHES=100)
    found = Counter(key_of(caller=Caller(bucket_identity=f"caller-{number}")) for number in range(10_000))
    assert len(found) == 100
    assert max(found.values()) < 150


def test_a_bucket_beside_sixty_others_takes_less_than_fifty_bytes(redis_client):
    for number in range(61):
        buckets.take((HOURLY,), Caller(bucket_identity=f"caller-{number}"))
    assert redis_client.object("encoding", key_of()) == b"listpack"
    assert redis_client.memory_usage(key_of(), samples=0) < 61 * 50


def test_a_bucket_is_found_by_hand_as_the_guide_says(make_plan, redis_client, configure):
    configure(BUCKET_HASHES=conf.Settings().bucket_hashes)
    caller = Caller(plan_id=make_plan(burst=5).pk, bucket_identity="one")
    decision = limiter.check(caller)
    [(key, field)] = [names.parted(each.bucket) for each in limiter.levels(caller)]
    assert int(redis_client.hget(key, field)) == decision.decided_ticks + decision.weighed[0].level.full_ticks
    redis_client.hdel(key, field)
    assert limiter.peek(caller).remaining == 5
