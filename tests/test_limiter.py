"""Does every question get one answer, counted once, whatever breaks? The limiter itself, sync and async."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import OperationalError

from ratelimit_app import limiter, plan_cache
from ratelimit_app.buckets import questions
from ratelimit_app.limits import Caller
from tests import asking, brokers
from tests.asking import caller
from tests.outages import REFUSING, ScriptedServer, redis_at
from tests.test_plan_cache import unreadable

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)

check = pytest.fixture(asking.check, params=asking.BOTH)
counted = pytest.fixture(asking.counted)


# --- The path --------------------------------------------------------------------------------------------


def test_requests_are_allowed_until_the_bucket_is_empty_and_each_is_counted_once(check, plan, counted):
    answers = [check(caller(plan)) for _ in range(5)]
    assert [answer.allowed for answer in answers] == [True, True, True, False, False]
    assert [answer.remaining for answer in answers] == [2, 1, 0, 0, 0]
    assert [bool(answer.receipt) for answer in answers] == [False, False, False, True, True]
    assert answers[3].receipt != answers[4].receipt
    assert [answer.source for answer in answers] == ["redis"] * 4 + ["denied-cache"]
    assert counted() == {"allowed": 3, "refused": 2}


def test_a_caller_without_any_limit_passes_unasked_and_uncounted(check, counted):
    with ScriptedServer(b"") as server, redis_at(server.url):
        decision = check(Caller(address="203.0.113.9"))
        assert (decision.allowed, decision.source, server.questions) == (True, "off", 0)
    assert counted() == {}


@pytest.mark.parametrize("cost", [-1, 1.0, True, "1", None])
def test_a_cost_that_is_no_whole_number_is_a_mistake_of_the_program(check, cost, plan):
    with pytest.raises(ValueError):
        check(caller(plan), cost=cost)


def test_peek_refund_and_reset_are_for_people_who_help_callers(plan, counted):
    spent = limiter.check(caller(plan), cost=2)
    counted()
    assert [limiter.peek(caller(plan)).remaining for _ in range(3)] == [1, 1, 1]
    assert not limiter.peek(caller(plan), cost=2).allowed
    limiter.refund(spent)
    assert limiter.peek(caller(plan)).remaining == 3
    limiter.check(caller(plan), cost=3)
    limiter.reset(caller(plan))
    assert limiter.peek(caller(plan)).remaining == 3
    assert counted() == {"allowed": 1}


def test_a_reset_fills_the_buckets_of_every_scope_and_of_the_plans_for_everyone(make_plan):
    plan = make_plan("pro")
    plan.limits.create(name="search", requests=1, period_seconds=3600, burst=1, scope="search")
    make_plan("all", audience="everyone", burst=1, per="address")
    assert limiter.check(caller(plan), scope="search").allowed
    assert not limiter.check(caller(plan), scope="search").allowed
    limiter.reset(caller(plan))
    assert limiter.check(caller(plan), scope="search").allowed


# --- The switch --------------------------------------------------------------------------------------------


def test_the_switch_acts_at_once_in_both_directions(check, plan, configure, counted):
    for _ in range(3):
        check(caller(plan))
    assert not check(caller(plan)).allowed
    configure(MODE="shadow")
    watched = check(caller(plan))
    assert (watched.allowed, len(watched.would_refuse), watched.tightest) == (True, 1, None)
    configure(MODE="off")
    off = check(caller(plan))
    assert (off.allowed, off.source, off.weighed) == (True, "off", ())
    configure(MODE="enforce")
    assert not check(caller(plan)).allowed
    assert counted() == {"allowed": 4, "would_refuse": 1, "refused": 2}


def test_in_shadow_nothing_fails_closed(check, make_plan, configure):
    closed = make_plan("login", on_failure="closed")
    configure(MODE="shadow")
    with redis_at(REFUSING):
        assert check(caller(closed)).allowed


# --- When something breaks -----------------------------------------------------------------------------------

BROKEN_REPLIES = [
    b"",
    b"+OK\r\n",
    b"-OOM command not allowed\r\n",
    b"-READONLY\r\n",
    b"garbage\r\n",
    b"*2\r\n:1\r\n",
    None,
]


@pytest.mark.parametrize("reply", BROKEN_REPLIES, ids=repr)
def test_whatever_redis_answers_a_request_ends_as_open_or_closed_and_is_counted(check, reply, make_plan, counted):
    open_plan, closed_plan = make_plan("open", on_failure="open"), make_plan("closed", on_failure="closed")
    with ScriptedServer(reply) as server, redis_at(server.url, TIMEOUT_SECONDS=0.1):
        passed, stopped = check(caller(open_plan)), check(caller(closed_plan))
    assert (passed.allowed, passed.source, passed.remaining) == (True, "unchecked", None)
    assert (stopped.allowed, stopped.source, stopped.retry_after_seconds) == (False, "unchecked", None)
    assert stopped.refused_by is not None
    assert stopped.refused_by.name == "closed"
    assert passed.failure
    assert stopped.receipt
    assert counted() == {"unchecked": 1, "failed_closed": 1}


def test_a_shadow_limit_never_closes(check, make_plan):
    plan = make_plan("login", on_failure="closed", mode="shadow")
    with redis_at(REFUSING):
        assert check(caller(plan)).allowed


def test_limiting_resumes_by_itself(check, plan):
    with redis_at(REFUSING):
        assert check(caller(plan)).source == "local"
    assert check(caller(plan)).remaining == 2


@pytest.mark.parametrize("failure", [OperationalError("gone"), MemoryError(), KeyError("x"), RecursionError()])
def test_a_failure_that_nobody_foresaw_is_decided_from_memory_and_is_logged(
    check, failure, plan, monkeypatch, caplog, counted
):
    def fail(*args: Any, **options: Any) -> Any:
        raise failure

    plan_cache.table()
    limiter._logged_at.clear()
    monkeypatch.setattr(questions, "address_of", fail)
    decision = check(caller(plan))
    assert (decision.allowed, decision.source) == (True, "local")
    assert decision.failure == type(failure).__name__
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info
    assert counted() == {"allowed": 1, "local": 1}


def test_with_the_database_gone_before_any_snapshot_requests_pass_unchecked(plan, counted, transactional_db):
    with unreadable():
        decision = limiter.check(caller(plan))
    assert (decision.allowed, decision.source) == (True, "unchecked")
    assert counted() == {"unchecked": 1}
    assert limiter.check(caller(plan)).remaining == 2


async def test_async_code_with_a_cold_plan_table_passes_unchecked_instead_of_failing():
    assert (await limiter.acheck(Caller(plan_id=1, bucket_identity="one"))).allowed


def test_an_outage_is_logged_once_in_a_while_and_not_for_every_request(plan, caplog):
    limiter._logged_at.clear()
    with redis_at(REFUSING):
        for _ in range(20):
            limiter.check(caller(plan))
    logged = [record.message.split(":")[0] for record in caplog.records if record.levelno >= logging.ERROR]
    assert logged == ["Requests are decided without Redis", "Redis is not asked any more until it answers a probe"]


def test_a_cache_alias_that_is_missing_leaves_the_decision_to_memory(check, plan, configure):
    configure(CACHE="nowhere")
    try:
        assert check(caller(plan)).source == "local"
    finally:
        configure(CACHE="ratelimit")


def test_what_a_limit_counts_follows_the_caller(make_plan):
    plan = make_plan("pro", per="user", burst=1)
    assert limiter.check(caller(plan, user_id="7", bucket_identity="a")).allowed
    assert not limiter.check(caller(plan, user_id="7", bucket_identity="b")).allowed
    assert limiter.check(caller(plan, user_id="8", bucket_identity="b")).allowed
