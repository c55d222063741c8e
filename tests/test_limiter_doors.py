"""When two doors ask about one request, is it one answer? Charged once, counted once, given back on a later refusal."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit_app import buckets, connections, limiter, plan_cache
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.models import Plan, PlanLimit
from tests import asking, brokers
from tests.asking import Check, caller
from tests.outages import REFUSING, redis_at

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)
check = pytest.fixture(asking.check, params=asking.BOTH)
counted = pytest.fixture(asking.counted)


@pytest.fixture
def two_limits(make_plan) -> Plan:
    """A plan of three, behind five per address for everyone."""
    make_plan("door", audience="everyone", burst=5, per="address")
    return make_plan("pro")


def edit(name: str, **values: Any) -> None:
    PlanLimit.objects.filter(name=name).update(**values)
    plan_cache.forget()
    plan_cache.table()


def both_doors(check: Check, plan: Plan) -> Decision:
    first = check(caller(plan), only_address=True)
    if not first.allowed:
        return first
    assert first.provisional
    return check(caller(plan), earlier=first)


def left(plan: Plan) -> dict[str, int]:
    return {weighed.limit.name: weighed.remaining for weighed in limiter.peek(caller(plan)).weighed}


def test_what_two_doors_weighed_is_charged_once_and_counted_once(check, two_limits, counted):
    decision = both_doors(check, two_limits)
    assert [weighed.limit.name for weighed in decision.weighed] == ["door", "pro"]
    assert not decision.provisional
    assert left(two_limits) == {"door": 4, "pro": 2}
    assert counted() == {"allowed": 1}
    again = check(caller(two_limits), earlier=decision)
    assert again.weighed == decision.weighed
    assert left(two_limits) == {"door": 4, "pro": 2}


def test_a_later_refusal_gives_back_what_the_earlier_door_took(check, two_limits, counted):
    answers = [both_doors(check, two_limits) for _ in range(6)]
    assert [answer.allowed for answer in answers] == [True, True, True, False, False, False]
    assert left(two_limits) == {"door": 2, "pro": 0}
    assert [(w.limit.name, w.remaining) for w in answers[-1].weighed] == [("door", 2), ("pro", 0)]
    assert answers[-1].refused_by is not None
    assert answers[-1].refused_by.name == "pro"
    assert counted() == {"allowed": 3, "refused": 3}


def test_a_refusal_by_address_is_final_and_counted(check, two_limits, counted):
    edit("pro", burst=50)
    answers = [both_doors(check, two_limits) for _ in range(6)]
    assert [answer.allowed for answer in answers] == [True] * 5 + [False]
    assert not answers[-1].provisional
    assert counted() == {"allowed": 5, "refused": 1}


def test_nothing_is_lost_when_redis_goes_between_two_doors(check, two_limits, counted):
    first = check(caller(two_limits), only_address=True)
    with redis_at(REFUSING):
        decision = check(caller(two_limits), earlier=first)
    assert (decision.allowed, decision.source) == (True, "local")
    assert counted() == {"allowed": 1, "local": 1}


def test_a_closed_limit_behind_a_checked_one_is_a_503_though_nothing_can_be_given_back(check, two_limits, counted):
    edit("pro", on_failure="closed")
    first = check(caller(two_limits), only_address=True)
    with redis_at(REFUSING):
        decision = check(caller(two_limits), earlier=first)
    assert (decision.allowed, decision.source) == (False, "unchecked")
    assert counted() == {"failed_closed": 1}


def test_an_unchecked_first_door_makes_the_whole_answer_unchecked(check, two_limits, counted):
    edit("door", on_failure="open")
    with redis_at(REFUSING):
        first = check(caller(two_limits), only_address=True)
    decision = check(caller(two_limits), earlier=first)
    assert (decision.allowed, decision.source) == (True, "unchecked")
    assert counted() == {"unchecked": 1}


def test_the_moment_of_a_decision_stays_that_of_redis_when_the_second_door_adds_nothing(check, two_limits):
    first = check(caller(two_limits), only_address=True)._replace(decided_ticks=1_000_000)
    stranger = Caller(address="203.0.113.9")
    assert check(stranger, earlier=first).decided_ticks == 1_000_000


@pytest.mark.parametrize("failure", [connections.Unavailable("timeout"), KeyError("x"), OSError()])
def test_giving_back_may_fail_without_failing_the_request(failure, two_limits, monkeypatch):
    first = limiter.check(caller(two_limits), only_address=True)
    limiter.check(caller(two_limits), cost=3)

    def fail(decision: Decision) -> None:
        raise failure

    monkeypatch.setattr(buckets, "refund", fail)
    assert not limiter.check(caller(two_limits), earlier=first).allowed
