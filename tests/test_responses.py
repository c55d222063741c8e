"""What does a caller read? Headers and bodies of each kind of answer, as the wire has them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from ratelimit_app import responses
from ratelimit_app.algorithms import RULES
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Decision, Limit, Weighed

LIMIT = Limit(id=1, name="pro", requests=60, period_seconds=60, burst=20)
DAILY = Limit(id=2, name="daily", requests=1, period_seconds=86_400, burst=5)
SHADOW = Limit(id=3, name="trial", requests=1, period_seconds=60, burst=1, mode="shadow")
#: A quarter of a second after 1,800,000,000.
DECIDED = (1_800_000_000 - EPOCH_SECONDS) * TICKS_PER_SECOND + TICKS_PER_SECOND // 4


def weighed(limit: Limit, used: int, *, wait_seconds: float | None = 0) -> Weighed:
    wait = None if wait_seconds is None else int(wait_seconds * TICKS_PER_SECOND)
    level = RULES[limit.algorithm].level(limit, (used * limit.interval_ticks,), DECIDED, 0)
    return Weighed(limit, b"x", level, 0, wait)


ALLOWED = Decision(True, (weighed(LIMIT, 5), weighed(DAILY, 4), weighed(SHADOW, 1)), decided_ticks=DECIDED)
REFUSED = Decision(
    False, (weighed(LIMIT, 20, wait_seconds=0.4),), decided_ticks=DECIDED, receipt="5d2c1f2e-0000", cost=1
)
NEVER = REFUSED._replace(weighed=(weighed(DAILY, 0, wait_seconds=None),), cost=6)
CLOSED = Decision(
    False, source="unchecked", unweighed=(replace(LIMIT, on_failure="closed"),), receipt="r", failure="timeout"
)
UNCHECKED = Decision(True, source="unchecked", unweighed=(LIMIT,), failure="timeout")


def headers(decision: Decision) -> dict[str, str]:
    return dict(responses.rate_headers(decision))


def body(response: Any) -> dict[str, Any]:
    assert response["Content-Type"] == "application/problem+json"
    assert response["Content-Length"] == str(len(response.content))
    return json.loads(response.content)


# --- Headers -------------------------------------------------------------------------------------------------


def test_the_tightest_limit_is_told_in_the_old_fields_and_all_in_the_new_ones():
    assert headers(ALLOWED) == {
        "X-RateLimit-Limit": "5",
        "X-RateLimit-Remaining": "1",
        "X-RateLimit-Reset": str(1_800_000_001 + 4 * 86_400),
        "RateLimit-Policy": '"pro";q=20;w=20, "daily";q=5;w=432000',
        "RateLimit": '"pro";r=15;t=1, "daily";r=1;t=86400',
    }


def test_a_full_bucket_tells_no_time_to_the_next_token():
    assert headers(Decision(True, (weighed(LIMIT, 0),)))["RateLimit"] == '"pro";r=20'


def test_limits_in_shadow_never_appear():
    assert "trial" not in repr(headers(ALLOWED))
    assert headers(Decision(True, (weighed(SHADOW, 1),))) == {}


@pytest.mark.parametrize(
    "decision", [UNCHECKED, CLOSED, ALLOWED._replace(source="local"), Decision(True, source="off")]
)
def test_where_nothing_true_can_be_said_nothing_is_said(decision):
    assert headers(decision) == {}
    assert headers(decision._replace(source="unchecked", weighed=ALLOWED.weighed)) == {}


@pytest.mark.parametrize(("kinds", "count"), [(["legacy"], 3), (["ietf"], 2), ([], 0), (["ietf", "legacy"], 5)])
def test_which_headers_are_sent_is_a_setting(kinds, count, configure):
    configure(HEADERS=kinds)
    assert len(headers(ALLOWED)) == count


def test_every_header_that_is_sent_can_be_exposed_to_scripts():
    assert set(headers(ALLOWED)) | {"Retry-After"} == set(responses.EXPOSED_HEADERS)


def test_large_numbers_are_plain_digits():
    huge = Limit(id=1, name="huge", requests=1_000_000, period_seconds=1, burst=2_000_000_000)
    told = headers(Decision(True, (weighed(huge, 1),), decided_ticks=DECIDED))
    assert told["X-RateLimit-Remaining"] == "1999999999"
    assert "e+" not in repr(told)


# --- Refusals ------------------------------------------------------------------------------------------------


def test_a_refusal_is_a_problem_that_says_what_when_and_which_receipt():
    response = responses.refusal(REFUSED)
    assert response.status_code == 429
    assert (response["Retry-After"], response["Cache-Control"]) == ("1", "no-store")
    assert body(response) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "The limit pro allows 60 requests per minute. Try again in 1 second.",
        "instance": "urn:uuid:5d2c1f2e-0000",
        "violated-policies": ["pro"],
    }


def test_a_cost_above_the_burst_is_told_without_a_wait():
    response = responses.refusal(NEVER)
    assert response.status_code == 429
    assert "Retry-After" not in response
    assert "at most 5, this one costs 6" in body(response)["detail"]


def test_a_limit_that_fails_closed_is_a_503_without_numbers():
    response = responses.refusal(CLOSED)
    assert response.status_code == 503
    assert int(response["Retry-After"]) >= 1
    assert body(response)["type"].endswith("#temporary-reduced-capacity")
    assert "X-RateLimit-Limit" not in response


def test_a_refusal_survives_json_and_headers_whatever_a_limit_is_called():
    named = replace(LIMIT, name='a"b\\c')
    assert body(responses.refusal(REFUSED._replace(weighed=(weighed(named, 20, wait_seconds=1),))))


# --- On the responses of others --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "told"), [("60", "60"), ("0", "1"), ("Wed, 21 Oct 2015 07:28:00 GMT", "1"), ("-5", "1"), ("٣", "1")]
)
def test_of_two_waits_the_longer_one_is_told(theirs, told):
    response = HttpResponse("x", status=429, headers={"Retry-After": theirs})
    responses.write(response, REFUSED)
    assert response["Retry-After"] == told


@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_an_answer_that_is_no_refusal_keeps_its_body_and_status(status):
    response = HttpResponse("theirs", status=status)
    responses.write(response, REFUSED)
    assert (response.status_code, response.content) == (status, b"theirs")
    assert response["X-RateLimit-Remaining"] == "0"


def test_a_refusal_of_somebody_else_keeps_its_body():
    response = HttpResponse("theirs", status=429, headers={"Retry-After": "7"})
    responses.write(response, ALLOWED)
    assert (response.content, response["Retry-After"]) == (b"theirs", "7")
    assert response["X-RateLimit-Remaining"] == "1"


def test_a_stream_is_not_read_to_be_written_on():
    read = []

    def stream():
        read.append(1)
        yield b"part"

    response = StreamingHttpResponse(stream())
    responses.write(response, ALLOWED)
    assert response["X-RateLimit-Limit"] == "5"
    assert not read


def test_what_described_the_replaced_body_is_gone():
    response = HttpResponse("x", status=429, headers={"Content-Encoding": "gzip", "ETag": '"1"'})
    responses.write(response, REFUSED)
    assert "Content-Encoding" not in response
    assert "ETag" not in response
    assert body(response)


# --- 401 -------------------------------------------------------------------------------------------------------


def test_a_401_carries_a_challenge_and_one_same_text(configure):
    response = responses.unauthorized()
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == 'Bearer realm="api"'
    assert json.loads(response.content)["detail"] == responses.UNAUTHORIZED
    configure(REALM='a "quoted" \\ realm')
    assert responses.unauthorized()["WWW-Authenticate"] == 'Bearer realm="a \\"quoted\\" \\\\ realm"'


def test_a_realm_cannot_break_the_header(configure):
    configure(REALM="a\r\nX-Evil: 1")
    with pytest.raises(ValueError):
        responses.unauthorized()
