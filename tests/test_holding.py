"""Does a leaky bucket hold requests until their turn? Async doors do, by the real clock; sync ones refuse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from tests import doors
from tests.doors import ASYNC, DRF, PLAIN, at, retry_after, statuses

pytestmark = pytest.mark.django_db(transaction=True)

DAY = 86_400


@pytest.fixture
def queue(make_plan: Any, make_key: Any) -> Callable[..., str]:
    """`queue(10, 1, burst=5)`: a key on a plan whose limit is a leaky bucket."""

    def make(requests: int, period_seconds: int, **fields: Any) -> str:
        return str(make_key(make_plan("Free", requests, period_seconds, algorithm="leaky_bucket", **fields))[1])

    return make


@async_to_sync
async def together(key: str, count: int) -> list[tuple[float, Any]]:
    """So many requests at once at the async door: (seconds until its answer, the answer), as they come in."""
    client, headers = AsyncClient(), {"Authorization": f"Bearer {key}"}
    await client.get("/async/ping/", headers={"Authorization": "Bearer none"})  # warms what is cold
    answers: list[tuple[float, Any]] = []
    started = time.monotonic()

    async def one() -> None:
        answer = await client.get("/async/ping/", headers=headers)
        answers.append((time.monotonic() - started, answer))

    await asyncio.gather(*(one() for _ in range(count)))
    return answers


def test_the_async_door_holds_each_request_until_its_turn(queue) -> None:
    key = queue(10, 1, burst=10)

    answers = together(key, 4)

    assert statuses([answer for _seconds, answer in answers]) == [200] * 4
    for place, (seconds, _answer) in enumerate(answers):
        assert seconds > place * 0.1 - 0.002, "it came before its turn"
    left = [int(answer["X-RateLimit-Remaining"]) for _seconds, answer in answers]
    assert left == sorted(left, reverse=True), "who came first was not served first"


def test_the_async_door_refuses_who_would_be_held_too_long(queue, configure) -> None:
    configure(LONGEST_HOLD_SECONDS=3.0)
    key = queue(1, 2, burst=10)

    answers = together(key, 4)

    by_status = sorted(statuses([answer for _seconds, answer in answers]))
    assert by_status == [200, 200, 429, 429]
    for seconds, answer in answers:
        if answer.status_code == 429:
            assert seconds < 1.9, "a refusal waits for nothing"
            assert retry_after(answer) >= 1


def test_a_queue_that_is_full_refuses_however_patient_the_door_is(queue, configure) -> None:
    configure(LONGEST_HOLD_SECONDS=60.0)
    key = queue(10, 1, burst=3)

    answers = together(key, 5)

    assert sorted(statuses([answer for _seconds, answer in answers])) == [200, 200, 200, 429, 429]


def test_with_a_longest_hold_of_zero_the_async_door_refuses_as_the_sync_ones_do(queue, configure) -> None:
    configure(LONGEST_HOLD_SECONDS=0)
    key = queue(10, 1, burst=10)

    with doors.stopped_clock():
        assert statuses([ASYNC.send(key) for _ in range(2)]) == [200, 429]


@at(DRF, PLAIN)
def test_sync_doors_never_hold_a_worker(door, queue) -> None:
    key = queue(10, 1, burst=10)

    with doors.stopped_clock():
        assert statuses([door.send(key) for _ in range(2)]) == [200, 429]


def test_a_leaky_bucket_in_shadow_holds_nobody(queue) -> None:
    key = queue(1, DAY, burst=5, mode="shadow")

    assert [seconds < 5 and answer.status_code for seconds, answer in together(key, 4)] == [200] * 4
