"""What may a limit of a plan hold? Whatever can be counted exactly, by the form and by the database alike."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from ratelimit_app.limits import MAX_FILL_SECONDS, TICKS_PER_SECOND
from ratelimit_app.models import PlanLimit
from tests.twins import MIDNIGHT, InRedis

pytestmark = pytest.mark.django_db

SILLY: list[dict[str, Any]] = [
    {"burst": 0},
    {"burst": -1},
    {"requests": 0},
    {"requests": -1},
    {"period_seconds": 0},
    {"burst": 2_000_000_001},
    {"requests": 1_000_000_001},
    {"period_seconds": MAX_FILL_SECONDS + 1},
    {"requests": 1, "burst": 2, "period_seconds": MAX_FILL_SECONDS},
    {"requests": 1, "burst": 2, "period_seconds": MAX_FILL_SECONDS - 1},
    {"requests": 3, "burst": 4, "period_seconds": MAX_FILL_SECONDS - 1},
    {"mode": "maybe"},
    {"per": "planet"},
    {"on_failure": "panic"},
    {"algorithm": "abacus"},
    {"algorithm": "sliding_log", "requests": 10_001},
    {"algorithm": "sliding_window", "requests": 1_000_000, "period_seconds": 9_000_001},
    {"shards": 0},
    {"shards": 65},
    {"per": "everyone", "burst": 9},
    {"per": "everyone", "burst": 100, "requests": 9, "algorithm": "fixed_window"},
]

#: Algorithms that do not read the burst.
UNREAD = [("fixed_window", False), ("sliding_window", False), ("sliding_log", False)]


@pytest.mark.parametrize("fields", SILLY, ids=str)
def test_a_limit_that_cannot_be_counted_is_refused_by_the_form_and_by_the_database(fields, plan):
    row = PlanLimit(plan=plan, **{"name": "other", "requests": 1, "period_seconds": 1, "burst": 1, **fields})
    with pytest.raises(ValidationError):
        row.full_clean()
    for attempt in (row.save, lambda: PlanLimit.objects.update(**fields)):
        with pytest.raises(IntegrityError), transaction.atomic():
            attempt()


@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "", None, "0.5", "x"])
def test_text_that_is_no_whole_number_is_a_field_error(value, plan):
    row = PlanLimit(plan=plan, name="other", requests=value, period_seconds=1, burst=1)
    with pytest.raises(ValidationError) as wrong:
        row.full_clean()
    assert "requests" in wrong.value.message_dict


@pytest.mark.parametrize("name", ["a b", "a\nb", 'a"b', "Ä", "", "x" * 51])
def test_a_name_that_could_break_a_header_is_refused(name, plan):
    with pytest.raises(ValidationError):
        PlanLimit(plan=plan, name=name, requests=1, period_seconds=1, burst=1).full_clean()


@pytest.mark.parametrize(
    "fields",
    [
        {"requests": 10**9, "period_seconds": 1, "burst": 2 * 10**9},
        {"requests": 1, "period_seconds": MAX_FILL_SECONDS, "burst": 1},
        {"requests": 1_000_000, "period_seconds": 1, "burst": 2_000_000_000},
        {"requests": 1_000_000, "period_seconds": 1, "burst": 2_000_000_000, "algorithm": "leaky_bucket"},
        {"requests": 10**9, "period_seconds": 9_000, "algorithm": "sliding_window"},
        {"requests": 10**9, "period_seconds": MAX_FILL_SECONDS, "algorithm": "fixed_window"},
        {"requests": 10_000, "period_seconds": MAX_FILL_SECONDS, "algorithm": "sliding_log"},
    ],
)
def test_the_largest_limits_that_can_be_counted_are_accepted_and_exact(fields, plan):
    PlanLimit.objects.all().delete()
    row = PlanLimit(plan=plan, name="other", **fields)
    row.full_clean()
    row.save()
    limit = row.as_limit()
    assert limit.capacity_ticks <= 1 << 52
    assert limit.capacity == (fields.get("burst") or fields["requests"])
    twin, fourteen_years = InRedis(), MAX_FILL_SECONDS * TICKS_PER_SECOND
    asked: dict[str, Any] = {"at": MIDNIGHT, "patience_ticks": fourteen_years}
    assert twin.take(limit, cost=limit.capacity - 1, **asked).remaining == 1
    assert not twin.take(limit, cost=2, **asked).allowed
    assert twin.take(limit, cost=1, **asked).remaining == 0


@pytest.mark.parametrize(("algorithm", "needed"), [("token_bucket", True), ("leaky_bucket", True), *UNREAD])
def test_a_burst_is_asked_for_where_it_is_read(algorithm, needed, plan):
    row = PlanLimit(plan=plan, name="other", requests=7, period_seconds=60, algorithm=algorithm)
    if needed:
        with pytest.raises(ValidationError) as wrong:
            row.full_clean()
        assert list(wrong.value.message_dict) == ["burst"]
    else:
        row.full_clean()
        row.save()
        assert row.as_limit().capacity == 7


@pytest.mark.parametrize("methods", ["post", "POST, PUT", "POST,", ",", "POST;PUT"])
def test_methods_are_capitals_and_commas(methods, plan):
    with pytest.raises(ValidationError):
        PlanLimit(plan=plan, name="other", requests=1, period_seconds=1, burst=1, methods=methods).full_clean()


def test_two_limits_of_a_plan_have_two_names(plan):
    with pytest.raises(IntegrityError), transaction.atomic():
        plan.limits.create(name=plan.limits.get().name, requests=1, period_seconds=1, burst=1)
