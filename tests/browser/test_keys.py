"""Can somebody hand out, replace, look into and end a key with a real browser, without a barrier?"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from ratelimit_app import limiter
from ratelimit_app.models import APIKey, KeyUse, Refusal, RefusalMinute
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
