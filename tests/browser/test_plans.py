"""Can somebody change a plan with a real browser, see first what it will do, and take it back?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry

from ratelimit_app.models import Plan, PlanLimit, PlanVersion
from tests.admin_pages import PLANS
from tests.browser import seeded


@pytest.fixture
def pro(transactional_db: None) -> Plan:
    """A plan with a limit that is enforced and one on trial, a day of traffic, and a first version."""
    seeded.fill()
    return Plan.objects.get(slug="pro")


def ask(visit: Any, plan: Plan, **numbers: str) -> Any:
    """Fill numbers into the form of its first limit and press save. Returns the page that asks."""
    page = visit(f"{PLANS}{plan.pk}/change/").page
    for name, value in numbers.items():
        page.fill(f"#id_limits-0-{name}", value)
    page.click("[name=_save]")
    page.get_by_role("heading", name="Save this plan?").wait_for()
    return page


def test_an_edit_says_first_what_it_will_do(visit: Any, pro: Plan) -> None:
    page = ask(visit, pro, requests="4500", burst="750")

    row = page.get_by_role("row", name=re.compile(r"^pro\b"))
    assert "9,000 per 60 s, burst 1,500 (enforce)" in row.inner_text()
    assert "4,500 per 60 s, burst 750 (enforce)" in row.inner_text()
    text = page.locator("#content").inner_text()
    assert "Keys on this plan: 3" in text
    assert re.search(r"Over the last 24.h, [\d.]+.% of [\d,]+ requests were blocked; with these numbers about", text)
    assert pro.limits.get(name="pro").requests == 9_000, "nothing is saved yet"


@pytest.mark.parametrize(("button", "mode"), [("Save and enforce", "enforce"), ("Save as shadow", "shadow")])
def test_an_edit_is_saved_the_way_that_was_chosen(button: str, mode: str, visit: Any, pro: Plan) -> None:
    page = ask(visit, pro, requests="12000")
    page.get_by_label("Reason").fill("They asked for more")

    page.get_by_role("button", name=button).click()

    page.wait_for_url(f"**{PLANS}")
    assert "was changed successfully" in page.locator(".messagelist").inner_text()
    limit = pro.limits.get(name="pro")
    assert (limit.requests, limit.burst, limit.mode) == (12_000, 1_500, mode)
    assert pro.limits.get(name="pro-2027").mode == "shadow", "what was not edited stays"
    entry = LogEntry.objects.get()
    assert f"9,000 per 60 s, burst 1,500 (enforce) → 12,000 per 60 s, burst 1,500 ({mode})" in entry.change_message
    assert "They asked for more" in entry.change_message


def test_back_to_the_form_saves_nothing_and_keeps_what_was_filled_in(visit: Any, pro: Plan) -> None:
    page = ask(visit, pro, requests="12000")

    page.get_by_role("button", name="Back to the form").click()

    page.locator("#id_limits-0-requests").wait_for()
    assert page.input_value("#id_limits-0-requests") == "12000"
    assert pro.limits.get(name="pro").requests == 9_000
    page.click("[name=_save]")
    page.get_by_role("button", name="Save and enforce").click()
    page.wait_for_url(f"**{PLANS}")
    assert pro.limits.get(name="pro").requests == 12_000


def test_a_wrong_number_is_an_error_on_its_field_and_nothing_is_lost(visit: Any, pro: Plan) -> None:
    visitor = visit(f"{PLANS}{pro.pk}/change/")
    page = visitor.page
    page.fill("#id_limits-0-requests", "12000")
    page.fill("#id_limits-0-burst", "0")

    page.click("[name=_save]")

    page.locator(".field-burst .errorlist").first.wait_for()
    assert page.input_value("#id_limits-0-requests") == "12000"
    assert visitor.barriers() == []


def test_a_limit_is_added_and_deleted_in_the_form(visit: Any, pro: Plan) -> None:
    page = visit(f"{PLANS}{pro.pk}/change/").page
    page.locator("#limits-group .add-row a").click()
    page.fill("#id_limits-2-name", "export")
    page.fill("#id_limits-2-requests", "5")
    page.fill("#id_limits-2-period_seconds", "60")
    page.fill("#id_limits-2-burst", "5")
    page.check("#id_limits-1-DELETE")
    page.click("[name=_save]")

    assert "does not exist" in page.get_by_role("row", name=re.compile("^export")).inner_text()
    assert "will be deleted" in page.get_by_role("row", name=re.compile("^pro-2027")).inner_text()
    page.get_by_role("button", name="Save and enforce").click()

    page.wait_for_url(f"**{PLANS}")
    assert set(pro.limits.values_list("name", flat=True)) == {"pro", "export"}


def test_an_edit_is_taken_back_from_the_versions(visit: Any, pro: Plan) -> None:
    page = ask(visit, pro, requests="12000")
    page.get_by_label("Reason").fill("A mistake")
    page.get_by_role("button", name="Save and enforce").click()
    page.locator("#result_list").get_by_role("link", name="Pro", exact=True).click()
    page.get_by_role("link", name="Versions", exact=True).click()
    assert "A mistake" in page.get_by_role("row", name=re.compile("^3")).inner_text()

    page.get_by_role("link", name="2", exact=True).click()
    assert "12,000 per 60 s" in page.locator("#content").inner_text()
    page.get_by_role("button", name="Go back to this version").click()
    assert page.get_by_label("Reason").input_value() == "Back to version 2."
    page.get_by_role("button", name="Save and enforce").click()

    page.wait_for_url(f"**{PLANS}")
    assert pro.limits.get(name="pro").requests == 9_000
    newest = PlanVersion.objects.filter(plan_id=pro.pk).order_by("-number")[0]
    assert (newest.number, newest.who, newest.reason) == (4, "ops", "Back to version 2.")


def test_a_limit_on_trial_is_promoted_by_typing_its_plan(visit: Any, pro: Plan) -> None:
    visitor = visit(f"{PLANS}shadow/")
    page = visitor.page
    row = page.get_by_role("row", name=re.compile("^pro-2027"))
    row.get_by_role("link", name="pro-2027").click()
    assert page.get_by_role("row", name=re.compile("^Acme mobile app")).count() == 1
    page.get_by_role("link", name="Enforce", exact=True).click()

    page.get_by_label("The plan's name").fill("Free")
    page.get_by_label("Reason").fill("Announced a month ago")
    page.get_by_role("button", name="Enforce").click()
    assert "This is not the name of the plan." in page.locator(".errorlist").inner_text()
    assert visitor.barriers() == []
    assert PlanLimit.objects.get(name="pro-2027").mode == "shadow"
    page.get_by_label("The plan's name").fill("Pro")
    page.get_by_role("button", name="Enforce").click()

    page.locator(".messagelist").wait_for()
    assert PlanLimit.objects.get(name="pro-2027").mode == "enforce"
    assert "Announced a month ago" in LogEntry.objects.get().change_message


def test_a_limit_goes_back_to_shadow_without_typing_its_plan(visit: Any, pro: Plan) -> None:
    limit = pro.limits.get(name="pro-2027")
    limit.mode = "enforce"
    limit.save()
    page = visit(f"{PLANS}shadow/").page
    page.get_by_role("link", name="Back to shadow").click()

    page.get_by_label("Reason").fill("It hurts")
    page.get_by_role("button", name="Back to shadow").click()

    page.locator(".messagelist").wait_for()
    limit.refresh_from_db()
    assert limit.mode == "shadow"
