"""Can a plan be put back to what it said before, exactly?"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ratelimit_app.models import Plan, PlanLimit, PlanVersion, record_versions
from ratelimit_app.models.plan_versions import FIELDS
from tests.admin_pages import PLANS, confirm, filled_in, plan_form, staff

pytestmark = pytest.mark.django_db

EDITORS = ["view_plan", "change_plan", "view_planlimit", "change_planlimit", "add_planlimit", "delete_planlimit"]


@pytest.fixture
def plan(make_plan: Any) -> Plan:
    found: Plan = make_plan("Free", 60, 60, 20, scope="login", methods="POST,PUT", on_failure="closed")
    record_versions(using="default")
    return found


def said(plan: Plan) -> list[dict[str, Any]]:
    return list(plan.limits.order_by("name").values(*FIELDS))


def restore(client: Client, plan: Plan, number: int, button: str = "_enforce") -> Any:
    page = client.get(f"{PLANS}{plan.pk}/versions/{number}/")
    data = filled_in(page)
    assert data
    return confirm(client, f"{PLANS}{plan.pk}/change/", dict(data), button)


def test_a_former_version_is_restored_as_a_new_one(admin_client: Client, plan: Plan) -> None:
    before, limit = said(plan), plan.limits.get()
    url = f"{PLANS}{plan.pk}/change/"
    confirm(admin_client, url, plan_form(limit, requests="7", algorithm="fixed_window", burst="") | {"_reason": "x"})
    assert said(plan) != before

    assert restore(admin_client, plan, 1).status_code == 302

    assert said(plan) == before
    assert plan.limits.get().pk == limit.pk
    versions = PlanVersion.objects.filter(plan_id=plan.pk).order_by("number")
    assert [(version.number, version.who, version.reason) for version in versions] == [
        (1, "", ""),
        (2, "admin", "x"),
        (3, "admin", "Back to version 1."),
    ]
    assert versions[2].limits == versions[0].limits
    message = LogEntry.objects.order_by("-pk")[0].change_message
    assert "7 per 60 s, fixed window (enforce) → 60 per 60 s, burst 20, on POST,PUT login (enforce)." in message
    assert "Reason: Back to version 1." in message


def test_limits_that_were_added_go_and_those_deleted_come_back(admin_client: Client, plan: Plan) -> None:
    plan.limits.create(name="cap", requests=50, burst=50, per="everyone", shards=5, mode="shadow")
    plan.limits.create(name="leased", requests=50, burst=50, lease=True)
    plan.limits.create(name="out", requests=1, burst=1, mode="off")
    record_versions(using="default")
    before = said(plan)
    plan.limits.filter(name__in=["cap", "leased"]).delete()
    plan.limits.create(name="fresh", requests=5, burst=5)
    plan.limits.create(name="cap", requests=9, burst=9)  # made anew: another row of the same name
    plan.limits.filter(name="free").update(requests=61)
    record_versions(using="default")

    assert restore(admin_client, plan, 2, "_keep").status_code == 302

    assert said(plan) == before


def test_going_back_keeps_the_share_that_was_used(admin_client: Client, plan: Plan) -> None:
    confirm(admin_client, f"{PLANS}{plan.pk}/change/", plan_form(plan.limits.get(), requests="7"))
    restore(admin_client, plan, 1)

    limit = plan.limits.get()
    assert [each["generation"] for each in limit.generations] == [3, 2, 1]
    assert [old.requests for old in limit.as_limit().earlier] == [7, 60]


def test_versions_are_listed_with_what_changed_by_whom_and_why(admin_client: Client, plan: Plan) -> None:
    url = f"{PLANS}{plan.pk}/change/"
    PlanLimit.objects.filter(plan=plan).update(on_failure="open")
    record_versions(using="default", plan_id=plan.pk, who="<b>ann</b>", reason="<i>Because</i>")

    text = admin_client.get(f"{PLANS}{plan.pk}/versions/").content.decode()

    assert "without Redis closed</bdi> → <bdi>60 per 60 s" in text
    assert "without Redis open" in text
    assert "not in the admin" in text
    assert "&lt;b&gt;ann" in text
    assert "&lt;i&gt;Because" in text
    assert f'href="{PLANS}{plan.pk}/versions/"' in admin_client.get(url).content.decode()


def test_a_version_that_is_what_the_plan_says_offers_nothing(admin_client: Client, plan: Plan) -> None:
    text = admin_client.get(f"{PLANS}{plan.pk}/versions/1/").content.decode()

    assert "the plan says the same now" in text
    assert "Go back to this version" not in text
    assert admin_client.get(f"{PLANS}{plan.pk}/versions/9/").status_code == 404


def test_who_goes_back_on_an_old_page_is_told_of_edits_since(admin_client: Client, plan: Plan) -> None:
    plan.limits.update(requests=7)
    page = admin_client.get(f"{PLANS}{plan.pk}/versions/1/")
    plan.limits.update(requests=8)

    answer = admin_client.post(f"{PLANS}{plan.pk}/change/", dict(filled_in(page)))

    assert "Somebody else changed this plan" in answer.content.decode()
    assert plan.limits.get().requests == 8


def test_viewers_look_and_only_editors_go_back(plan: Plan) -> None:
    plan.limits.update(requests=7)
    one = f"{PLANS}{plan.pk}/versions/1/"
    for url in (f"{PLANS}{plan.pk}/versions/", one):
        assert Client().get(url).status_code == 302
        assert staff().get(url).status_code == 403
        assert staff("view_plan").get(url).status_code == 200
        assert staff(*EDITORS).post(url).status_code == 405
    assert "Go back to this version" not in staff(*EDITORS[:-1]).get(one).content.decode()
    assert restore(staff(*EDITORS), plan, 1).status_code == 302


def test_the_list_costs_the_same_for_many_versions(admin_client: Client, plan: Plan) -> None:
    url = f"{PLANS}{plan.pk}/versions/"

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(url).status_code == 200
        return len(captured)

    queries()
    few = queries()
    for requests in range(1, 61):
        plan.limits.update(requests=requests)
        record_versions(using="default")

    assert queries() == few
    assert admin_client.get(url).content.decode().count('<th scope="row">') == 50
