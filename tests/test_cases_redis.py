"""What becomes of answers when Redis restarts, is gone, or is set up oddly? Cases C15, C16 and C19 from the field."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from ratelimit_app import denials, keys, testing
from tests.doors import (
    LEGACY_HEADERS,
    RATE_HEADERS,
    every_door,
    problem,
    remaining,
    statuses,
)
from tests.outages import redis_at, redis_is_asked

pytestmark = pytest.mark.django_db


def at_once(send: Callable[[], Any], *, times: int) -> list[Any]:
    """So many threads, one call each, all in the same moment."""
    answers: list[Any] = []
    barrier = threading.Barrier(times)

    def one() -> None:
        barrier.wait()
        answers.append(send())

    threads = [threading.Thread(target=one) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


# --- C15 ---------------------------------------------------------------------------------------


@every_door
def test_c15_a_flushed_script_cache_changes_no_answer(door, make_plan, make_key, redis_server, caplog):
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=10))[1]
    server = redis_server()
    with server.client() as client, redis_at(server.url):
        assert remaining([door.send(key), door.send(key)]) == ["9", "8"]
        client.script_flush()
        answers = at_once(lambda: door.send(key), times=20)
        assert sorted(statuses(answers)) == [200] * 8 + [429] * 12
        assert all(name in answer for answer in answers for name in LEGACY_HEADERS)
        client.flushall()
        denials.forget()
        assert remaining([answer := door.send(key)]) == ["9"]
        assert answer.status_code == 200
    assert not [record for record in caplog.records if record.name.startswith("ratelimit_app")]


@every_door
def test_c15_a_restarted_server_is_used_at_once(door, make_plan, make_key, redis_server, caplog, wait_until):
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=10))[1]
    server = redis_server()
    with redis_at(server.url):
        assert remaining([door.send(key), door.send(key)]) == ["9", "8"]
        used_at = time.monotonic()
        server.restart()
        wait_until(lambda: time.monotonic() - used_at > 0.06)  # a connection is trusted for 50 ms after its last use
        assert remaining([door.send(key), door.send(key)]) == ["9", "8"]
    assert not [record for record in caplog.records if record.name.startswith("ratelimit_app")]


@pytest.mark.django_db(transaction=True)
async def test_c15_a_restarted_server_is_used_at_once_by_an_event_loop(make_plan, make_key, redis_server, caplog):
    _row, key = await sync_to_async(lambda: make_key(make_plan(requests=1, period_seconds=3600, burst=10)))()
    server, client = redis_server(), AsyncClient()
    with redis_at(server.url):
        before = [await client.get("/async/ping/", headers={"Authorization": f"Bearer {key}"}) for _ in range(2)]
        await sync_to_async(server.restart)()
        await asyncio.sleep(0.06)
        after = [await client.get("/async/ping/", headers={"Authorization": f"Bearer {key}"}) for _ in range(2)]
    assert remaining([*before, *after]) == ["9", "8", "9", "8"]
    assert not [record for record in caplog.records if record.name.startswith("ratelimit_app")]


# --- C16 ---------------------------------------------------------------------------------------


@every_door
def test_c16_open_and_closed_really_decide(door, make_plan, make_key, redis_server, wait_until):
    _open_row, open_key = make_key(make_plan("Open", burst=1, on_failure="open"))
    _closed_row, closed_key = make_key(make_plan("Closed", burst=1, on_failure="closed"))
    unknown = keys.generate("rl_live")[0]
    server = redis_server()
    server.stop()
    with redis_at(server.url):
        for _ in range(3):
            served = door.send(open_key)
            assert served.status_code == 200
            assert not [name for name in RATE_HEADERS if name in served], "nothing true can be said"
            refused = door.send(closed_key)
            assert refused.status_code == 503
            assert problem(refused)["type"].endswith("#temporary-reduced-capacity")
            assert refused["Retry-After"].isdigit()
            assert not [name for name in RATE_HEADERS if name in refused]
            assert b"Traceback" not in refused.content
            assert door.send(unknown).status_code == 401
        server.start()
        wait_until(redis_is_asked)
        for key in (open_key, closed_key):
            answers = [door.send(key), door.send(key)]
            assert statuses(answers) == [200, 429]
            assert remaining(answers) == ["0", "0"]


# --- C19 ---------------------------------------------------------------------------------------

PASSWORD = "p@ss:w/rd#1%"
QUOTED = "p%40ss%3Aw%2Frd%231%25"


@every_door
def test_c19_a_password_of_reserved_characters_works_and_is_never_logged(
    door, make_plan, make_key, redis_server, caplog
):
    caplog.set_level(logging.DEBUG)
    _open_row, open_key = make_key(make_plan("Open", burst=2, on_failure="open"))
    _closed_row, closed_key = make_key(make_plan("Closed", burst=1, on_failure="closed"))
    port = redis_server("--requirepass", PASSWORD).port

    with redis_at(f"redis://:{QUOTED}@127.0.0.1:{port}/0"):
        assert remaining([door.send(open_key), door.send(open_key)]) == ["1", "0"]
        assert door.send(open_key).status_code == 429
    for wrong in (f"redis://:{QUOTED}x@127.0.0.1:{port}/0", f"redis://127.0.0.1:{port}/0"):
        with redis_at(wrong):
            assert [door.send(open_key).status_code, door.send(closed_key).status_code] == [200, 503]
    told = repr([(record.getMessage(), record.exc_text, record.__dict__) for record in caplog.records])
    assert PASSWORD not in told
    assert QUOTED not in told


@every_door
@pytest.mark.parametrize("place", ["REDIS_CLIENT_KWARGS", "CONNECTION_POOL_KWARGS"])
@pytest.mark.parametrize("decode_responses", [True, False])
def test_c19_decoded_replies_change_no_answer(door, place, decode_responses, make_plan, make_key, redis_server):
    plan = make_plan(burst=2)
    server = redis_server("--requirepass", PASSWORD)
    url = f"redis://:{QUOTED}@127.0.0.1:{server.port}/0"
    with redis_at(url, options={place: {"decode_responses": decode_responses}}):
        key = make_key(plan)[1]
        answers = [door.send(key) for _ in range(3)]
        assert statuses(answers) == [200, 200, 429]
        assert remaining(answers) == ["1", "0", "0"]
        assert testing.reset() == 1, "the helper for tests reads replies too"
        assert remaining([door.send(key)]) == ["1"]
