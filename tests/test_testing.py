"""Can the tests of a project that uses the app start clean? By one documented call."""

from __future__ import annotations

import threading

import pytest
from django.test import TestCase

from ratelimit_app import allow, changes, connections, key_cache, plan_cache, testing, usage
from ratelimit_app.models import APIKey, Plan, PlanLimit
from tests.outages import REFUSING, redis_at

pytestmark = pytest.mark.django_db


class TestsOfAProject(TestCase):
    """As a project would write them: either may run first."""

    def setUp(self) -> None:
        testing.reset()
        plan = Plan.objects.create(name="Small", slug="small")
        plan.limits.create(name="small", requests=1, period_seconds=3600, burst=2)
        _, self.key = APIKey.objects.create_key(plan=plan, name="mine")

    def test_one_drains_its_key(self):
        assert [allow(self.key) for _ in range(3)] == [True, True, False]

    def test_another_starts_with_a_full_bucket(self):
        assert [allow(self.key) for _ in range(3)] == [True, True, False]

    def test_after_an_edit_inside_a_test_case_a_reset_shows_it(self):
        assert allow(self.key)
        PlanLimit.objects.update(burst=5)
        testing.reset()
        assert [allow(self.key) for _ in range(6)] == [True] * 5 + [False]


def test_a_reset_fills_every_bucket_and_says_how_many_there_were(plan, make_key):
    _, first = make_key(plan)
    _, second = make_key(plan)
    for key in (first, first, second):
        allow(key)
    assert testing.reset() == 2
    assert testing.reset() == 0
    assert [allow(first) for _ in range(4)] == [True, True, True, False]


def test_a_reset_forgets_plans_keys_and_uncounted_usage(plan, make_key):
    _, key = make_key(plan)
    allow(key)
    assert plan_cache.is_warm()
    testing.reset()
    assert not plan_cache.is_warm()
    assert key_cache.cached(key) == (None, False)
    assert usage.state().records == 0


def test_a_reset_leaves_what_others_keep_in_the_same_redis_alone(redis_client, prefix, plan, make_key):
    others = [f"{prefix}-other:x", f"other-{prefix}:x"]
    for name in others:
        redis_client.set(name, "1", ex=60)
    allow(make_key(plan)[1])
    testing.reset()
    assert all(redis_client.exists(name) for name in others)


def test_a_reset_ends_the_watching_thread(configure, wait_until):
    def watching() -> int:
        return sum(thread.name == "ratelimit_app.changes" for thread in threading.enumerate())

    configure(POLL_SECONDS=0.05)
    before = watching()
    changes.watch()
    assert watching() == before + 1
    testing.reset()
    wait_until(lambda: watching() <= before)


def test_without_redis_a_reset_says_so():
    with redis_at(REFUSING), pytest.raises(connections.Unavailable):
        testing.reset()
