"""How is it used? The public API in ten small steps, to be read from top to bottom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.http import JsonResponse
from django.test import Client, RequestFactory
from django.utils import timezone

from ratelimit_app import allow, limiter, testing
from ratelimit_app.decorators import ratelimited
from ratelimit_app.limits import Caller
from ratelimit_app.models import APIKey, Plan

pytestmark = pytest.mark.django_db


@pytest.fixture
def pro() -> Plan:
    """A plan is a row with limits: here sixty a minute, twenty of them at once."""
    plan = Plan.objects.create(name="Pro", slug="pro")
    plan.limits.create(name="pro", requests=60, period_seconds=60, burst=20)
    return plan


@pytest.fixture
def key(pro: Plan) -> str:
    """A key's text is returned once, when the key is created; it is stored nowhere."""
    _row, text = APIKey.objects.create_key(plan=pro, name="Ada's laptop")
    return text


@pytest.fixture
def caller(key: str) -> Caller:
    return APIKey.objects.get().as_caller()


def test_1_ask_whether_a_caller_may_make_a_request(key):
    assert allow(key)
    assert allow(key, cost=19)
    assert not allow(key)
    assert not allow("no such key")


def test_2_ask_for_the_whole_decision(caller):
    decision = limiter.check(caller, cost=5)
    assert decision.allowed
    assert decision.remaining == 15

    refused = limiter.check(caller, cost=17)
    assert not refused.allowed
    assert refused.refused_by is not None
    assert refused.refused_by.name == "pro"
    assert refused.retry_after_seconds == 2


def test_3_look_without_charging_give_back_and_fill_up(caller):
    decision = limiter.check(caller, cost=5)
    assert limiter.peek(caller).remaining == 15
    limiter.refund(decision)
    assert limiter.peek(caller).remaining == 20
    limiter.check(caller, cost=20)
    limiter.reset(caller)
    assert limiter.peek(caller).remaining == 20


def test_4_drf_views_are_limited_by_the_default_classes(client: Client, key):
    answer = client.get("/api/items/", headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200
    assert answer["X-RateLimit-Remaining"] == "19"
    assert client.get("/api/items/").status_code == 401


def test_5_plain_views_are_limited_by_the_paths_of_the_settings(client: Client, key, settings):
    assert settings.RATELIMIT_APP["PATHS"]["/plain/"] == "required"
    assert client.get("/plain/ping/", headers={"X-API-Key": key})["X-RateLimit-Remaining"] == "19"


def test_6_a_single_view_is_limited_by_a_decorator(key):
    @ratelimited(cost=20)
    def report(request: Any) -> JsonResponse:
        return JsonResponse({"left": request.ratelimit.remaining})

    request = RequestFactory().get("/report/", headers={"X-API-Key": key})
    assert report(request).content == b'{"left": 0}'
    again = report(RequestFactory().get("/report/", headers={"X-API-Key": key}))
    assert (again.status_code, again["Retry-After"]) == (429, "20")


def test_7_a_limit_with_a_scope_counts_only_where_the_view_names_it(client: Client, pro, key):
    pro.limits.create(name="search", requests=1, period_seconds=3600, burst=1, scope="search")
    headers = {"Authorization": f"Bearer {key}"}
    assert [client.get("/api/search/", headers=headers).status_code for _ in range(2)] == [200, 429]
    assert client.get("/api/items/", headers=headers).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_8_edits_and_revocations_act_as_soon_as_they_are_committed(pro, key):
    assert allow(key, cost=10)  # half of the plan
    pro.limits.update(burst=10)
    assert not allow(key, cost=6)
    assert allow(key, cost=5)  # half of the new one is left
    APIKey.objects.filter(name="Ada's laptop").revoke()
    assert not allow(key)


def test_9_a_key_may_expire_and_a_limit_may_only_watch(pro):
    yesterday = timezone.now() - timedelta(days=1)
    _row, expired = APIKey.objects.create_key(plan=pro, name="old", expires_at=yesterday)
    assert not allow(expired)

    pro.limits.update(mode="shadow")
    row, _key = APIKey.objects.create_key(plan=pro, name="new")
    decision = limiter.check(row.as_caller(), cost=21)
    assert decision.allowed
    assert [weighed.limit.name for weighed in decision.would_refuse] == ["pro"]


def test_10_tests_of_a_project_start_with_full_buckets(key):
    assert allow(key, cost=20)
    testing.reset()
    assert allow(key, cost=20)
