"""Are async doors as good as sync ones? Under ASGI: the same answers, streams, sessions, and no thread once warm."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.handlers.base import BaseHandler
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncClient, AsyncRequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from ratelimit_app import plan_cache
from ratelimit_app.decorators import exempt, ratelimited
from tests import urls
from tests.outages import REFUSING, redis_at
from tests.test_plan_cache import unreadable

# Threads of the event loop have database connections of their own: they see what is committed.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

OURS = "ratelimit_app.middleware.RateLimitMiddleware"


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def parts():
        yield b"one"
        yield b"two"

    return StreamingHttpResponse(parts())


@method_decorator(ratelimited, name="dispatch")
class AsyncClass(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({})


@exempt
async def free(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


urlpatterns = [
    *urls.urlpatterns,
    path("async/stream/", stream),
    path("async/class/", AsyncClass.as_view()),
    path("class/", AsyncClass.as_view()),
    path("async/free/", free),
]


class Sender:
    def __init__(self) -> None:
        self.client = AsyncClient(raise_request_exception=False)

    async def __call__(self, url: str, key: str | None = None, *, method: str = "GET") -> Any:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return await self.client.generic(method, url, headers=headers)

    async def statuses(self, url: str, key: str | None = None, *, times: int) -> list[int]:
        return [(await self(url, key)).status_code for _ in range(times)]


@pytest.fixture
def send() -> Sender:
    return Sender()


@pytest.fixture
def key(make_plan, make_key) -> str:
    """A key of a plan of four."""
    return make_key(make_plan("pro", burst=4))[1]


@pytest.fixture
def without_middleware(settings) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != OURS]


# --- The same answers ----------------------------------------------------------------------------------------

VIEWS = ["/async/ping/", "/plain/ping/", "/api/ping/", "/api/late/ping/", "/class/", "/async/class/"]


@pytest.mark.parametrize("url", VIEWS)
async def test_requests_at_once_share_the_bucket_exactly(url, key, send):
    answers = await asyncio.gather(*(send(url, key) for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 8
    served = [answer["X-RateLimit-Remaining"] for answer in answers if answer.status_code == 200]
    assert sorted(served) == ["0", "1", "2", "3"]
    assert all(answer["Retry-After"].isdigit() for answer in answers if answer.status_code == 429)


async def test_a_stream_arrives_in_its_parts_and_with_headers(key, send):
    answer = await send("/async/stream/", key)
    assert [part async for part in answer.streaming_content] == [b"one", b"two"]
    assert answer["X-RateLimit-Remaining"] == "3"


async def test_paths_that_lead_nowhere_and_exempt_views_are_as_in_sync(make_plan, key, send):
    await sync_to_async(make_plan)("door", audience="everyone", per="address", burst=2)
    assert await send.statuses("/nowhere/", key, times=3) == [404, 404, 429]
    assert await send.statuses("/async/free/", key, times=3) == [200, 200, 200]
    assert await send.statuses("/async/ping/", "rl_live_junk", times=1) == [429]


@pytest.mark.usefixtures("without_middleware")
async def test_a_decorated_async_function_is_limited_without_the_middleware(key, send):
    answers = [await send("/decorated/async/", key) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["X-RateLimit-Remaining"] for answer in answers] == ["2", "0", "0"]
    assert (await send("/decorated/async/")).status_code == 401


@pytest.mark.usefixtures("without_middleware")
async def test_a_decorated_class_of_async_methods_is_limited_without_the_middleware(key, send):
    answers = [await send("/class/", key) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429] * 2
    assert answers[0]["X-RateLimit-Remaining"] == "3"


# --- Sessions and databases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["/open/ping/"])
async def test_a_session_at_an_optional_path_is_counted_by_its_user(view, make_plan, send, django_user_model):
    await sync_to_async(make_plan)("guests", audience="anonymous", per="user", burst=1)
    for name in ("ada", "bob"):
        await send.client.aforce_login(await django_user_model.objects.acreate_user(name))
        assert await send.statuses(view, times=2) == [200, 429]


@pytest.mark.parametrize("url", ["/async/ping/", "/open/ping/", "/free/ping/", "/decorated/async/"])
async def test_with_the_plans_unreadable_from_the_start_no_request_is_a_500(url, key, send):
    gone = unreadable()
    await sync_to_async(gone.__enter__)()
    try:
        answers = [await send(url, key), await send(url)]
    finally:
        await sync_to_async(gone.__exit__)(None, None, None)
    assert {answer.status_code for answer in answers} <= {200, 401, 503}
    assert answers[0].status_code == 200


@pytest.mark.parametrize("url", ["/async/ping/", "/decorated/async/"])
async def test_with_the_keys_unreadable_a_new_key_is_a_503(url, key, send):
    gone = unreadable("ratelimit_app_apikey")
    await sync_to_async(gone.__enter__)()
    try:
        answer = await send(url, key)
    finally:
        await sync_to_async(gone.__exit__)(None, None, None)
    assert answer.status_code == 503


async def test_an_outage_of_redis_is_as_in_sync(key, send):
    with redis_at(REFUSING):
        answer = await send("/async/ping/", key)
    assert answer.status_code == 200
    assert "X-RateLimit-Remaining" not in answer
    assert (await send("/async/ping/", key))["X-RateLimit-Remaining"] == "3"


# --- No thread once warm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["/async/ping/", "/decorated/async/", "/async/free/", "/async/stream/", "/async/outcome/200/"]
)
async def test_no_thread_is_used_once_the_caches_are_warm(url, make_plan, key, settings):
    settings.MIDDLEWARE = [OURS]
    await sync_to_async(make_plan)("door", audience="everyone", per="address", burst=50)
    handler = BaseHandler()
    handler.load_middleware(is_async=True)
    loop = asyncio.get_running_loop()
    handed_over: list[Any] = []
    run_in_executor = loop.run_in_executor

    def noticed(*args: Any) -> Any:
        handed_over.append(args)
        return run_in_executor(*args)

    async def get() -> int:
        request = AsyncRequestFactory().get(url, headers={"Authorization": f"Bearer {key}"})
        return (await handler.get_response_async(request)).status_code

    plan_cache.clear()
    loop.run_in_executor = noticed  # type: ignore[method-assign, assignment]
    try:
        assert await get() == 200
        was_cold = bool(handed_over)
        handed_over.clear()
        assert await get() == 200
    finally:
        del loop.run_in_executor
    assert was_cold or url == "/async/free/"
    assert handed_over == []
