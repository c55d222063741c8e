"""Are the numbers the same for async views, streams and threads? Case C25 from the field."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.http import HttpRequest, StreamingHttpResponse
from django.test import AsyncClient
from django.urls import path

from tests import urls
from tests.doors import PLAIN, every_door, remaining, retry_after, statuses

pytestmark = pytest.mark.django_db


#: Set by whoever reads the stream, when the piece before has arrived.
next_piece = asyncio.Event()


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def pieces():
        yield b"one"
        await next_piece.wait()
        yield b"two"

    return StreamingHttpResponse(pieces())


urlpatterns = [path("async/stream/", stream), *urls.urlpatterns]


# --- C25 ---------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("view", ["/async/ping/", "/plain/ping/", "/api/ping/", "/api/late/ping/", "/async/stream/"])
async def test_c25_twenty_requests_at_once_share_the_bucket_under_asgi(view, async_key, settings):
    settings.ROOT_URLCONF = __name__
    next_piece.set()
    client, headers = AsyncClient(), {"Authorization": f"Bearer {async_key}"}
    answers: list[Any] = await asyncio.gather(*(client.get(view, headers=headers) for _ in range(20)))
    assert sorted(statuses(answers)) == [200] * 5 + [429] * 15
    for answer in answers:
        assert answer.status_code == 200 or retry_after(answer) in (3599, 3600)
        assert answer["X-RateLimit-Limit"] == "5"
        if answer.streaming:
            assert [piece async for piece in answer] == [b"one", b"two"]
    assert sorted(remaining([answer for answer in answers if answer.status_code == 200])) == list("01234")


@pytest.fixture
def async_key(make_plan, make_key) -> str:
    return make_key(make_plan(requests=1, period_seconds=3600, burst=5))[1]


@pytest.mark.django_db(transaction=True)
async def test_c25_a_stream_arrives_in_pieces(async_key, settings):
    settings.ROOT_URLCONF = __name__
    next_piece.clear()
    answer: Any = await AsyncClient().get("/async/stream/", headers={"Authorization": f"Bearer {async_key}"})
    assert answer["X-RateLimit-Remaining"] == "4"
    pieces = aiter(answer)
    assert await asyncio.wait_for(anext(pieces), 5) == b"one"
    next_piece.set()  # had the middleware waited for the whole, nobody could have come here
    assert await asyncio.wait_for(anext(pieces), 5) == b"two"


@every_door
def test_c25_twenty_requests_at_once_share_the_bucket_in_threads(door, async_key):
    assert PLAIN.send("warm the plans").status_code == 401
    answers: list[Any] = [door.send(async_key)]
    threads = [threading.Thread(target=lambda: answers.append(door.send(async_key))) for _ in range(19)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses(answers)) == [200] * 5 + [429] * 15
