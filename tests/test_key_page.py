"""Does the page of a key say who it is, what it may do right now, and what it got?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from ratelimit_app import limiter
from ratelimit_app.models import APIKey, KeyUse, RefusalMinute
from tests.admin_pages import KEYS, staff
from tests.key_pages import look, refused, url
from tests.outages import REFUSING, redis_at
from tests.overview_page import Page, arrived, minute, used

pytestmark = pytest.mark.django_db


# --- Who may -----------------------------------------------------------------------------------------------


def test_the_page_is_for_those_who_may_see_keys(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    anonymous = Client().get(url(key))
    assert (anonymous.status_code, "/admin/login/" in anonymous["Location"]) == (302, True)
    assert staff("view_overview", "view_plan", "view_refusal").get(url(key)).status_code == 403
    viewer = staff("view_apikey")
    assert viewer.get(url(key)).status_code == 200
    assert viewer.post(url(key)).status_code == 405
    assert viewer.get(f"{KEYS}987654/page/").status_code == 404


def test_refusals_with_their_addresses_need_their_own_permission(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    refusal = refused(key)
    for client, is_shown in ((staff("view_apikey"), False), (staff("view_apikey", "view_refusal"), True)):
        for query in ("", f"?receipt={refusal.receipt}"):
            text = look(client, key, query).text
            assert ("203.0.113.9" in text) is is_shown
            assert ("Why was this request refused?" in text) is is_shown


def test_only_what_somebody_may_do_is_offered(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    links = {a["href"] for a in look(staff("view_apikey", "boost_apikey"), key).all("a")}
    assert f"{KEYS}{key.pk}/boost/" in links
    for slug in ("rotate", "revoke", "move", "reset", "end-boost"):
        assert f"{KEYS}{key.pk}/{slug}/" not in links


# --- What it says --------------------------------------------------------------------------------------------


def test_it_says_who_the_key_is(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    owner = get_user_model().objects.create_user("ada")
    expires_at = timezone.now() + timedelta(days=3)
    key, _ = make_key(make_plan("Free"), name="Nightly ETL", owner=owner, expires_at=expires_at)
    KeyUse.objects.create(key_id=key.pk, last_used_at=timezone.now().replace(year=2025))
    text = look(admin_client, key).text
    for said in ("Nightly ETL", f"rl_live_{key.public_id}…", "active", "Free", "ada", "2025", "Expires in"):
        assert said in text


def test_it_says_what_its_buckets_hold_and_looking_charges_nothing(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    plan = make_plan("Free", requests=1, period_seconds=3600, burst=3)
    plan.limits.create(name="login", requests=6, period_seconds=60, burst=1200, scope="login")
    key, _ = make_key(plan)
    limiter.check(key.as_caller(), cost=3)
    for _ in range(2):
        text = look(admin_client, key).text
        assert "out 0 of 3" in text
        assert "1,200 of 1,200" in text or "1200 of 1200" in text
        assert "it is full" in text
    assert [weighed.remaining for weighed in limiter.levels(key.as_caller())] == [0, 1200]


def test_when_redis_is_down_the_page_says_so_and_shows_the_rest(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"))
    used(key.bucket_identity, allowed=9, refused=1)
    with redis_at(REFUSING):
        text = look(admin_client, key).text
    assert "Redis does not answer (refused)" in text
    assert "9 requests allowed, 1 blocked" in text


def test_it_shows_what_the_key_got_in_the_range_of_the_url(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    other, _ = make_key(key.plan)
    used(key.bucket_identity, ago=1, allowed=5, refused=2)
    used(key.bucket_identity, ago=100, allowed=7, unchecked=3)
    used(other.bucket_identity, ago=1, allowed=1000)
    arrived()
    assert "12 requests allowed, 2 blocked and 3 let through unchecked" in look(admin_client, key, "?range=24h").text
    assert "5 requests allowed, 2 blocked and 0 let through" in look(admin_client, key, "?range=15m").text
    assert "requests allowed" in look(admin_client, key, "?range=nonsense").text


def test_a_refused_caller_sees_where_and_why_by_route(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    limit = key.plan.limits.get()
    for route, limit_id, count in (("/a/", limit.pk, 5), ("/b/", limit.pk, 9), ("/c/", 987654, 1)):
        RefusalMinute.objects.create(
            minute=minute(1), identity=key.bucket_identity, limit_id=limit_id, route=route, refused=count
        )
    text = look(admin_client, key).text
    assert text.index("/b/ free 9") < text.index("/a/ free 5") < text.index("/c/ a deleted limit 1")


def test_a_rotated_pair_is_shown_together_with_the_last_use_of_the_old_one(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    old, _ = make_key(make_plan("Free"))
    KeyUse.objects.create(key_id=old.pk, last_used_at=timezone.now() - timedelta(minutes=5))
    new, _ = APIKey.objects.rotate(old)
    used(old.bucket_identity, allowed=9)
    for key, said in ((old, f"Replaced by rl_live_{new.public_id}…. Works until"), (new, "last used 5 minutes ago")):
        page = look(admin_client, key)
        assert said in page.text
        assert "9 requests allowed" in page.text
        assert url(new if key == old else old) in {a["href"] for a in page.all("a")}


def test_of_a_key_that_was_rotated_often_the_newest_twenty_are_listed(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    first, _ = make_key(make_plan("Free"))
    newest = first
    for _ in range(24):
        newest, _text = APIKey.objects.rotate(newest, overlap=timedelta(0))
    for key in (first, newest):
        assert look(admin_client, key).text.count("rl_live_") >= 20
        listed = [a for a in look(admin_client, key).all("a") if (a["href"] or "").endswith("/page/")]
        assert 19 <= len(listed) <= 20


def test_a_boost_is_shown_with_its_reason_and_end(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    until = timezone.now() + timedelta(days=1)
    APIKey.objects.boost(key, factor=4, until=until, reason="Black Friday")
    text = look(admin_client, key).text
    assert f"Boosted 4 times until {timezone.localtime(until):%Y-%m-%d %H:%M}" in text
    assert "Black Friday" in text
    assert "12 of 12" in text
    assert "Boosted 4 times" in Page(admin_client.get(KEYS).content.decode()).text


def test_a_revoked_key_says_why_and_spends_from_no_bucket(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    APIKey.objects.filter(pk=key.pk).revoke(reason="leaked on a forum")
    text = look(admin_client, key).text
    assert "revoked leaked on a forum" in text
    assert "spends from no bucket" in text
