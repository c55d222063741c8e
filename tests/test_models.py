"""Do the rows keep their promises? Constraints, generations, keys, and what is announced."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app import buckets, key_cache, plan_cache
from ratelimit_app.limits import MAX_FILL_SECONDS, Caller, Limit
from ratelimit_app.models import APIKey, Plan, PlanLimit

CALLER = Caller(bucket_identity="one")

pytestmark = pytest.mark.django_db


def the_limit() -> PlanLimit:
    return PlanLimit.objects.get()


def in_force() -> Limit:
    return the_limit().as_limit()


def remaining(cost: int = 0) -> int:
    return buckets.take((in_force(),), CALLER, cost=cost).weighed[0].remaining


# --- What a plan may hold ----------------------------------------------------------------------------

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
]


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
    ],
)
def test_the_largest_limits_that_can_be_counted_are_accepted_and_exact(fields, plan):
    PlanLimit.objects.all().delete()
    row = PlanLimit(plan=plan, name="other", **fields)
    row.full_clean()
    row.save()
    assert row.as_limit().capacity_ticks <= 1 << 52
    assert remaining(cost=1) == fields["burst"] - 1


def test_only_one_plan_is_for_callers_without_a_key(make_plan):
    make_plan("one", audience="anonymous")
    with pytest.raises(ValidationError):
        Plan(name="two", slug="two", audience="anonymous").full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        make_plan("two", audience="anonymous")


def test_two_limits_of_a_plan_have_two_names(plan):
    with pytest.raises(IntegrityError), transaction.atomic():
        plan.limits.create(name=plan.limits.get().name, requests=1, period_seconds=1, burst=1)


def test_a_plan_with_keys_is_not_deleted_by_accident(plan, make_key):
    make_key(plan)
    with pytest.raises(ProtectedError):
        plan.delete()


# --- Generations: an edit keeps the used share ---------------------------------------------------------


def test_a_save_without_a_change_begins_no_generation(plan):
    before = in_force()
    the_limit().save()
    PlanLimit.objects.update(mode="shadow")
    PlanLimit.objects.update(name="renamed", scope="x", on_failure="closed", per="user")
    assert (in_force().generation, in_force().earlier) == (before.generation, ())


@pytest.mark.parametrize("change", [{"burst": 30}, {"requests": 2}, {"period_seconds": 60}])
def test_a_change_of_the_numbers_begins_a_generation_and_names_the_one_before(change, plan):
    before = in_force()
    PlanLimit.objects.update(**change)
    after = in_force()
    assert after.generation == before.generation + 1
    assert after.earlier == ((before.generation, before.capacity_ticks),)


def test_an_edit_by_update_keeps_the_used_share(make_plan):
    make_plan("day", 2000, 86_400, 2000)
    remaining(cost=500)
    PlanLimit.objects.update(requests=200, burst=200)
    assert remaining(cost=1) == 149


def edit_by_fresh_rows(**numbers: int) -> None:
    row = the_limit()
    for name, value in numbers.items():
        setattr(row, name, value)
    row.save()


def edit_by_update(**numbers: int) -> None:
    PlanLimit.objects.update(**numbers)


def edit_by_bulk_update(**numbers: int) -> None:
    row = the_limit()
    for name, value in numbers.items():
        setattr(row, name, value)
    PlanLimit.objects.bulk_update([row], list(numbers))


@pytest.mark.parametrize("edit", [edit_by_fresh_rows, edit_by_update, edit_by_bulk_update])
def test_several_quick_edits_keep_the_used_share(edit, make_plan):
    make_plan("p", 1, 3600, 100)
    remaining(cost=50)
    for burst in (10, 1000, 40):
        edit(burst=burst)
    assert remaining() == 20


def test_saving_one_instance_again_and_again_keeps_the_used_share(make_plan):
    row = make_plan("p", 1, 3600, 100).limits.get()
    remaining(cost=50)
    for burst in (10, 1000, 40):
        row.burst = burst
        row.save()
        assert remaining() == burst // 2


def test_saving_the_instance_that_was_created_keeps_the_used_share(plan):
    PlanLimit.objects.all().delete()
    row = plan.limits.create(name="x", requests=1, period_seconds=3600, burst=100)
    remaining(cost=50)
    row.burst = 10
    row.save()
    assert remaining() == 5


def test_two_people_saving_the_rows_they_read_before_keep_the_used_share(make_plan):
    make_plan("p", 1, 3600, 100)
    remaining(cost=50)
    hers, his = the_limit(), the_limit()
    hers.burst = 10
    hers.save()
    assert remaining() == 5
    his.burst = 40
    his.save()
    assert remaining() == 20


def test_a_generation_whose_buckets_are_full_by_now_is_not_named(make_plan):
    make_plan("p", 1_000, 1, 1)  # full after a millisecond
    PlanLimit.objects.update(burst=2)
    full_at = the_limit().generations[1][4]
    assert full_at is not None
    while timezone.now().timestamp() <= full_at:
        pass
    assert in_force().earlier == ()


# --- Keys ----------------------------------------------------------------------------------------------


def test_of_a_key_only_the_digest_is_stored(plan, make_key):
    row, text = make_key(plan)
    secret = text.rpartition("_")[2]
    stored = APIKey.objects.filter(pk=row.pk).values().get()
    assert bytes(stored.pop("digest")) == hashlib.sha256(text.encode()).digest()
    assert secret not in repr(stored)
    assert secret not in f"{row!r} {row}"


def test_a_key_is_usable_until_it_expires_or_is_revoked(plan, make_key):
    now = timezone.now()
    assert make_key(plan)[0].usable
    assert make_key(plan, expires_at=now + timedelta(minutes=1))[0].usable
    assert not make_key(plan, expires_at=now - timedelta(seconds=1))[0].usable
    revoked = make_key(plan)[0]
    assert APIKey.objects.filter(pk=revoked.pk).revoke() == 1
    revoked.refresh_from_db()
    assert not revoked.usable
    first = revoked.revoked_at
    assert APIKey.objects.filter(pk=revoked.pk).revoke() == 0
    revoked.refresh_from_db()
    assert revoked.revoked_at == first


def test_a_key_of_an_owner_is_counted_as_the_owner(plan, make_key):
    owner = get_user_model().objects.create_user("ada")
    row, _ = make_key(plan, owner=owner)
    assert row.as_caller() == Caller(
        key_id=row.pk, plan_id=plan.pk, bucket_identity=row.bucket_identity, user_id=str(owner.pk)
    )
    assert make_key(plan)[0].as_caller().user_id == ""


def test_a_key_never_used_says_so(plan, make_key):
    assert make_key(plan)[0].last_used_at is None


# --- What an edit costs --------------------------------------------------------------------------------


def test_updating_many_keys_costs_the_same_few_queries(plan):
    def update(count: int) -> int:
        APIKey.objects.all().delete()
        rows = [APIKey(plan=plan, name="x", public_id=f"{number:012}", digest=b"") for number in range(count)]
        APIKey.objects.bulk_create(rows)
        with CaptureQueriesContext(connection) as queries:
            assert APIKey.objects.update(name="y") == count
        return len(queries)

    assert update(2) == update(200)


def test_an_edit_of_nothing_announces_nothing(plan, django_assert_num_queries):
    plan_cache.table()
    version = plan_cache.table().version
    PlanLimit.objects.filter(name="nobody").update(burst=9)
    APIKey.objects.filter(name="nobody").delete()
    plan_cache.forget()
    assert plan_cache.table().version == version
    assert key_cache.find("junk") is None
