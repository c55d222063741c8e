"""Whose requests share a limit? Those of a key, a user, an address or everyone, on all routes or some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app.decorators import ratelimited
from ratelimit_app.models import Plan
from tests import doors, urls
from tests.admin_pages import PLANS, plan_form
from tests.doors import PLAIN, Clock, every_door, limits_of, problem, retry_after, statuses

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

Send = Callable[..., Any]


class Exports(APIView):
    throttle_scope = "exports"

    def get(self, request: Request) -> Response:
        return Response({})

    post = get


@csrf_exempt
@ratelimited(scope="exports")
def exports(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


urlpatterns = [*urls.urlpatterns, path("api/exports/", Exports.as_view()), path("plain/exports/", exports)]

both_exports = pytest.mark.parametrize("url", ["/api/exports/", "/plain/exports/"])


@pytest.fixture
def clock() -> Iterator[Clock]:
    with doors.stopped_clock() as stopped:
        yield stopped


@pytest.fixture
def send() -> Send:
    """`send("/plain/ping/", key, address="203.0.113.9")`; without a key, a stranger."""

    def request(url: str, key: str = "", *, method: str = "GET", address: str = "192.0.2.1") -> Any:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Client(raise_request_exception=False).generic(method, url, headers=headers, REMOTE_ADDR=address)

    return request


# --- Per key, user, address ---------------------------------------------------------------------


@every_door
def test_each_key_has_tokens_of_its_own(door, plan, make_key, django_user_model, clock) -> None:
    owner = django_user_model.objects.create_user("ann")
    (_, first), (_, second) = make_key(plan, owner=owner), make_key(plan, owner=owner)

    assert [door.drain(first), door.drain(second)] == [3, 3]


@every_door
def test_keys_of_one_owner_share_a_limit_per_user(door, make_plan, make_key, django_user_model, clock) -> None:
    ann, bob = (django_user_model.objects.create_user(name) for name in ("ann", "bob"))
    plan = make_plan(per="user")
    keys = [make_key(plan, owner=owner)[1] for owner in (ann, ann, bob)]

    assert door.send(keys[0]).status_code == 200
    assert [door.drain(key) for key in keys] == [2, 0, 3]


def test_who_is_signed_in_shares_a_limit_per_user_with_his_keys(make_plan, make_key, django_user_model, clock) -> None:
    ann = django_user_model.objects.create_user("ann")
    make_plan("People", audience="everyone", per="user")
    make_plan("Visitors", audience="anonymous", burst=1_000)
    _, key = make_key(make_plan("Pro", burst=1_000), owner=ann)
    signed_in, stranger = Client(), Client()
    signed_in.force_login(ann)

    assert signed_in.get("/open/ping/").status_code == 200
    assert PLAIN.drain(key) == 2
    refused = signed_in.get("/open/ping/")
    assert problem(refused)["violated-policies"] == ["people"]
    assert stranger.get("/open/ping/").status_code == 200


def test_keys_without_an_owner_share_nothing_under_a_limit_per_user(make_plan, make_key, clock) -> None:
    plan = make_plan(per="user")

    assert [PLAIN.drain(make_key(plan)[1]) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize(
    ("ipv6_prefix", "same", "other"),
    [
        (64, "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"),
        (48, "2001:db8:0:2::1", "2001:db8:1::1"),
        (128, "2001:db8:0:1:0:0:0:1", "2001:db8:0:1::2"),
    ],
)
def test_addresses_of_one_ipv6_network_share_a_limit_per_address(
    make_plan, send, configure, clock, ipv6_prefix, same, other
) -> None:
    configure(IPV6_PREFIX=ipv6_prefix)
    make_plan("Visitors", audience="anonymous", per="address", burst=2)

    asked = ["2001:db8:0:1::1", same, "2001:db8:0:1::1", same, other]

    assert statuses([send("/open/ping/", address=each) for each in asked]) == [200, 200, 429, 429, 200]


def test_two_ipv4_addresses_share_nothing(make_plan, send, clock) -> None:
    make_plan("Visitors", audience="anonymous", per="address", burst=1)

    asked = ["203.0.113.1", "203.0.113.1", "203.0.113.2"]

    assert statuses([send("/open/ping/", address=each) for each in asked]) == [200, 429, 200]


# --- Per route and method -----------------------------------------------------------------------


@pytest.fixture
def three_rows(make_plan, make_key) -> str:
    """1,000 a minute per key, but 10 on exports, and 200,000 a second for the platform; a key on it."""
    pro = make_plan("Pro", 1_000, 60, 1_000)
    pro.limits.create(name="exports", requests=10, period_seconds=60, burst=10, scope="exports")
    make_plan("Platform", 200_000, 1, 200_000, audience="everyone", per="everyone")
    return str(make_key(pro)[1])


@both_exports
def test_three_rows_say_a_thousand_a_minute_but_ten_exports(three_rows, send, clock, url) -> None:
    answers = [send(url, three_rows) for _ in range(11)]

    assert statuses(answers) == [200] * 10 + [429]
    assert problem(answers[-1])["violated-policies"] == ["exports"]
    assert limits_of(answers[0]) == ["pro", "exports"]
    assert answers[-1]["X-RateLimit-Limit"] == "10"
    assert retry_after(answers[-1]) == 6
    ping = send("/plain/ping/", three_rows)
    assert (ping.status_code, ping["X-RateLimit-Remaining"]) == (200, "989"), "the refused export was charged"
    assert limits_of(ping) == ["pro"]


@both_exports
def test_a_limit_can_cover_some_methods_of_a_route(make_plan, make_key, admin_client, send, clock, url) -> None:
    form = plan_form(name="writes", requests="2", burst="2", scope="exports", methods=" post, put ")
    assert admin_client.post(PLANS + "add/", form).status_code == 302
    plan = Plan.objects.get(slug="free")
    plan.limits.create(name="all", requests=100, period_seconds=60, burst=100)
    _, key = make_key(plan)

    posts = [send(url, key, method="POST") for _ in range(3)]

    assert plan.limits.get(name="writes").methods == "POST,PUT"
    assert statuses(posts) == [200, 200, 429]
    assert problem(posts[-1])["violated-policies"] == ["writes"]
    assert send(url, key).status_code == 200
    assert limits_of(send(url, key)) == ["all"]
    assert send("/api/ping/", key, method="POST").status_code == 200


def test_head_counts_as_get(make_plan, make_key, send, clock) -> None:
    _, key = make_key(make_plan(burst=2, methods="GET"))

    asked = ["GET", "HEAD", "HEAD", "GET", "POST"]

    assert statuses([send("/plain/ping/", key, method=method) for method in asked]) == [200, 200, 429, 429, 200]
