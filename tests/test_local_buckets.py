"""What else do buckets in memory promise? A bound on memory, whom they forget, threads, and a clock that is given."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from ratelimit_app.limits import TICKS_PER_SECOND, Caller
from ratelimit_app.local_buckets import LocalBuckets
from tests.decisions import caller
from tests.twins import MIDNIGHT, edited, every_algorithm, limit

SECOND = TICKS_PER_SECOND
ONE = caller(1)


def left(local: LocalBuckets, of: object, who: Caller = ONE, *, at: int = MIDNIGHT) -> int:
    return local.take((of,), who, now_ticks=at, dry=True).weighed[0].remaining  # type: ignore[arg-type]


# --- Memory ----------------------------------------------------------------------------------------


@every_algorithm
def test_no_more_buckets_are_held_than_it_was_told(algorithm):
    local, of = LocalBuckets(size=100), limit(algorithm)
    for number in range(1_000):
        local.take((of,), caller(number), now_ticks=MIDNIGHT + number)
    assert len(local) == 100


@every_algorithm
def test_weighing_and_refusing_hold_nothing_in_memory(algorithm):
    local, of = LocalBuckets(), limit(algorithm, 3, 60, 3)
    for number in range(50):
        local.take((of,), caller(number), now_ticks=MIDNIGHT, dry=True)
        local.take((of,), caller(number), now_ticks=MIDNIGHT, cost=4)
        local.take((of,), caller(number), now_ticks=MIDNIGHT, cost=0)
    assert len(local) == 0


@every_algorithm
def test_an_exhausted_bucket_is_not_the_first_to_be_forgotten(algorithm):
    daily, quick = limit(algorithm, 1, 86_400, 1), limit(algorithm, 100, 1, 100, id=2)
    local = LocalBuckets(size=10)
    assert local.take((daily,), ONE, now_ticks=MIDNIGHT).allowed
    for number in range(1_000):
        local.take((quick,), caller(number), now_ticks=MIDNIGHT + number * SECOND)
    assert len(local) == 10
    assert not local.take((daily,), ONE, now_ticks=MIDNIGHT + 1_000 * SECOND).allowed


def test_a_caller_who_is_refused_again_and_again_counts_as_used():
    hourly = limit("token_bucket", 1, 3600, 1)
    local = LocalBuckets(size=20)
    local.take((hourly,), ONE, now_ticks=MIDNIGHT)
    for number in range(2, 200):
        local.take((hourly,), caller(number), now_ticks=MIDNIGHT + number)
        assert not local.take((hourly,), ONE, now_ticks=MIDNIGHT + number).allowed


def test_a_log_holds_no_more_moments_than_its_limit():
    local, ten = LocalBuckets(), limit("sliding_log", 10, 1)
    for moment in range(2_000):
        local.take((ten,), ONE, now_ticks=MIDNIGHT + moment * SECOND // 50, cost=moment % 3)
    [bucket] = local._held.values()
    assert 0 < len(bucket.moments) <= 10


# --- Threads ---------------------------------------------------------------------------------------


@every_algorithm
def test_twenty_threads_share_a_hundred_tokens_exactly(algorithm):
    hundred, local = limit(algorithm, 100, 3600, 100), LocalBuckets()
    start, passed = threading.Barrier(20), []

    def send() -> None:
        start.wait()
        for _ in range(20):
            decision = local.take((hundred,), ONE, now_ticks=MIDNIGHT, patience_ticks=3600 * SECOND)
            passed.append(decision.allowed)

    threads = [threading.Thread(target=send) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(passed), sum(passed)) == (400, 100)


# --- Giving back, filling, looking -----------------------------------------------------------------


@every_algorithm
def test_a_refund_gives_back_once_and_never_more_than_was_taken(algorithm):
    local, of = LocalBuckets(), limit(algorithm, 10, 60, 10)
    at, hour = MIDNIGHT, 3600 * SECOND
    first = local.take((of,), ONE, now_ticks=at, cost=4, patience_ticks=hour)
    second = local.take((of,), ONE, now_ticks=at + SECOND, cost=2, patience_ticks=hour)
    local.refund(first, now_ticks=at + SECOND)
    assert local.take((of,), ONE, now_ticks=at + SECOND, patience_ticks=hour, dry=True).remaining == 8
    for _ in range(3):
        local.refund(second, now_ticks=at + SECOND)
    assert local.take((of,), ONE, now_ticks=at + SECOND, patience_ticks=hour, dry=True).remaining == 10


@every_algorithm
def test_a_refund_of_a_refusal_of_a_glance_and_of_long_ago_gives_nothing(algorithm):
    local, of = LocalBuckets(), limit(algorithm, 3, 60, 3)
    taken = local.take((of,), ONE, now_ticks=MIDNIGHT, cost=3)
    refused = local.take((of,), ONE, now_ticks=MIDNIGHT)
    glance = local.take((of,), ONE, now_ticks=MIDNIGHT, cost=0, dry=True)
    for decision in (refused, glance):
        local.refund(decision, now_ticks=MIDNIGHT)
    assert left(local, of) == 0
    later = MIDNIGHT + 86_400 * SECOND
    local.refund(taken, now_ticks=later)
    assert local.take((of,), ONE, now_ticks=later, patience_ticks=3600 * SECOND, dry=True).remaining == 3
    LocalBuckets().refund(taken, now_ticks=MIDNIGHT)


@every_algorithm
def test_a_reset_fills_the_buckets_of_one_caller_with_those_of_earlier_generations(algorithm):
    local, old, other = LocalBuckets(), limit(algorithm, 3, 60, 3), caller(2)
    now = edited(old, requests=6, burst=6)
    for who in (ONE, other):
        local.take((old,), who, now_ticks=MIDNIGHT, cost=3)
        local.take((now,), who, now_ticks=MIDNIGHT)
    local.reset((now,), ONE)
    assert left(local, now) == (1 if algorithm == "leaky_bucket" else 6)
    assert left(local, now, other) == 0


@every_algorithm
def test_a_cost_larger_than_the_capacity_is_refused_for_ever_and_drains_nothing(algorithm):
    local, of = LocalBuckets(), limit(algorithm, 3, 60, 3)
    for cost in (4, 10**9, 10**30):
        decision = local.take((of,), ONE, now_ticks=MIDNIGHT, cost=cost)
        assert (decision.allowed, decision.weighed[0].wait_ticks, decision.retry_after_seconds) == (False, None, None)
    assert local.take((of,), ONE, now_ticks=MIDNIGHT, cost=3).allowed


def test_callers_limits_generations_and_shards_have_buckets_of_their_own():
    local = LocalBuckets()
    of = limit("token_bucket", 1, 3600, 4, per="everyone", shards=4)
    variants = [*of.parts, replace(of.parts[0], id=2), replace(of.parts[0], generation=2)]
    for variant in variants:
        assert local.take((variant,), ONE, now_ticks=MIDNIGHT).allowed
        assert not local.take((variant,), caller(2), now_ticks=MIDNIGHT).allowed  # everyone is one
    assert len(local) == 6
    per_key = limit("token_bucket", 1, 3600, 1, id=9)
    hostile = [Caller(bucket_identity=text) for text in ("a", "a:b", "\0", "\ud800", "b")]
    assert all(local.take((per_key,), who, now_ticks=MIDNIGHT).allowed for who in hostile)


# --- Speed, roughly --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["token_bucket", "sliding_log"])
def test_a_full_memory_is_not_slow(algorithm):
    local, of = LocalBuckets(size=5_000), limit(algorithm)
    for number in range(5_000):
        local.take((of,), caller(number), now_ticks=MIDNIGHT)
    started = time.process_time()
    for number in range(5_000, 7_000):
        local.take((of,), caller(number), now_ticks=MIDNIGHT)
    assert time.process_time() - started < 2  # a search through all of it would take a minute
