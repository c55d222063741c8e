"""What does each algorithm let through? Chosen in the admin, seen over HTTP, by a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from ratelimit_app.limits import TICKS_PER_SECOND
from ratelimit_app.models import Plan
from tests import doors
from tests.admin_pages import PLANS, plan_form
from tests.doors import DRF, PLAIN, Clock, at, problem, remaining, retry_after, statuses

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE, HOUR, DAY = 60, 3_600, 86_400
ALGORITHMS = ["token_bucket", "sliding_window", "fixed_window", "sliding_log", "leaky_bucket"]
BUCKETS = ("token_bucket", "leaky_bucket")
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)

Choose = Callable[..., str]


@pytest.fixture
def choose(admin_client: Client, make_key: Any) -> Choose:
    """`choose("sliding_log", 10, MINUTE)`: a plan with that limit, made in the admin; returns a key on it."""

    def save(algorithm: str, requests: int, period_seconds: int, *, burst: int | None = None, **fields: Any) -> str:
        if algorithm in BUCKETS and burst is None:
            burst = requests
        numbers = {"requests": requests, "period_seconds": period_seconds, "burst": "" if burst is None else burst}
        answer = admin_client.post(PLANS + "add/", plan_form(algorithm=algorithm, **numbers, **fields))
        assert answer.status_code == 302
        return str(make_key(Plan.objects.get(slug="free"))[1])

    return save


@pytest.fixture
def clock() -> Iterator[Clock]:
    with doors.stopped_clock() as stopped:
        yield stopped


def move_into(clock: Clock, period_seconds: int, *, by: float = 0) -> None:
    """Step to so many seconds after the next window begins; below zero, before it."""
    period = period_seconds * TICKS_PER_SECOND
    clock.advance((period - clock.ticks % period) / TICKS_PER_SECOND + by)


# --- How many pass, and when --------------------------------------------------------------------


@at(DRF, PLAIN)
@pytest.mark.parametrize(
    ("algorithm", "served"),
    [
        # A second before the window's edge, at the edge, 30 s and 59 s after it.
        ("fixed_window", [10, 10, 0, 0]),  # twice the limit within a second
        ("sliding_window", [10, 0, 5, 4]),
        ("sliding_log", [10, 0, 0, 10]),
        ("token_bucket", [10, 0, 5, 5]),
        ("leaky_bucket", [1, 0, 1, 1]),
    ],
)
def test_at_a_windows_edge_only_the_fixed_window_lets_twice_the_limit_through(
    door, choose, clock, algorithm, served
) -> None:
    key = choose(algorithm, 10, MINUTE)
    seen = []

    move_into(clock, MINUTE, by=MINUTE - 1)
    seen.append(door.drain(key))
    clock.advance(1)
    seen.append(door.drain(key))
    clock.advance(30)
    seen.append(door.drain(key))
    clock.advance(29)
    seen.append(door.drain(key))

    assert seen == served


@at(DRF, PLAIN)
@pytest.mark.parametrize(
    ("algorithm", "after_three_seconds", "after_a_day"),
    [
        ("token_bucket", 3, 5),
        ("leaky_bucket", 1, 1),
        ("fixed_window", 0, 60),
        ("sliding_window", 0, 60),
        ("sliding_log", 0, 60),
    ],
)
def test_who_was_quiet_for_long_may_send_what_the_algorithm_keeps_for_him_and_no_more(
    door, choose, clock, algorithm, after_three_seconds, after_a_day
) -> None:
    key = choose(algorithm, 60, MINUTE, burst=5)
    move_into(clock, MINUTE, by=10)
    door.drain(key)

    clock.advance(3)
    assert door.drain(key) == after_three_seconds
    clock.advance(DAY)
    assert door.drain(key) == after_a_day


@at(DRF, PLAIN)
@every_algorithm
def test_who_was_refused_passes_after_exactly_the_wait_he_was_told(door, choose, clock, algorithm) -> None:
    key = choose(algorithm, 10, MINUTE)
    move_into(clock, MINUTE, by=7)
    door.drain(key)

    told = {retry_after(door.send(key)) for _ in range(20)}  # refusals cost nothing

    (seconds,) = told
    assert seconds > 1
    clock.advance(seconds - 1)
    assert door.send(key).status_code == 429
    clock.advance(1)
    assert door.send(key).status_code == 200


@at(DRF, PLAIN)
@pytest.mark.parametrize(
    ("algorithm", "hours"),
    [
        ("token_bucket", 24),
        ("leaky_bucket", 24),
        ("sliding_log", 24),
        ("fixed_window", 18),  # to midnight
        ("sliding_window", 18 + 24),  # until nothing of this day overlaps
    ],
)
def test_one_a_day_is_one_a_day(door, choose, clock, algorithm, hours) -> None:
    key = choose(algorithm, 1, DAY)
    move_into(clock, DAY, by=6 * HOUR)

    assert statuses([door.send(key) for _ in range(3)]) == [200, 429, 429]
    assert retry_after(door.send(key)) == hours * HOUR
    clock.advance(hours * HOUR - 1)
    assert door.send(key).status_code == 429
    clock.advance(1)
    assert statuses([door.send(key) for _ in range(2)]) == [200, 429]


@at(DRF, PLAIN)
@pytest.mark.parametrize(
    ("algorithm", "requests"),
    [
        ("token_bucket", 1_000_000_000),
        ("fixed_window", 1_000_000_000),
        ("sliding_window", 1_000_000_000),
        ("sliding_log", 10_000),
    ],
)
def test_the_fastest_limits_count_every_single_request(door, choose, clock, algorithm, requests) -> None:
    key = choose(algorithm, requests, 1)

    answers = [door.send(key) for _ in range(3)]

    assert remaining(answers) == [str(requests - sent) for sent in (1, 2, 3)]
    clock.advance(2)
    assert remaining([door.send(key)]) == [str(requests - 1)]


@at(DRF, PLAIN)
@pytest.mark.parametrize("algorithm", BUCKETS)
def test_a_million_a_second_gives_one_back_each_microsecond(door, choose, clock, algorithm) -> None:
    key = choose(algorithm, 1_000_000, 1, burst=3)
    door.drain(key)

    clock.advance(0.000_001)

    assert door.drain(key) == 1


# --- What callers are told ----------------------------------------------------------------------


@at(DRF, PLAIN)
@pytest.mark.parametrize(
    ("algorithm", "next_seconds", "full_seconds"),
    [
        ("token_bucket", 6, 24),
        ("fixed_window", 45, 45),
        ("sliding_window", 60, 105),
        ("sliding_log", 60, 60),
    ],
)
def test_the_headers_say_what_is_true_of_their_algorithm(
    door, choose, clock, algorithm, next_seconds, full_seconds
) -> None:
    key = choose(algorithm, 10, MINUTE)
    move_into(clock, MINUTE, by=15)

    answer = [door.send(key) for _ in range(4)][-1]

    assert answer["X-RateLimit-Limit"] == "10"
    assert answer["X-RateLimit-Remaining"] == "6"
    assert int(answer["X-RateLimit-Reset"]) == -(-(round(clock.seconds * 1000) + full_seconds * 1000) // 1000)
    assert answer["RateLimit-Policy"] == '"free";q=10;w=60'
    assert answer["RateLimit"] == f'"free";r=6;t={next_seconds}'
    clock.advance(next_seconds)
    if algorithm != "fixed_window":
        assert door.drain(key) >= 7
    clock.advance(2 * MINUTE)
    assert door.drain(key) == 10


@at(DRF, PLAIN)
def test_a_leaky_bucket_at_a_sync_door_offers_one_request_at_a_time(door, choose, clock) -> None:
    key = choose("leaky_bucket", 10, MINUTE, burst=4)

    allowed, refused = door.send(key), door.send(key)

    assert statuses([allowed, refused]) == [200, 429]
    assert allowed["RateLimit-Policy"] == '"free";q=4;w=24'
    assert [answer["RateLimit"] for answer in (allowed, refused)] == ['"free";r=0;t=6'] * 2
    assert retry_after(refused) == 6


@at(DRF, PLAIN)
@every_algorithm
def test_a_refusal_names_the_limit_and_its_numbers(door, choose, clock, algorithm) -> None:
    key = choose(algorithm, 10, MINUTE)
    door.drain(key)

    refused = door.send(key)

    assert problem(refused)["violated-policies"] == ["free"]
    assert problem(refused)["detail"].startswith("The limit free allows 10 requests per minute. Try again in ")


# --- What a request costs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "wait_seconds"),
    [("token_bucket", 15), ("fixed_window", 60), ("sliding_window", 78), ("sliding_log", 60)],
)
def test_a_request_that_costs_five_is_served_whole_or_not_at_all(choose, clock, algorithm, wait_seconds) -> None:
    key = choose(algorithm, 12, MINUTE)
    move_into(clock, MINUTE)

    answers = [DRF.send(key, "costly/") for _ in range(3)]

    assert statuses(answers) == [200, 200, 429]
    assert remaining(answers) == ["7", "2", "2"]
    assert retry_after(answers[-1]) == wait_seconds
    clock.advance(wait_seconds - 1)
    assert DRF.send(key, "costly/").status_code == 429
    clock.advance(1)
    assert DRF.send(key, "costly/").status_code == 200


def test_a_request_that_costs_five_holds_up_a_leaky_bucket_five_times_as_long(choose, clock) -> None:
    key = choose("leaky_bucket", 12, MINUTE)

    assert DRF.send(key, "costly/").status_code == 200
    assert retry_after(DRF.send(key)) == 25
    clock.advance(25)
    assert DRF.send(key).status_code == 200
    assert retry_after(DRF.send(key, "costly/")) == 5  # it waits for those before it, not for itself


@every_algorithm
def test_a_cost_above_the_capacity_is_never_and_drains_nothing(choose, clock, algorithm) -> None:
    key = choose(algorithm, 4, MINUTE)

    refused = [DRF.send(key, "costly/") for _ in range(3)][-1]

    assert refused.status_code == 429
    assert "Retry-After" not in refused
    assert "at most 4" in problem(refused)["detail"]
    assert DRF.drain(key) == (1 if algorithm == "leaky_bucket" else 4)
