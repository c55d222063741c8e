"""Does every request meet its limits once, at whichever door? Over HTTP, with the middleware and without."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import denials, usage
from ratelimit_app.authentication import APIKeyAuthentication
from ratelimit_app.decorators import exempt, ratelimited
from ratelimit_app.models import APIKey
from tests import brokers, decisions, urls
from tests.outages import REFUSING, redis_at, redis_is_asked
from tests.test_plan_cache import unreadable

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
broker = pytest.fixture(brokers.chosen)

JUNK = "rl_live_junk"


# --- Views ---------------------------------------------------------------------------------------------------


class Mixed(APIView):
    """Keys and sessions both come in."""

    authentication_classes = [APIKeyAuthentication, SessionAuthentication]
    permission_classes = [AllowAny]

    def get(self, request: Request) -> Response:
        return Response({"key": isinstance(request.auth, APIKey), "user": getattr(request.user, "username", "")})


class SessionFirst(Mixed):
    authentication_classes = [SessionAuthentication, APIKeyAuthentication]


class Ping(APIView):
    def get(self, request: Any) -> Response:
        return Response({"left": request.ratelimit.remaining if request.ratelimit else None})


@method_decorator(ratelimited, name="dispatch")
class DecoratedClass(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({})


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter([b"one", b"two"]))


urlpatterns = [
    *urls.urlpatterns,
    path("mixed/", Mixed.as_view()),
    path("session-first/", SessionFirst.as_view()),
    path("drf/", Ping.as_view()),
    path("drf-exempt/", exempt(Ping.as_view())),
    path("drf-decorated/", ratelimited(Ping.as_view())),
    path("class/", DecoratedClass.as_view()),
    path("plain/stream/", stream),
]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def send(client):
    """`send("/plain/ping/", key)`: the status and the answer."""

    def request(url: str, key: str | None = None, *, method: str = "GET", **options: Any) -> Any:
        headers = {**(bearer(key) if key else {}), **options.pop("headers", {})}
        return client.generic(method, url, headers=headers, **options)

    client.raise_request_exception = False
    return request


def statuses(send: Any, url: str, key: str | None = None, *, times: int, **options: Any) -> list[int]:
    return [send(url, key, **options).status_code for _ in range(times)]


PROTECTED = ["/plain/ping/", "/api/ping/", "/api/late/ping/", "/decorated/", "/class/", "/drf/"]


def cost_of(url: str) -> int:
    return 2 if url == "/decorated/" else 1


# --- Limits per address ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", PROTECTED)
@pytest.mark.parametrize("key", [None, JUNK])
def test_limits_per_address_stand_in_front_of_every_401(url, key, make_plan, send):
    make_plan("door", audience="everyone", per="address", burst=2 * cost_of(url))
    assert statuses(send, url, key, times=3) == [401, 401, 429]


@pytest.mark.parametrize("url", PROTECTED)
def test_an_address_limit_is_charged_once_beside_the_plan(url, make_plan, make_key, send):
    make_plan("door", audience="everyone", per="address", burst=9)
    _, key = make_key(make_plan("pro", burst=9))
    for requests in (1, 2):  # cold, then warm
        answer = send(url, key)
        assert answer.status_code == 200
        left = re.findall(r'"(\w+)";r=(\d+)', answer["RateLimit"])
        assert sorted(left) == [(name, str(9 - requests * cost_of(url))) for name in ("door", "pro")]


def test_a_refusal_by_the_plan_spends_nothing_of_the_address(make_plan, make_key, send):
    make_plan("door", audience="everyone", per="address", burst=9)
    _, key = make_key(make_plan("pro", burst=1))
    for url in ("/plain/ping/", "/api/late/ping/"):
        assert statuses(send, url, key, times=3)[1:] == [429, 429]
    denials.forget()  # which remembers only the limit that refuses
    assert 'door";r=8' in send("/plain/ping/", key)["RateLimit"]


def test_a_path_that_leads_nowhere_meets_limits_per_address_only(make_plan, make_key, send):
    make_plan("door", audience="everyone", per="address", burst=3)
    _, key = make_key(make_plan("pro", burst=9))
    assert statuses(send, "/nowhere/", key, times=4) == [404, 404, 404, 429]
    answer = send("/nowhere/", key)
    assert answer["Content-Type"] == "application/problem+json"
    assert "pro" not in answer["RateLimit"]


def test_views_outside_of_the_paths_meet_limits_per_address_only(make_plan, make_key, send):
    make_plan("door", audience="everyone", per="address", burst=2)
    make_key(make_plan("pro", burst=1))
    assert statuses(send, "/free/ping/", times=3) == [200, 200, 429]


# --- Free of charge ------------------------------------------------------------------------------------------------


def test_exempt_paths_and_views_are_free_of_everything(make_plan, make_key, send):
    make_plan("door", audience="everyone", per="address", burst=1)
    _, key = make_key(make_plan("pro", burst=1))
    for url in ("/healthz", "/plain/exempt/", "/drf-exempt/"):
        assert statuses(send, url, key, times=3) == [200, 200, 200]
        assert "RateLimit" not in send(url, key)
    assert statuses(send, "/plain/ping/", key, times=2) == [200, 429]


def test_an_exempt_path_that_leads_nowhere_is_free_too(make_plan, send):
    make_plan("door", audience="everyone", per="address", burst=1)
    assert statuses(send, "/healthz/nothing/", times=3) == [404, 404, 404]


@pytest.mark.parametrize("url", ["/plain/ping/", "/api/ping/"])
def test_head_and_options_cost_as_much_as_get(url, make_plan, make_key, send):
    _, key = make_key(make_plan("pro", burst=3))
    answers = [send(url, key, method=method) for method in ("HEAD", "OPTIONS", "GET", "HEAD")]
    assert [answer.get("X-RateLimit-Remaining") for answer in answers] == ["2", "1", "0", "0"]
    assert answers[-1].status_code == 429


def test_another_method_named_by_a_header_is_no_way_around(make_plan, make_key, send):
    _, key = make_key(make_plan("pro", burst=1))
    send("/api/ping/", key)
    override = {
        "X-HTTP-Method-Override": "OPTIONS",
        "Access-Control-Request-Method": "GET",
        "Origin": "https://a.example",
    }
    assert send("/api/ping/", key, headers=override).status_code == 429


# --- Charged once --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/drf/", "/drf-decorated/", "/class/", "/plain/ping/", "/api/late/ping/"])
@pytest.mark.parametrize("has_middleware", [True, False])
def test_a_request_is_charged_and_counted_once_whatever_is_stacked(
    url, has_middleware, make_plan, make_key, send, settings, broker
):
    if not has_middleware:
        if url == "/plain/ping/":
            return  # nothing is left that would limit it
        settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "ratelimit_app" not in name]
    client, queue = broker()
    _, key = make_key(make_plan("pro", burst=4))
    assert statuses(send, url, key, times=6) == [200] * 4 + [429] * 2
    assert usage.flush(10)
    assert decisions.totals(decisions.queued(client, queue=queue)) == Counter(allowed=4, refused=2)


def test_a_request_that_only_met_its_address_is_counted_once(make_plan, send, broker):
    make_plan("door", audience="everyone", per="address", burst=2)
    client, queue = broker()
    assert statuses(send, "/free/ping/", times=3) == [200, 200, 429]
    assert usage.flush(10)
    assert decisions.totals(decisions.queued(client, queue=queue)) == Counter(allowed=2, refused=1)


def test_the_view_finds_the_decision_on_its_request(make_plan, make_key, send):
    _, key = make_key(make_plan("pro", burst=3))
    assert send("/drf/", key).json() == {"left": 2}


# --- Who is asking --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/mixed/", "/session-first/"])
def test_sessions_and_keys_at_one_view_have_buckets_of_their_own(
    url, make_plan, make_key, send, client, django_user_model
):
    make_plan("guests", audience="anonymous", per="user", burst=2)
    _, key = make_key(make_plan("pro", burst=3))
    assert statuses(send, url, key, times=4) == [200, 200, 200, 429]
    for name in ("ada", "bob"):
        client.force_login(django_user_model.objects.create_user(name))
        assert send(url).json() == {"key": False, "user": name}
        assert statuses(send, url, times=2) == [200, 429]
        client.logout()
    assert statuses(send, url, times=3) == [200, 200, 429]  # by address


def test_a_session_at_an_optional_path_is_counted_by_its_user(make_plan, send, client, django_user_model):
    make_plan("guests", audience="anonymous", per="user", burst=1)
    for name in ("ada", "bob"):
        client.force_login(django_user_model.objects.create_user(name))
        assert statuses(send, "/open/ping/", times=2) == [200, 429]


def test_an_optional_path_without_a_plan_for_guests_turns_them_away(plan, make_key, send):
    assert send("/open/ping/").status_code == 401
    assert send("/open/ping/", make_key(plan)[1]).status_code == 200
    assert send("/open/ping/", JUNK).status_code == 401


# --- Streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_arrives_in_its_parts_and_with_headers(make_plan, make_key, send):
    _, key = make_key(make_plan("pro", burst=1))
    answer = send("/plain/stream/", key)
    assert list(answer.streaming_content) == [b"one", b"two"]
    assert answer["X-RateLimit-Remaining"] == "0"
    assert send("/plain/stream/", key).status_code == 429


# --- Outages ----------------------------------------------------------------------------------------------------------


def test_in_one_outage_the_login_is_closed_while_the_api_is_open(make_plan, make_key, send, wait_until):
    make_plan("door", audience="everyone", per="address", burst=50, on_failure="open")
    guests = make_plan("guests", audience="anonymous", per="address", burst=50)
    guests.limits.update(scope="login", on_failure="closed")
    _, key = make_key(make_plan("pro", on_failure="open"))
    assert send("/api/login/", method="POST").status_code == 403  # the view's own answer
    with redis_at(REFUSING):
        for url in ("/plain/ping/", "/api/ping/", "/api/late/ping/"):
            answer = send(url, key)
            assert answer.status_code == 200
            assert "X-RateLimit-Remaining" not in answer
        closed = send("/api/login/", method="POST")
        assert (closed.status_code, closed["Content-Type"]) == (503, "application/problem+json")
        assert closed["Retry-After"].isdigit()
        assert send("/plain/ping/", JUNK).status_code == 401
    wait_until(redis_is_asked)
    assert send("/plain/ping/", key)["X-RateLimit-Remaining"] == "2"


@pytest.mark.parametrize("url", PROTECTED)
def test_a_key_that_cannot_be_looked_up_is_a_503_and_never_a_500(url, plan, make_key, send, transactional_db):
    _, key = make_key(plan)
    with unreadable("ratelimit_app_apikey"):
        answer = send(url, key)
    assert answer.status_code == 503
    assert answer["Retry-After"].isdigit()
    assert send(url, key).status_code == 200
