"""Can somebody hand out, replace, look into and end a key with a real browser, without a barrier?"""

from __future__ import annotations

import re
import uuid
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from ratelimit_app import limiter
from ratelimit_app.models import APIKey, KeyUse, Plan, Refusal, RefusalMinute
from tests.browser.visitor import REFRESH_NOW
from tests.overview_page import arrived, minute, used

KEYS = "/admin/ratelimit_app/apikey/"


@pytest.fixture
def pair(make_plan: Any, make_key: Any) -> tuple[APIKey, APIKey]:
    """A busy key and the one it replaced, boosted, with refusals."""
    plan = make_plan("Pro", 60, 60, 20)
    make_plan("Free", 10, 60, 5)
    old, _ = make_key(plan, name="Acme nightly import", expires_at=timezone.now() + timedelta(days=9))
    APIKey.objects.boost(old, factor=3, until=timezone.now() + timedelta(days=2), reason="Their sale")
    KeyUse.objects.create(key_id=old.pk, last_used_at=timezone.now() - timedelta(minutes=3))
    new, _ = APIKey.objects.rotate(old)
    limiter.check(new.as_caller(), cost=45)
    for ago in range(55):
        used(old.bucket_identity, ago=ago, allowed=40 + ago * 37 % 90, refused=ago % 7, unchecked=5 * (20 < ago < 24))
    limit_id = plan.limits.get().pk
    RefusalMinute.objects.create(
        minute=minute(1), identity=old.bucket_identity, limit_id=limit_id, route="/api/items/", refused=9
    )
    Refusal.objects.create(
        receipt=uuid.uuid4(),
        at=timezone.now(),
        identity=old.bucket_identity,
        key_id=new.pk,
        plan_id=plan.pk,
        limit_id=limit_id,
        limit_name="pro",
        route="/api/items/",
        method="GET",
        address="203.0.113.9",
        cost=1,
        retry_after_seconds=4,
    )
    arrived()
    return old, new


def test_what_a_key_got_is_drawn(visit: Any, pair: Any) -> None:
    visitor = visit(f"{KEYS}{pair[1].pk}/page/")
    for name in ("requests", "share"):
        visitor.page.locator(f"[data-chart={name}] canvas").wait_for()
        assert visitor.page.locator(f"[data-chart={name}]").bounding_box()["height"] > 40


def test_a_key_is_rotated_copied_and_found_as_a_pair(visit: Any, pair: Any) -> None:
    new = pair[1]
    visitor = visit(f"{KEYS}{new.pk}/page/")
    page = visitor.page
    page.click("text=Rotate")
    page.click('input[value="Rotate"]')
    for name in ("rl-key", "rl-curl"):
        page.click(f'button[data-copies="{name}"]')
        page.wait_for_selector(f'button[data-copies="{name}"]:has-text("Copied")')
        assert page.evaluate("navigator.clipboard.readText()") == page.inner_text(f"#{name}")
    assert visitor.barriers() == []
    page.click("text=I have stored it")
    newest = APIKey.objects.order_by("-pk").first()
    assert newest is not None
    assert page.url.endswith(f"{KEYS}{newest.pk}/page/")
    assert new.public_id in page.inner_text("#rl-part-mates")


def test_a_receipt_is_looked_up_and_explained(visit: Any, pair: Any) -> None:
    visitor = visit(f"{KEYS}{pair[1].pk}/page/?range=6h")
    page = visitor.page
    page.fill("#rl-receipt", f"urn:uuid:{Refusal.objects.get().receipt}")
    page.click("text=Look up")
    assert "This key sent the request." in page.inner_text("#rl-explanation")
    assert "range=6h" in page.url


def test_a_key_is_revoked_by_typing_its_name(visit: Any, pair: Any) -> None:
    new = pair[1]
    visitor = visit(f"{KEYS}{new.pk}/revoke/")
    page = visitor.page
    page.fill("#id_typed", "something else")
    page.fill("#id_reason", "leaked")
    page.click('input[value="Revoke"]')
    assert "neither the public id nor the name" in page.inner_text("#content")
    assert page.input_value("#id_reason") == "leaked"
    page.fill("#id_typed", new.name)
    page.click('input[value="Revoke"]')
    assert page.inner_text("#rl-state") == "revoked"


def test_the_list_draws_the_last_day_and_warns_of_what_expires(visit: Any, pair: Any) -> None:
    page = visit(KEYS).page
    drawing = page.locator("#result_list .rl-sparkline").first.bounding_box()
    assert drawing["width"] > 60
    assert drawing["height"] > 10

    page.get_by_role("link", name="within 14 days, and not replaced").click()

    page.wait_for_url("**/?expires=soon")
    assert "Expires in 8 days." in page.locator("#result_list").inner_text()
    assert page.locator("#result_list tbody tr").count() == 1


def test_a_span_of_the_drawing_is_the_range_of_the_whole_page_in_any_time_zone(visit: Any, pair: Any) -> None:
    visitor = visit(f"{KEYS}{pair[1].pk}/page/", time_zone="Asia/Kolkata")  # half an hour off, and not the server's
    page = visitor.page
    before = page.locator("#rl-requests-table tbody tr").count()
    chart = page.locator("[data-chart=requests] .u-over")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()

    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=5)
    page.mouse.up()

    page.wait_for_url(re.compile(r"from=.*&to="))
    asked = parse_qs(urlsplit(page.url).query)
    start, end = (datetime.fromisoformat(asked[name][0]) for name in ("from", "to"))
    assert timedelta(minutes=27) <= end - start <= timedelta(minutes=33)
    assert timedelta(minutes=40) <= timezone.now() - start <= timedelta(minutes=60)
    assert 27 <= page.locator("#rl-requests-table tbody tr").count() <= 33 < before


def test_new_numbers_on_a_key_leave_the_focus_where_it_is_and_can_be_paused(visit: Any, pair: Any) -> None:
    page = visit(f"{KEYS}{pair[1].pk}/page/").page
    rotate = page.get_by_role("link", name="Rotate", exact=True)
    rotate.focus()
    used(pair[0].bucket_identity, ago=1, plan_id=2, refused=7_654_321)

    page.evaluate(REFRESH_NOW)

    page.locator("#rl-page", has_text="7,654,").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Rotate"
    page.get_by_role("button", name="Pause refresh").click()
    assert "paused=1" in page.url


def test_a_key_is_boosted_until_a_moment_and_the_boost_is_ended(visit: Any, pair: Any) -> None:
    new = pair[1]
    page = visit(f"{KEYS}{new.pk}/end-boost/").page
    page.get_by_label("Reason").fill("The sale is over")
    page.get_by_role("button", name="End the boost").click()
    page.locator(".messagelist").wait_for()
    new.refresh_from_db()
    assert new.boost_factor == 1

    page.get_by_role("link", name="Boost", exact=True).click()
    page.get_by_label("Times").fill("5")
    page.get_by_label("Reason").fill("Another sale")
    page.get_by_role("button", name="Boost", exact=True).click()

    page.locator(".messagelist").wait_for()
    new.refresh_from_db()
    assert (new.boost_factor, new.boost_reason) == (5, "Another sale")
    assert "Boosted 5 times" in page.locator("#content").inner_text()


def test_a_key_is_moved_to_another_plan_and_its_buckets_are_filled(visit: Any, pair: Any) -> None:
    new = pair[1]
    page = visit(f"{KEYS}{new.pk}/page/").page
    page.get_by_role("link", name="Fill", exact=True).click()
    page.get_by_label("Reason").fill("Our mistake")
    page.locator(".rl-action-form input[type=submit]").click()
    page.locator(".messagelist").wait_for()
    assert limiter.peek(new.as_caller()).remaining == 60  # a burst of 20, three times

    page.get_by_role("link", name="Change plan", exact=True).click()
    page.locator("#id_plan").select_option(value=str(Plan.objects.get(name="Free").pk))
    page.get_by_label("Reason").fill("They pay no more")
    page.locator(".rl-action-form input[type=submit]").click()

    page.locator(".messagelist").wait_for()
    assert {key.plan.name for key in APIKey.objects.filter(bucket_identity=new.bucket_identity)} == {"Free"}


def test_the_page_of_a_key_in_the_hour_that_comes_twice_says_which(visit: Any, pair: Any, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    visitor = visit(f"{KEYS}{pair[1].pk}/page/?from=2026-10-25T00:00Z&to=2026-10-25T02:30Z", time_zone="Asia/Kolkata")
    rows = visitor.page.locator("#rl-requests-table")
    rows.locator("summary").click()
    said = rows.locator("tbody th").all_inner_texts()
    assert len(said) == len(set(said)), "no two rows look the same"
    moments = rows.locator("tbody time")
    found = [moments.nth(place).get_attribute("datetime") for place in range(moments.count())]
    assert found[-1] == "2026-10-25T00:00:00+00:00"
    assert len(found) == len(said)
