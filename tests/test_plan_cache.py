"""Does every request find the plans in memory, whole, and whatever the database does?"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest
from django.db import DatabaseError, connection

from ratelimit_app import plan_cache
from ratelimit_app.limits import TICKS_PER_SECOND, Caller
from ratelimit_app.models import PlanLimit


@contextlib.contextmanager
def unreadable(table: str = "ratelimit_app_planlimit") -> Iterator[None]:
    """The database refuses to read a table for the length of a block."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO gone")
        try:
            yield
        finally:
            cursor.execute(f"ALTER TABLE gone RENAME TO {table}")


def names(plan_id: int, *, scope: str = "", method: str = "GET", mode: str = "enforce") -> list[str]:
    return [limit.name for limit in plan_cache.table().select(plan_id, scope=scope, method=method, mode=mode)]


# --- What a snapshot holds -----------------------------------------------------------------------------


def test_a_caller_meets_the_limits_of_the_plan_and_those_for_everyone(make_plan):
    pro, _free = make_plan("pro"), make_plan("free")
    make_plan("all", audience="everyone")
    assert names(pro.pk) == ["all", "pro"]
    assert names(0) == ["all"]
    assert names(10**6) == ["all"]


def test_a_scope_selects_its_limits_beside_those_for_every_route(make_plan):
    plan = make_plan("pro")
    plan.limits.create(name="search", requests=1, burst=1, scope="search")
    assert names(plan.pk) == ["pro"]
    assert names(plan.pk, scope="search") == ["pro", "search"]
    assert names(plan.pk, scope="other") == ["pro"]


@pytest.mark.parametrize(
    ("method", "met"),
    [
        ("GET", ["pro", "reads"]),
        ("HEAD", ["pro", "reads"]),
        ("POST", ["pro", "writes"]),
        ("PUT", ["pro", "writes"]),
        ("PATCH", ["pro"]),
        ("", ["pro"]),
    ],
)
def test_methods_select_their_limits_beside_those_for_every_method_and_head_counts_as_get(method, met, make_plan):
    plan = make_plan("pro")
    plan.limits.create(name="reads", requests=1, burst=1, methods="GET")
    plan.limits.create(name="writes", requests=1, burst=1, methods="POST,PUT")
    assert names(plan.pk, method=method) == met


@pytest.mark.parametrize("audience", ["keys", "everyone"])
def test_of_a_limit_per_everyone_one_shard_is_picked_each_as_often_as_the_others(audience, make_plan):
    plan = make_plan("cap", 1_000, 1, 105, audience=audience, per="everyone", shards=10)
    picked: Counter[int] = Counter()
    for _ in range(10_000):
        [limit] = plan_cache.table().select(plan.pk, scope="", method="GET", mode="enforce")
        picked[limit.shard] += 1
        assert limit.burst in (10, 11)
    assert sorted(picked) == list(range(1, 11))
    assert all(800 < times < 1_200 for times in picked.values())  # six standard deviations


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"])
def test_the_shards_of_a_limit_together_are_the_limit(algorithm, make_plan):
    make_plan("cap", 107, 60, 33, audience="everyone", per="everyone", shards=10, algorithm=algorithm)
    [limit] = plan_cache.table().everyone
    assert len(limit.parts) == 10
    assert sum(part.capacity for part in limit.parts) == limit.capacity
    rate = sum(Fraction(TICKS_PER_SECOND, part.interval_ticks) for part in limit.parts)
    assert rate <= Fraction(107, 60)
    assert rate > Fraction(107, 60) * Fraction(999_999, 1_000_000)


def test_a_limit_that_is_not_per_everyone_has_no_shards(make_plan):
    plan = make_plan("pro", burst=3, shards=10)
    [limit] = plan_cache.table().select(plan.pk, scope="", method="GET", mode="enforce")
    assert (limit.shards, limit.shard, limit.burst) == (1, 0, 3)


def test_limits_that_are_off_are_not_weighed_and_shadow_for_all_makes_all_shadow(make_plan):
    plan = make_plan("pro")
    plan.limits.create(name="off", requests=1, burst=1, mode="off")
    assert names(plan.pk) == ["pro"]
    [limit] = plan_cache.table().select(plan.pk, scope="", method="GET", mode="shadow")
    assert limit.mode == "shadow"


def test_callers_without_a_key_get_the_plan_for_them(make_plan):
    anonymous = make_plan("guests", audience="anonymous")
    table = plan_cache.table()
    assert table.plan_id(Caller(address="a")) == anonymous.pk
    assert table.plan_id(Caller(plan_id=7)) == 7


def test_a_snapshot_cannot_be_changed(plan):
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan_cache.table().version = 5  # type: ignore[misc]


# --- When it is read -----------------------------------------------------------------------------------


def test_a_warm_table_costs_no_query(plan, django_assert_num_queries):
    assert not plan_cache.is_warm()
    plan_cache.table()
    assert plan_cache.is_warm()
    with django_assert_num_queries(0):
        for _ in range(100):
            names(plan.pk)


def test_the_number_of_queries_does_not_depend_on_the_number_of_plans(make_plan, django_assert_max_num_queries):
    for number in range(20):
        make_plan(f"plan {number}")
    with django_assert_max_num_queries(3):
        plan_cache.table()


def test_raw_sql_is_seen_once_the_table_expired(plan, configure, wait_until):
    configure(CACHE_TTL_SECONDS=0.05)
    plan_cache.table()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ratelimit_app_planlimit SET burst = 9")
    wait_until(lambda: plan_cache.table().limits[plan.pk][0].burst == 9)


@pytest.mark.django_db(transaction=True)
def test_threads_never_see_half_an_edit(make_plan, configure):
    plan = make_plan("pro", 1, 60, 1)
    plan.limits.create(name="second", requests=1, burst=1)
    configure(CACHE_TTL_SECONDS=0.001)
    seen, ended = set(), threading.Event()
    plan_cache.table()

    def look() -> None:
        while not ended.is_set():
            limits = plan_cache.table().select(plan.pk, scope="", method="GET", mode="enforce")
            seen.add(tuple(limit.burst for limit in limits))
        connection.close()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for burst in range(2, 12):
        PlanLimit.objects.update(burst=burst)
    ended.set()
    for thread in threads:
        thread.join()
    assert all(len(bursts) == 2 and len(set(bursts)) == 1 for bursts in seen), seen


# --- When the database is gone ---------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_last_good_snapshot_goes_on_serving_when_the_database_is_gone(plan, caplog):
    before = plan_cache.table()
    with unreadable():
        plan_cache.forget()
        for _ in range(5):
            assert plan_cache.table() is before
    assert caplog.text.count("Plans cannot be read") == 1  # it is not asked again at once
    plan_cache.forget()
    assert plan_cache.table() is not before


@pytest.mark.django_db(transaction=True)
def test_without_any_snapshot_a_database_that_is_gone_is_an_error_of_the_database(plan):
    with unreadable(), pytest.raises(DatabaseError):
        plan_cache.table()
    assert names(plan.pk) == [plan.slug]


@pytest.mark.django_db(transaction=True)
def test_while_one_thread_reads_the_others_go_on_with_the_last_snapshot(plan):
    before = plan_cache.table()
    reading, go_on, answers = threading.Event(), threading.Event(), []

    def slowly(execute, sql, params, many, context):
        reading.set()
        assert go_on.wait(10)
        return execute(sql, params, many, context)

    def read() -> None:
        with connection.execute_wrapper(slowly):
            answers.append(plan_cache.table())
        connection.close()

    plan_cache.forget()
    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(10)
    assert plan_cache.table() is before
    go_on.set()
    reader.join()
    assert answers[0] is not before
