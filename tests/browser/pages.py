"""Which pages are there, and how does a person come to each? A new page is one line here.

The tests look at all of them for barriers, and `make screenshots` takes a picture of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.urls import reverse

from ratelimit_app.models import APIKey, Episode, OutageSpan, Plan, PlanLimit, Refusal
from tests.browser.happened import NAME, RECEIPT
from tests.browser.visitor import Visitor


def at(name: str, /, *rows: type[Any], query: str = "", **found: Any) -> Callable[[Visitor], None]:
    """The page by that name in the admin, about the first row of each model; `found` tells which row of the first."""

    def go(visitor: Visitor) -> None:
        keys = [
            row.objects.filter(**(found if place == 0 else {})).order_by("pk")[0].pk for place, row in enumerate(rows)
        ]
        visitor.open(reverse(f"admin:ratelimit_app_{name}", args=keys) + query)

    return go


def key(name: str, *, query: str = "") -> Callable[[Visitor], None]:
    return at(f"apikey_{name}", APIKey, name=NAME, query=query)


def limit(name: str, *, query: str = "") -> Callable[[Visitor], None]:
    return at(f"plan_{name}", PlanLimit, name="pro-2027", query=query)


def create_a_key(visitor: Visitor) -> None:
    at("apikey_add")(visitor)
    visitor.page.fill("#id_name", "Nightly import")
    visitor.page.select_option("#id_plan", label="Free")
    visitor.page.click("[name=_save]")
    visitor.page.wait_for_selector("#rl-key")


def choose_keys_to_revoke(visitor: Visitor) -> None:
    at("apikey_changelist")(visitor)
    visitor.page.check("#result_list tbody tr:first-child .action-select")
    visitor.page.select_option("select[name=action]", "revoke")
    visitor.page.click("button[name=index]")
    visitor.page.wait_for_load_state()


def edit_a_plan(visitor: Visitor) -> None:
    at("plan_change", Plan, slug="pro")(visitor)
    visitor.page.fill("#id_limits-0-requests", "4500")
    visitor.page.fill("#id_limits-0-burst", "750")
    visitor.page.click("[name=_save]")
    visitor.page.wait_for_selector("#rl-reason")


def look_at_a_version(visitor: Visitor) -> None:
    at("plan_versions", Plan, slug="pro")(visitor)
    visitor.page.click("#rl-versions tbody tr:last-child a")
    visitor.page.wait_for_load_state()


def report_of_a_limit(visitor: Visitor) -> None:
    at("plan_shadow")(visitor)
    visitor.page.click("#rl-trials tbody th a")
    visitor.page.wait_for_load_state()


#: By its name, how to get there.
PAGES: dict[str, Callable[[Visitor], None]] = {
    "overview": at("overview_changelist"),
    "keys": at("apikey_changelist"),
    "key": key("page"),
    "receipt": key("page", query=f"?receipt={RECEIPT}"),
    "receipt-unknown": key("page", query="?receipt=00000000-0000-4000-8000-000000000000"),
    "key-add": at("apikey_add"),
    "key-new": create_a_key,
    "key-change": key("change"),
    "key-history": key("history"),
    "key-rotate": key("rotate"),
    "key-boost": key("boost"),
    "key-end-boost": key("end-boost"),
    "key-move": key("move"),
    "key-reset": key("reset"),
    "key-revoke": key("revoke"),
    "keys-revoke": choose_keys_to_revoke,
    "key-delete": key("delete"),
    "plans": at("plan_changelist"),
    "plan": at("plan_change", Plan, slug="pro"),
    "plan-add": at("plan_add"),
    "plan-preview": edit_a_plan,
    "plan-versions": at("plan_versions", Plan, slug="pro"),
    "plan-version": look_at_a_version,
    "plan-delete": at("plan_delete", Plan, slug="pro"),
    "shadow": at("plan_shadow"),
    "shadow-limit": report_of_a_limit,
    "promote": limit("to_enforce"),
    "alerts": at("episode_changelist"),
    "alert": at("episode_change", Episode),
    "outages": at("outagespan_changelist"),
    "outage": at("outagespan_change", OutageSpan),
    "refusals": at("refusal_changelist"),
    "refusal": at("refusal_change", Refusal, receipt=RECEIPT),
}
