"""Is it written down what a plan said before?"""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from ratelimit_app.models import Plan, PlanLimit, PlanVersion, plan_versions, record_versions


def said(plan: Plan) -> list[list[int]]:
    """The requests of its limits, by version."""
    versions = PlanVersion.objects.filter(plan_id=plan.pk).order_by("number")
    return [[limit["requests"] for limit in version.limits] for version in versions]


@pytest.mark.django_db(transaction=True)
def test_every_announced_change_is_a_version_however_it_was_made(make_plan: Any) -> None:
    plan, other = make_plan("One", 1), make_plan("Two", 2)
    limit = plan.limits.get()

    limit.requests = 10
    limit.save()
    PlanLimit.objects.filter(plan=plan).update(requests=20)
    with transaction.atomic():
        plan.limits.create(name="second", requests=30, burst=3)
        plan.limits.create(name="third", requests=40, burst=3)
    PlanLimit.objects.bulk_create([PlanLimit(plan=plan, name="fourth", requests=50, burst=3)])
    plan.limits.filter(name__in=["third", "fourth"]).delete()

    versions = said(plan)
    assert versions == [[1], [10], [20], [20, 30, 40], [20, 30, 40, 50], [20, 30]]
    assert said(other) == [[2]]
    numbers = PlanVersion.objects.filter(plan_id=plan.pk).order_by("number").values_list("number", flat=True)
    assert list(numbers) == list(range(1, len(versions) + 1))


@pytest.mark.django_db(transaction=True)
def test_what_changes_no_limit_is_no_version(make_plan: Any, make_key: Any) -> None:
    plan = make_plan("One", 1)
    before = said(plan)

    plan.limits.get().save()
    Plan.objects.update(description="Changed")
    make_key(plan)

    assert said(plan) == before


@pytest.mark.django_db
def test_a_version_holds_all_that_a_limit_says_and_gives_it_back_as_rows(make_plan: Any) -> None:
    plan = make_plan("One", 7, 3, 9, scope="login", methods="POST", mode="shadow", on_failure="closed")
    record_versions(using="default", plan_id=plan.pk, who="ann", reason="First")
    record_versions(using="default", plan_id=plan.pk, who="bob", reason="Nothing new")

    version = PlanVersion.objects.get(plan_id=plan.pk)

    assert (version.number, version.who, version.reason) == (1, "ann", "First")
    [row], limit = version.rows(), plan.limits.get()
    assert row.pk == limit.pk
    assert (row.numbers, row.scope, row.methods, row.mode, row.on_failure, row.name) == (
        *(limit.numbers, "login", "POST", "shadow", "closed", "one"),
    )


@pytest.mark.django_db
def test_the_history_of_a_deleted_plan_stays(make_plan: Any) -> None:
    plan = make_plan("One", 7)
    record_versions(using="default")
    pk = plan.pk
    plan.delete()
    record_versions(using="default")

    assert [version.limits == [] for version in PlanVersion.objects.filter(plan_id=pk).order_by("number")] == [
        False,
        True,
    ]


@pytest.mark.django_db
def test_the_newest_versions_of_a_plan_are_kept(make_plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_versions, "KEPT", 3)
    plan, other = make_plan("One"), make_plan("Two")
    for requests in range(1, 6):
        plan.limits.update(requests=requests)
        record_versions(using="default")

    assert said(plan) == [[3], [4], [5]]
    assert len(said(other)) == 1
