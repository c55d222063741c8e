"""Are buckets exact, and gone in time? Cases C08, C09, C11 and C12 from the field, at every door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.core.exceptions import ValidationError
from django.urls import reverse

from ratelimit_app import allow, denials
from ratelimit_app.models import Plan
from tests.admin_pages import confirm
from tests.doors import (
    ASYNC,
    DRF,
    DRF_LATE,
    PLAIN,
    at,
    every_door,
    retry_after,
    statuses,
    stopped_clock,
)

pytestmark = pytest.mark.django_db


def names_below(client: redis.Redis, prefix: str) -> list[Any]:
    return list(client.scan_iter(match=f"{prefix}:*", count=1000))


# --- C08 ---------------------------------------------------------------------------------------


@every_door
def test_c08_refused_polling_costs_no_tokens_and_loses_no_fractions(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=10, burst=2))[1]
    with stopped_clock() as clock:
        assert statuses([door.send(key), door.send(key)]) == [200, 200]
        told: dict[int, int] = {}
        served = []
        for second in range(1, 32):
            clock.advance(1)
            answer = door.send(key)
            if answer.status_code == 200:
                served.append(second)
            else:
                assert answer.status_code == 429
                told[second] = retry_after(answer)
    assert served == [10, 20, 30]
    assert told == {second: 10 - second % 10 for second in range(1, 32) if second % 10}


@every_door
def test_c08_a_poll_every_few_milliseconds_gains_what_the_plan_says(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=1, burst=2))[1]
    with stopped_clock() as clock:
        served = 0
        for _ in range(300):
            served += door.send(key).status_code == 200
            clock.advance(0.013)
    assert served == 2 + 3  # 299 steps of 13 ms are 3.887 s


# --- C09 ---------------------------------------------------------------------------------------


@pytest.fixture
def save_in_admin(admin_client) -> Callable[..., None]:
    """`save_in_admin(plan, burst=100)`: open the plan's form, change its one limit, and save."""

    def save(plan: Plan, **changes: int) -> None:
        limit = plan.limits.get()
        fields = ["name", "scope", "methods", "algorithm", "requests", "period_seconds", "burst"]
        fields += ["per", "shards", "mode", "on_failure"]
        form = {
            "name": plan.name,
            "slug": plan.slug,
            "description": plan.description,
            "audience": plan.audience,
            "limits-TOTAL_FORMS": 1,
            "limits-INITIAL_FORMS": 1,
            "limits-0-id": limit.pk,
            "limits-0-plan": plan.pk,
            **{f"limits-0-{field}": changes.get(field, getattr(limit, field)) for field in fields},
        }
        url = reverse("admin:ratelimit_app_plan_change", args=[plan.pk])
        answer = admin_client.post(url, form)
        if answer.status_code == 200:  # what changes a limit is shown before it is saved
            answer = confirm(admin_client, url, form)
        assert answer.status_code == 302, answer.content.decode()

    return save


@pytest.fixture
def save_in_orm() -> Callable[..., None]:
    """The same by `save`, where somebody's own code edits plans."""

    def save(plan: Plan, **changes: int) -> None:
        limit = plan.limits.get()
        for field, value in changes.items():
            setattr(limit, field, value)
        limit.save()
        plan.save()

    return save


@pytest.fixture
def save_by_update() -> Callable[..., None]:
    """The same by `QuerySet.update`."""

    def save(plan: Plan, **changes: int) -> None:
        Plan.objects.filter(pk=plan.pk).update(name=plan.name)
        plan.limits.update(**(changes or {"burst": plan.limits.get().burst}))

    return save


@pytest.fixture(params=["save_in_admin", "save_in_orm", "save_by_update"])
def edit(request) -> Callable[..., None]:
    """Every way in which a plan is edited."""
    return request.getfixturevalue(request.param)


@pytest.mark.django_db(transaction=True)
@at(DRF_LATE, PLAIN)
def test_c09_a_tightened_plan_keeps_the_used_share(door, make_plan, make_key, save_in_admin):
    plan = make_plan(requests=2000, period_seconds=86_400, burst=2000)
    key = make_key(plan)[1]
    with stopped_clock():
        assert statuses([door.send(key) for _ in range(500)]) == [200] * 500
        save_in_admin(plan, requests=200, burst=200)
        first = door.send(key)
        assert first["X-RateLimit-Limit"] == "200"
        assert first["X-RateLimit-Remaining"] == "149"
        assert door.drain(key) == 149
        assert retry_after(door.send(key)) == 432


@pytest.mark.django_db(transaction=True)
@at(DRF, ASYNC)
def test_c09_a_drained_caller_stays_drained_whatever_is_saved(door, edit, make_plan, make_key):
    plan = make_plan(requests=1, period_seconds=3600, burst=10)
    key = make_key(plan)[1]
    with stopped_clock():
        assert door.drain(key) == 10
        edit(plan)
        assert door.send(key).status_code == 429
        edit(plan, burst=100)
        answer = door.send(key)
        assert (answer.status_code, answer["X-RateLimit-Limit"]) == (429, "100")
        edit(plan, burst=7)
        answer = door.send(key)
        assert (answer.status_code, answer["X-RateLimit-Limit"]) == (429, "7")
        assert retry_after(answer) <= 3600


@pytest.mark.django_db(transaction=True)
@at(DRF_LATE, PLAIN)
def test_c09_a_lower_rate_hands_out_nothing(door, edit, make_plan, make_key):
    plan = make_plan(requests=1000, period_seconds=60, burst=1000)
    key = make_key(plan)[1]
    with stopped_clock():
        assert [allow(key) for _ in range(1001)] == [True] * 1000 + [False]
        edit(plan, requests=10)
        answer = door.send(key)
    assert answer.status_code == 429
    assert answer["X-RateLimit-Remaining"] == "0"
    assert retry_after(answer) == 6


# --- C11 ---------------------------------------------------------------------------------------


@every_door
@pytest.mark.parametrize(("requests", "period_seconds", "burst"), [(10, 1, 20), (1, 86_400, 2)])
def test_c11_every_name_in_redis_expires(
    door, requests, period_seconds, burst, make_plan, make_key, redis_client, prefix
):
    key = make_key(make_plan(requests=requests, period_seconds=period_seconds, burst=burst))[1]
    # A hash of buckets lives for twice the time in which an empty one is full again.
    longest_ms = 2 * burst * period_seconds * 1000 / requests + 1000

    def expire_in_time() -> bool:
        names = names_below(redis_client, prefix)
        return bool(names) and all(0 < redis_client.pttl(name) <= longest_ms for name in names)

    assert door.send(key).status_code == 200
    assert expire_in_time()
    door.drain(key)
    assert expire_in_time()
    for _ in range(2):
        for name in names_below(redis_client, prefix):
            redis_client.persist(name)
        denials.forget()
        door.send(key)
        assert expire_in_time()


@at(DRF_LATE, PLAIN)
def test_c11_an_idle_bucket_is_gone_and_full(door, make_plan, make_key, redis_client, prefix, wait_until):
    key = make_key(make_plan(requests=10, period_seconds=1, burst=20))[1]
    door.drain(key)
    wait_until(lambda: not names_below(redis_client, prefix), seconds=6)
    assert door.send(key)["X-RateLimit-Remaining"] == "19"


# --- C12 ---------------------------------------------------------------------------------------


@every_door
def test_c12_a_huge_plan_is_counted_in_plain_digits(door, make_plan, make_key):
    key = make_key(make_plan(requests=1_000_000, period_seconds=1, burst=2_000_000_000))[1]
    answer = door.send(key)
    assert answer["X-RateLimit-Limit"] == "2000000000"
    assert answer["X-RateLimit-Remaining"] == "1999999999"


def test_c12_a_fast_plan_is_exact(make_plan, make_key):
    key = make_key(make_plan(requests=5000, period_seconds=1, burst=5000))[1]
    with stopped_clock():
        found = [allow(key) for _ in range(6000)]
    assert found == [True] * 5000 + [False] * 1000


@every_door
def test_c12_a_slow_plan_is_exact(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=86_400, burst=2))[1]
    with stopped_clock() as clock:
        assert door.drain(key) == 2
        clock.advance(3600)
        assert retry_after(door.send(key)) == 82_800


@pytest.mark.parametrize(
    ("requests", "period_seconds", "burst"),
    [(10**10, 1, 1), (1, 10**12, 1), (1, 1, 2**53), (1, 86_400, 2_000_000_000), (10**30, 1, 1), (1, 1, 10**30)],
)
def test_c12_what_cannot_be_counted_exactly_is_refused(requests, period_seconds, burst, make_plan):
    row = make_plan().limits.get()
    row.requests, row.period_seconds, row.burst = requests, period_seconds, burst
    with pytest.raises(ValidationError):
        row.full_clean()
