"""Does the cap for the platform hold? Per everyone: spread over shards, answered with 503, and never shown."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from ratelimit_app import limiter
from ratelimit_app.models import Plan, PlanLimit
from tests import doors
from tests.admin_pages import PLANS, errors_of, plan_form
from tests.asking import caller
from tests.doors import DRF, PLAIN, RATE_HEADERS, Clock, every_door, limits_of, problem, retry_after, statuses

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clock() -> Iterator[Clock]:
    with doors.stopped_clock() as stopped:
        yield stopped


@every_door
def test_the_platforms_cap_answers_503_and_never_shows_its_numbers(door, make_plan, make_key, clock) -> None:
    make_plan("Platform", 1, 10, 2, audience="everyone", per="everyone", shards=1)
    pro = make_plan("Pro", burst=5)
    (_, key), (_, other) = make_key(pro), make_key(pro)

    allowed, _, refused = door.send(key), door.send(other), door.send(key)

    assert (allowed.status_code, refused.status_code) == (200, 503)
    assert problem(refused)["type"].endswith("#temporary-reduced-capacity")
    assert problem(refused)["violated-policies"] == ["platform"]
    assert retry_after(refused) == 10
    for answer in (allowed, refused):
        assert limits_of(answer) == ["pro"]
        assert "platform" not in " ".join(answer[name] for name in RATE_HEADERS)
    assert refused["X-RateLimit-Remaining"] == allowed["X-RateLimit-Remaining"], "a refused request was charged"


def test_a_platform_cap_alone_sends_no_rate_headers(make_plan, make_key, clock) -> None:
    make_plan("Platform", 100, 1, 100, audience="everyone", per="everyone")
    _, key = make_key(Plan.objects.create(name="Free", slug="free"))

    answer = DRF.send(key)

    assert answer.status_code == 200
    assert [name for name in RATE_HEADERS if name in answer] == []


def test_who_is_turned_away_with_401_spends_nothing_of_the_platform(make_plan, make_key, clock) -> None:
    make_plan("Platform", 1, 3600, 1, audience="everyone", per="everyone", shards=1)
    _, key = make_key(make_plan("Pro"))

    assert statuses([PLAIN.send("wrong") for _ in range(3)]) == [401] * 3
    assert PLAIN.send(key).status_code == 200


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "sliding_window", "sliding_log"])
def test_ten_shards_under_twice_the_cap_admit_the_cap_and_not_one_more(make_plan, clock, algorithm) -> None:
    requests, burst, seconds = 6_000, 100, 60
    make_plan("Platform", requests, 60, burst, audience="everyone", per="everyone", algorithm=algorithm)
    callers = [caller(Plan(pk=0), bucket_identity=f"caller-{number}") for number in range(50)]
    period_ticks = seconds * 10_000_000
    clock.advance((period_ticks - clock.ticks % period_ticks) / 10_000_000)
    ends, asked, admitted = clock.ticks + period_ticks, Counter[int](), []

    while clock.ticks < ends:
        decision = limiter.check(random.choice(callers))
        (weighed,) = decision.weighed
        asked[weighed.limit.shard] += 1
        if decision.allowed:
            admitted.append(clock.ticks)
        clock.advance(random.expovariate(2 * requests / 60))

    at_most = requests + (burst if algorithm == "token_bucket" else 0)
    assert 0.95 * requests <= len(admitted) <= at_most
    if algorithm == "token_bucket":
        assert_never_above(admitted, rate_per_tick=requests / period_ticks, burst=burst)
    # Chi-square with nine degrees of freedom: above 45 once in a million runs.
    even = asked.total() / 10
    assert sorted(asked) == list(range(1, 11))
    assert sum((count - even) ** 2 / even for count in asked.values()) < 45


def assert_never_above(moments: list[int], *, rate_per_tick: float, burst: int) -> None:
    """In no interval, of any length, were more than `burst` plus the rate admitted."""
    lowest = float("inf")
    for place, moment in enumerate(moments):
        level = place - rate_per_tick * moment
        lowest = min(lowest, level)
        assert level - lowest + 1 <= burst + 0.01


def test_shards_live_in_different_places_of_a_cluster(make_plan) -> None:
    make_plan("Platform", 1_000, 1, 1_000, audience="everyone", per="everyone", shards=10)

    buckets = {limiter.check(caller(Plan(pk=0))).weighed[0].bucket for _ in range(300)}

    assert len(buckets) == len({bucket[bucket.index(b"{") : bucket.index(b"}")] for bucket in buckets}) == 10


def test_a_cap_on_all_callers_of_one_plan_is_spread_as_well(make_plan) -> None:
    plan = make_plan("Free", 1_000, 1, 1_000, per="everyone", shards=4)

    shards = {limiter.check(caller(plan)).weighed[0].limit.shard for _ in range(200)}

    assert shards == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"requests": "100", "burst": "9"}, "burst"),
        ({"requests": "9", "burst": "", "algorithm": "fixed_window"}, "requests"),
        ({"requests": "9", "burst": "50", "algorithm": "sliding_log"}, "requests"),
    ],
)
def test_fewer_tokens_than_shards_is_an_error_on_their_field(admin_client: Client, fields, where) -> None:
    form = plan_form(per="everyone", shards="10", audience="everyone", **fields)

    errors = errors_of(admin_client.post(PLANS + "add/", form))

    assert list(errors) == [where]
    assert errors[where][0].startswith("Each shard needs one at least")
    assert "Burst at least as many" in admin_client.get(PLANS + "add/").content.decode()


@pytest.mark.parametrize("values", [{"burst": 9}, {"shards": 101}, {"shards": 0}])
def test_the_database_refuses_fewer_tokens_than_shards(make_plan, values) -> None:
    make_plan("Platform", 100, 1, 100, audience="everyone", per="everyone", shards=10)

    with pytest.raises(IntegrityError), transaction.atomic():
        PlanLimit.objects.update(**values)


def test_filling_up_one_caller_leaves_the_platform_as_it_is(make_plan, make_key, clock) -> None:
    make_plan("Platform", 1, 3600, 5, audience="everyone", per="everyone", shards=1)
    key, text = make_key(make_plan("Pro", burst=3))
    assert PLAIN.drain(text) == 3

    limiter.reset(key.as_caller())

    answers = [PLAIN.send(text) for _ in range(3)]
    assert statuses(answers) == [200, 200, 503]
