"""Is what a caller reads true? Cases C01 to C07 from the field, at every door."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ratelimit_app import usage
from ratelimit_app.throttling import PlanThrottle
from tests import brokers, decisions, urls
from tests.doors import (
    ASYNC,
    DRF,
    DRF_LATE,
    LEGACY_HEADERS,
    PLAIN,
    Door,
    at,
    every_door,
    remaining,
    retry_after,
    statuses,
    stopped_clock,
)

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)

ORIGIN = "https://app.example.com"


# --- C07: a DRF view with a second throttle ----------------------------------------------------


class SecondThrottle(BaseThrottle):
    """Lets so many pass, then refuses and says to wait for so long, or for nobody knows how long."""

    passes = 1
    wait_seconds: float | None = None
    met = 0

    def allow_request(self, request: Request, view: Any) -> bool:
        type(self).met += 1
        return type(self).met <= type(self).passes

    def wait(self) -> float | None:
        return self.wait_seconds


class Throttled(APIView):
    def get(self, request: Request) -> Response:
        return Response({"ping": "throttled"})


urlpatterns = [
    path("api/first/ping/", Throttled.as_view(throttle_classes=[PlanThrottle, SecondThrottle])),
    path("api/last/ping/", Throttled.as_view(throttle_classes=[SecondThrottle, PlanThrottle])),
    *urls.urlpatterns,
]
OURS_FIRST = Door("ours-first", "/api/first/")
OURS_LAST = Door("ours-last", "/api/last/")


@pytest.fixture
def second_throttle(settings, monkeypatch) -> Callable[..., None]:
    """`second_throttle(passes=1, wait_seconds=60)`"""
    settings.ROOT_URLCONF = __name__

    def behave(*, passes: int, wait_seconds: float | None) -> None:
        monkeypatch.setattr(SecondThrottle, "passes", passes)
        monkeypatch.setattr(SecondThrottle, "wait_seconds", wait_seconds)
        monkeypatch.setattr(SecondThrottle, "met", 0)

    return behave


# --- C01 ---------------------------------------------------------------------------------------


@every_door
def test_c01_retry_after_is_the_wait_rounded_up(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=10, burst=1))[1]
    with stopped_clock() as clock:
        first, second = door.send(key), door.send(key)
        clock.advance(9.6)
        third = door.send(key)
    assert statuses([first, second, third]) == [200, 429, 429]
    assert (second["Retry-After"], third["Retry-After"]) == ("10", "1")
    assert "Retry-After" not in first


@every_door
def test_c01_a_fraction_of_a_token_is_waited_for_in_full(door, make_plan, make_key):
    key = make_key(make_plan(requests=3, period_seconds=10, burst=1))[1]
    with stopped_clock() as clock:
        assert statuses([door.send(key), refused := door.send(key)]) == [200, 429]
        assert refused["Retry-After"] == "4"
        clock.advance(3)  # 0.9 of a token
        assert retry_after(refused := door.send(key)) == 1
        assert refused.status_code == 429
        clock.advance(1)
        assert door.send(key).status_code == 200


@every_door
@pytest.mark.parametrize(
    ("requests", "period_seconds", "burst"),
    [(1, 10, 1), (3, 10, 1), (7, 3, 2), (1, 86_400, 1), (1_000, 60, 5), (1, 1, 1), (7, 86_400, 3)],
)
def test_c01_waiting_as_told_is_enough_and_at_most_a_second_too_long(
    door, requests, period_seconds, burst, make_plan, make_key
):
    key = make_key(make_plan(requests=requests, period_seconds=period_seconds, burst=burst))[1]
    with stopped_clock() as clock:
        for pause in (0, 0.3, 0.7):
            assert door.drain(key, at_most=20) <= burst
            refused = door.send(key)
            clock.advance(min(pause, period_seconds / requests / 2))
            refused = door.send(key)
            assert refused.status_code == 429
            told = retry_after(refused)
            clock.advance(told - 1)
            assert told == 1 or door.send(key).status_code == 429
            clock.advance(1)
            assert door.send(key).status_code == 200


@at(DRF_LATE, ASYNC)
def test_c01_sleeping_for_exactly_the_header_is_enough_on_a_real_clock(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=1, burst=1))[1]
    assert door.send(key).status_code == 200
    refused = door.send(key)
    assert refused.status_code == 429
    time.sleep(retry_after(refused))
    assert door.send(key).status_code == 200


# --- C02 ---------------------------------------------------------------------------------------


@every_door
def test_c02_retry_after_counts_seconds_and_reset_is_always_an_epoch(door, make_plan, make_key):
    key = make_key(make_plan(requests=5, period_seconds=60, burst=5))[1]
    with stopped_clock() as clock:
        answers = [door.send(key) for _ in range(6)]
    assert statuses(answers) == [200] * 5 + [429]
    assert retry_after(answers[5]) == 12
    resets = [int(answer["X-RateLimit-Reset"]) for answer in answers]
    assert all(len(str(reset)) == 10 for reset in resets)
    ahead = [reset - clock.seconds for reset in resets]
    assert ahead == pytest.approx([12, 24, 36, 48, 60, 60], abs=1)
    assert ahead[5] >= retry_after(answers[5])


@every_door
def test_c02_retry_after_and_reset_agree_on_a_real_clock(door, make_plan, make_key):
    key = make_key(make_plan(requests=5, period_seconds=60, burst=5))[1]
    started = time.time()
    answers = [door.send(key) for _ in range(6)]
    elapsed = time.time() - started
    assert statuses(answers) == [200] * 5 + [429]
    assert 12 - elapsed <= retry_after(answers[5]) <= 12
    resets = [int(answer["X-RateLimit-Reset"]) - started for answer in answers]
    assert resets[0] == pytest.approx(12, abs=1 + elapsed)
    assert resets[4] == pytest.approx(60, abs=1 + elapsed)


# --- C03 ---------------------------------------------------------------------------------------


@every_door
def test_c03_remaining_counts_down_to_zero_and_stops(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=3))[1]
    answers = [door.send(key) for _ in range(5)]
    assert statuses(answers) == [200, 200, 200, 429, 429]
    assert remaining(answers) == ["2", "1", "0", "0", "0"]
    assert [answer["X-RateLimit-Limit"] for answer in answers] == ["3"] * 5


# --- C04 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", ["rest_framework.views.exception_handler", "tests.views.bare_exception_handler"])
@every_door
def test_c04_rate_headers_survive_error_responses_and_custom_handlers(door, handler, settings, make_plan, make_key):
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": handler}
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=5))[1]
    wanted = [200, 404, 400, 403, 500]
    answers = [door.send(key, f"outcome/{status}/") for status in wanted]
    answers.append(door.send(key, "outcome/200/"))
    assert statuses(answers) == [*wanted, 429]
    assert remaining(answers) == ["4", "3", "2", "1", "0", "0"]
    for answer in answers:
        assert all(answer.get(name, "").isdigit() for name in LEGACY_HEADERS)
    assert 3595 <= retry_after(answers[-1]) <= 3600
    assert answers[-1]["Content-Type"] == "application/problem+json"


# --- C05 ---------------------------------------------------------------------------------------


@every_door
def test_c05_preflights_are_free_and_scripts_can_read_a_429(door, make_plan, make_key, redis_client, prefix):
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=3))[1]
    for _ in range(20):
        preflight = door.send(None, method="OPTIONS", Origin=ORIGIN, Access_Control_Request_Method="GET")
        assert preflight.status_code == 200
        assert preflight["Access-Control-Allow-Origin"] == ORIGIN
    assert not list(redis_client.scan_iter(match=f"{prefix}:*"))

    answers = [door.send(key, Origin=ORIGIN) for _ in range(4)]
    assert statuses(answers) == [200, 200, 200, 429]
    assert remaining(answers) == ["2", "1", "0", "0"]
    for answer in answers:
        assert answer["Access-Control-Allow-Origin"] == ORIGIN
        exposed = {name.strip() for name in answer["Access-Control-Expose-Headers"].split(",")}
        assert exposed >= {"Retry-After", *LEGACY_HEADERS}

    disguised = door.send(key, Origin=ORIGIN, Access_Control_Request_Method="GET")
    assert disguised.status_code == 429


@at(PLAIN, ASYNC)
def test_c05_preflights_are_free_without_cors_middleware_too(door, settings, make_plan, make_key, redis_client, prefix):
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "cors" not in name]
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=1))[1]
    assert statuses([door.send(key), door.send(key)]) == [200, 429]
    redis_client.delete(*redis_client.scan_iter(match=f"{prefix}:*"))
    for sent in (None, key):
        for _ in range(5):
            preflight = door.send(sent, method="OPTIONS", Origin=ORIGIN, Access_Control_Request_Method="GET")
            assert preflight.status_code == 200
    assert not list(redis_client.scan_iter(match=f"{prefix}:*"))
    assert door.send(None, method="OPTIONS").status_code == 401, "an OPTIONS that is no preflight is a request"


# --- C06 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["v1/nested/notes/", "v1/nested/notes/search/", "late/ping/"])
def test_c06_one_request_costs_one_token_whatever_is_stacked(view, broker, make_plan, make_key):
    assert "ratelimit_app.middleware.RateLimitMiddleware" in django_settings.MIDDLEWARE
    client, queue = broker()
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=10))[1]
    answers = [DRF.send(key, view) for _ in range(11)]
    assert statuses(answers) == [200] * 10 + [429]
    assert remaining(answers) == [*map(str, range(9, -1, -1)), "0"]
    for answer in answers:
        for name in LEGACY_HEADERS:
            assert answer[name].isdigit()
            assert [each.lower() for each in answer.headers].count(name.lower()) == 1

    assert usage.flush(10)
    batches = list(decisions.queued(client, queue=queue))
    assert decisions.totals(batches) == {"allowed": 10, "refused": 1}
    samples = [sample for batch in batches for sample in batch.get("samples", ())]
    assert [f"urn:uuid:{sample[0]}" for sample in samples] == [answers[-1].json()["instance"]]


# --- C07 ---------------------------------------------------------------------------------------


@at(OURS_FIRST, OURS_LAST)
@pytest.mark.parametrize(("wait_seconds", "told"), [(None, 10), (60, 60), (3, 10)])
def test_c07_of_several_throttles_the_longest_wait_wins(door, wait_seconds, told, second_throttle, make_plan, make_key):
    second_throttle(passes=1, wait_seconds=wait_seconds)
    key = make_key(make_plan(requests=1, period_seconds=10, burst=1))[1]
    with stopped_clock():
        first, second = door.send(key), door.send(key)
    assert statuses([first, second]) == [200, 429]
    assert retry_after(second) == told


@at(OURS_FIRST, OURS_LAST)
def test_c07_a_refusal_of_another_throttle_that_knows_no_wait_is_harmless(door, second_throttle, make_plan, make_key):
    second_throttle(passes=0, wait_seconds=None)
    key = make_key(make_plan(requests=1, period_seconds=10, burst=5))[1]
    with stopped_clock():
        refused = door.send(key)
    assert refused.status_code == 429
    assert "Retry-After" not in refused
    assert refused["X-RateLimit-Limit"] == "5"
    assert refused["X-RateLimit-Remaining"] == "4"
    assert refused["Content-Type"] == "application/json", "the body of another throttle's refusal is its own"
