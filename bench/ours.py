"""How are we asked? The limiter alone, and through its doors, as attempts like those of the rivals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from bench import place, rivals
from bench.rounds import CALLERS, Attempt


def checks(plan_id: int, *, name: str = "caller") -> Attempt:
    """`limiter.check`, the whole decision."""
    from ratelimit_app import limiter

    who = place.callers(plan_id, CALLERS, name=name)
    return lambda number: limiter.check(who[number])


def bare_script(plan_id: int, url: str) -> Attempt:
    """What no client could do without: the same script about the same buckets, by messages that are ready, bare."""
    from ratelimit_app import limiter
    from ratelimit_app.buckets import questions

    who = place.callers(plan_id, CALLERS)
    plan = questions.prepared(limiter._limits(who[0], "", "", None), 1, 0)
    messages = []
    for caller in who:
        address = questions.address_of(plan, caller)
        message = questions.question_to(plan, address, questions.LIVE).about(address.keys, 10**12, address.fields)
        messages.append(message)
    return rivals.bare(url, lambda number: messages[number])


def async_checks(plan_id: int) -> Callable[[int], Awaitable[object]]:
    """`limiter.acheck`, the same for coroutines."""
    from ratelimit_app import limiter

    who = place.callers(plan_id, CALLERS, name="async")
    return lambda number: limiter.acheck(who[number])


def throttle(plan_id: int) -> Attempt:
    """`PlanThrottle`, as DRF asks it for an authenticated key."""
    from ratelimit_app.throttling import PlanThrottle

    requests = [_drf_request(text_and_row) for text_and_row in _keys(plan_id)]
    view = SimpleNamespace()

    def attempt(number: int) -> object:
        request = requests[number]
        request._request.ratelimit = None
        return PlanThrottle().allow_request(request, view)

    return attempt


def middleware(plan_id: int) -> Attempt:
    """`RateLimitMiddleware`: finds the key, decides, and writes the headers; no DRF."""
    from django.http import HttpResponse

    from ratelimit_app.decorators import ratelimited
    from ratelimit_app.middleware import RateLimitMiddleware

    requests = [_http_request(text) for text, _row in _keys(plan_id)]

    view = ratelimited()(lambda request: HttpResponse("ok"))

    door = RateLimitMiddleware(lambda request: door.process_view(request, view, (), {}) or HttpResponse("ok"))

    def attempt(number: int) -> object:
        return door(requests[number])

    return attempt


def _keys(plan_id: int) -> list[tuple[str, Any]]:
    from ratelimit_app.models import APIKey, Plan

    plan = Plan.objects.get(pk=plan_id)
    made = [APIKey.objects.create_key(plan=plan, name=f"key{number}") for number in range(CALLERS)]
    return [(text, row) for row, text in made]


def _http_request(text: str) -> Any:
    from django.test import RequestFactory
    from django.urls import ResolverMatch

    request = RequestFactory().get("/plain/", headers={"authorization": f"Bearer {text}"})
    request.resolver_match = ResolverMatch(_nothing, (), {}, route="plain/")
    return request


def _drf_request(key: tuple[str, Any]) -> Any:
    from rest_framework.request import Request

    text, row = key
    request: Any = Request(_http_request(text))
    request.auth, request.user = row, None
    return request


def _nothing() -> None: ...
