"""Do tasks and scripts keep to a rate together? By the real clock, in real processes and a real worker."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from typing import Any

import pytest

from ratelimit_app import plan_cache
from ratelimit_app.buckets import questions
from ratelimit_app.models import PlanLimit
from ratelimit_app.pacing import TooBusy, paced
from tests import pacing_line
from tests.outages import REFUSING, redis_at
from tests.pacing_line import assert_spaced

pytestmark = pytest.mark.django_db(transaction=True)

crm = pytest.fixture(pacing_line.crm)


@pytest.fixture
def one_an_hour(make_plan: Any) -> Any:
    return make_plan("slow", 1, 3_600, 3, algorithm="leaky_bucket")


# --- One process --------------------------------------------------------------------------------


def test_a_context_manager_waits_for_its_turn(crm) -> None:
    turns, since = [], time.monotonic()

    for _ in range(4):
        with paced("crm") as decision:
            assert decision.allowed
            turns.append(time.monotonic())

    assert_spaced(turns, since=since)


def test_a_decorated_function_waits_and_keeps_its_name_and_answer(crm) -> None:
    turns, since = [], time.monotonic()

    @paced("crm")
    def send(first: int, *, second: int) -> int:
        """Sends."""
        turns.append(time.monotonic())
        return first + second

    assert [send(1, second=2) for _ in range(3)] == [3, 3, 3]
    assert (send.__name__, send.__doc__) == ("send", "Sends.")
    assert_spaced(turns, since=since)


def test_threads_that_share_one_decorator_stand_in_one_line(crm) -> None:
    turns: list[float] = []
    send = paced("crm")(lambda: turns.append(time.monotonic()))
    plan_cache.table()  # threads have database connections of their own, which nobody would close
    threads, since = [threading.Thread(target=send) for _ in range(4)], time.monotonic()

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(turns) == 4
    assert_spaced(turns, since=since)


@pytest.mark.parametrize("decorated", [False, True])
def test_async_code_waits_without_holding_up_its_loop(crm, decorated) -> None:
    turns: list[float] = []
    others = 0

    async def send() -> None:
        async with paced("crm"):
            turns.append(time.monotonic())

    @paced("crm")
    async def send_decorated() -> None:
        turns.append(time.monotonic())

    async def all_of_it() -> None:
        nonlocal others
        sending = asyncio.gather(*((send_decorated if decorated else send)() for _ in range(4)))
        while not sending.done():
            others += 1
            await asyncio.sleep(0.001)
        await sending

    plan_cache.table()
    since = time.monotonic()
    asyncio.run(all_of_it())

    assert len(turns) == 4
    assert_spaced(turns, since=since)
    assert others > 10


def test_async_code_reads_the_plans_by_itself(crm) -> None:
    async def send() -> bool:
        async with paced("crm") as decision:
            return decision.allowed

    plan_cache.clear()
    assert asyncio.run(send()) is True


def test_a_plan_of_another_algorithm_is_asked_again_when_there_is_room(make_plan) -> None:
    make_plan("crm", 10, 1, 1)
    turns, since = [], time.monotonic()

    for _ in range(3):
        with paced("crm"):
            turns.append(time.monotonic())

    assert_spaced(turns, since=since, seconds=0.1)


def test_a_cost_takes_as_many_turns(crm) -> None:
    turns, since = [], time.monotonic()

    for _ in range(3):
        with paced("crm", cost=2):
            turns.append(time.monotonic())

    assert_spaced(turns, since=since, seconds=0.1)


def test_each_queue_is_a_line_of_its_own(one_an_hour) -> None:
    for queue in ("", "one", "two"):
        with paced("slow", queue=queue, longest_wait_seconds=0):
            pass


def test_what_everyone_meets_is_not_asked_of_tasks(crm, make_plan) -> None:
    make_plan("door", 1, 3_600, 1, audience="everyone", per="address")
    make_plan("platform", 1, 3_600, 1, audience="everyone", per="everyone", shards=1)

    for _ in range(3):
        with paced("crm", longest_wait_seconds=1) as decision:
            assert [weighed.limit.name for weighed in decision.weighed] == ["crm"]


# --- When its turn does not come ----------------------------------------------------------------


def test_who_would_wait_too_long_is_told_at_once_and_takes_no_place(one_an_hour) -> None:
    with paced("slow"):
        pass
    since = time.monotonic()

    for _ in range(5):
        with pytest.raises(TooBusy) as caught, paced("slow", longest_wait_seconds=2):
            pytest.fail("it was not its turn")

    assert time.monotonic() - since < 5 * 2  # five waits would take that
    assert 3_590 < (caught.value.retry_after_seconds or 0) <= 3_600
    assert str(caught.value).startswith("Its turn would not have come within the longest wait. Plan 'slow', again")


def test_a_queue_that_is_full_is_too_busy_however_patient_one_is(make_plan) -> None:
    make_plan("crm", 1, 1, 1, algorithm="leaky_bucket")
    with paced("crm"):
        pass

    with pytest.raises(TooBusy), paced("crm", cost=2, longest_wait_seconds=600):
        pytest.fail("it costs more than the queue holds")


def test_the_news_of_being_too_busy_survives_being_sent_around() -> None:
    for seconds in (7, None):
        again = pickle.loads(pickle.dumps(TooBusy("crm", seconds)))  # noqa: S301 - our own
        assert (again.plan, again.retry_after_seconds, str(again)) == ("crm", seconds, str(TooBusy("crm", seconds)))


def test_an_error_inside_is_the_callers_own(crm) -> None:
    with pytest.raises(ZeroDivisionError), paced("crm"):
        1 / 0  # noqa: B018


@pytest.mark.parametrize("enter", [lambda: paced("nothing").__enter__(), paced("nothing")(lambda: None)])
def test_a_plan_that_nobody_made_is_an_error(db, enter) -> None:
    with pytest.raises(LookupError, match="'nothing'"):
        enter()


def test_redis_down_holds_nobody_up(one_an_hour) -> None:
    PlanLimit.objects.update(on_failure="open")
    plan_cache.forget()

    with redis_at(REFUSING):
        since = time.monotonic()
        for _ in range(3):
            with paced("slow") as decision:
                assert decision.source == "unchecked"
        assert time.monotonic() - since < 5


def test_redis_down_is_too_busy_where_a_limit_fails_closed(one_an_hour) -> None:
    PlanLimit.objects.update(on_failure="closed")
    plan_cache.forget()

    with redis_at(REFUSING), pytest.raises(TooBusy) as caught, paced("slow"):
        pytest.fail("nobody could tell whose turn it is")

    assert caught.value.retry_after_seconds is None


def test_waiting_for_long_does_not_push_out_what_the_api_needs(make_plan) -> None:
    make_plan("crm", 100, 1, 1)
    questions.prepared.cache_clear()

    for _ in range(30):
        with paced("crm", longest_wait_seconds=1.05):
            pass

    assert questions.prepared.cache_info().currsize <= 11
