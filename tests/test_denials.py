"""Is a caller who is out of tokens refused without a trip, and never one who is not?"""

import time

import pytest

from ratelimit_app import buckets, denials, limiter
from ratelimit_app.limits import Caller, Limit
from tests.outages import redis_at


@pytest.fixture
def caller(make_plan, make_key):
    return make_key(make_plan(requests=60, period_seconds=60, burst=2))[0].as_caller()


def script_calls(client):
    return client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


def spend_all(caller):
    while limiter.check(caller).allowed:
        pass


def test_a_caller_out_of_tokens_costs_no_trip(caller, redis_server):
    server = redis_server()  # nobody else's calls are counted there
    with redis_at(server.url), server.client() as client:
        spend_all(caller)
        before = script_calls(client)
        again = [limiter.check(caller) for _ in range(10)]
        assert script_calls(client) == before
    assert {decision.source for decision in again} == {"denied-cache"}
    assert not any(decision.allowed for decision in again)


def test_a_remembered_refusal_says_what_the_bucket_would(caller):
    spend_all(caller)
    remembered, asked = limiter.check(caller), limiter.peek(caller)
    assert remembered.refused_by == asked.refused_by
    assert remembered.remaining == asked.remaining == 0
    assert remembered.retry_after_seconds == asked.retry_after_seconds == 1
    assert remembered.receipt


def test_it_never_refuses_what_the_bucket_would_have_let_through(caller, wait_until):
    spend_all(caller)
    wait_until(lambda: limiter.peek(caller).allowed, seconds=5)
    assert limiter.check(caller).allowed


def test_another_cost_and_another_caller_are_asked(caller, make_plan, make_key):
    other = make_key(make_plan("Other", 60, 60, 2))[0].as_caller()
    spend_all(caller)
    assert limiter.check(caller, cost=0).allowed
    assert limiter.check(other).source == "redis"


def test_a_cost_above_the_burst_is_remembered_as_never(caller):
    assert limiter.check(caller, cost=3).source == "redis"
    decision = limiter.check(caller, cost=3)
    assert (decision.source, decision.allowed, decision.retry_after_seconds) == ("denied-cache", False, None)


@pytest.mark.parametrize("relief", ["reset", "refund"])
def test_a_reset_or_refund_is_felt_at_once(caller, relief):
    taken = limiter.check(caller)
    spend_all(caller)
    assert limiter.check(caller).source == "denied-cache"
    if relief == "reset":
        limiter.reset(caller)
    else:
        limiter.refund(taken)
    assert limiter.check(caller).allowed


def test_a_plan_edit_is_felt_at_once(caller, django_capture_on_commit_callbacks):
    from ratelimit_app.models import PlanLimit

    spend_all(caller)
    assert limiter.check(caller).source == "denied-cache"
    with django_capture_on_commit_callbacks(execute=True):
        PlanLimit.objects.update(mode="shadow")
    assert limiter.check(caller).allowed


def test_a_denial_is_believed_for_a_second_at_most():
    slow = Limit(id=1, name="slow", requests=1, period_seconds=86_400, burst=1)
    who = Caller(key_id=1, plan_id=1, bucket_identity="slow")
    buckets.take((slow,), who)
    asked_at = time.monotonic()
    denials.note(buckets.take((slow,), who), who, asked_at=asked_at)
    [denial] = denials._denials.values()
    assert denial.until == pytest.approx(asked_at + denials.LONGEST_SECONDS)


def test_a_limit_in_shadow_denies_nobody():
    shadow = Limit(id=1, name="shadow", requests=1, period_seconds=86_400, burst=1, mode="shadow")
    who = Caller(key_id=1, plan_id=1, bucket_identity="shadow")
    for _ in range(3):
        denials.note(buckets.take((shadow,), who), who, asked_at=time.monotonic())
    assert denials.find((shadow,), who, cost=1) is None


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(denials, "_REMEMBERED", 10)
    limit = Limit(id=1, name="one", requests=1, period_seconds=60, burst=1)
    for number in range(30):
        who = Caller(key_id=number, plan_id=1, bucket_identity=f"caller {number}")
        buckets.take((limit,), who)
        denials.note(buckets.take((limit,), who), who, asked_at=time.monotonic())
    assert len(denials._denials) == 10
    assert denials.find((limit,), who, cost=1) is not None
