"""Do the rows keep their promises? Constraints, generations, keys, and what is announced."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app import buckets, key_cache, plan_cache
from ratelimit_app.limits import Caller, Limit
from ratelimit_app.models import APIKey, Plan, PlanLimit

CALLER = Caller(bucket_identity="one")

pytestmark = pytest.mark.django_db


def the_limit() -> PlanLimit:
    return PlanLimit.objects.get()


def in_force() -> Limit:
    return the_limit().as_limit()


def remaining(cost: int = 0) -> int:
    return buckets.take((in_force(),), CALLER, cost=cost).weighed[0].remaining


# --- Plans ---------------------------------------------------------------------------------------------


def test_only_one_plan_is_for_callers_without_a_key(make_plan):
    make_plan("one", audience="anonymous")
    with pytest.raises(ValidationError):
        Plan(name="two", slug="two", audience="anonymous").full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        make_plan("two", audience="anonymous")


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


@pytest.mark.parametrize(
    "change", [{"burst": 30}, {"requests": 2}, {"period_seconds": 60}, {"algorithm": "sliding_log"}]
)
def test_a_change_of_the_numbers_begins_a_generation_and_names_the_one_before(change, plan):
    before = in_force()
    PlanLimit.objects.update(**change)
    after = in_force()
    assert after.generation == before.generation + 1
    assert after.earlier == (before,)


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
    make_plan("p", 1_000, 1, 1)
    PlanLimit.objects.update(burst=2)
    now, generations = timezone.now().timestamp(), the_limit().generations
    assert now < generations[1]["ends"] < now + 10
    generations[1]["ends"] = now  # as if that long had passed
    PlanLimit._base_manager.update(generations=generations)
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
