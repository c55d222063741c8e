"""Is whatever stands on a page about keys only text, readable by everybody and by machines, and is it quick?"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app import testing
from ratelimit_app.models import APIKey, RefusalMinute
from tests.admin_pages import KEYS
from tests.key_pages import look, refused, url
from tests.overview_page import Page, minute, used

pytestmark = pytest.mark.django_db
HOSTILE = "<img src=x onerror=alert(1)>\"'</script>\u202e"


def test_whatever_a_caller_sent_is_only_ever_text(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    plan = make_plan("Free")
    type(plan).objects.filter(pk=plan.pk).update(name=HOSTILE)
    owner = get_user_model().objects.create_user(HOSTILE[:20])
    key, _ = make_key(plan, name=HOSTILE, owner=owner)
    APIKey.objects.boost(key, factor=2, until=timezone.now() + timedelta(days=1), reason=HOSTILE)
    new, _ = APIKey.objects.rotate(key)
    RefusalMinute.objects.create(minute=minute(), identity=key.bucket_identity, limit_id=1, route=HOSTILE, refused=1)
    refusal = refused(key, route=HOSTILE, method=HOSTILE[:10], address=HOSTILE, limit_name=HOSTILE[:50])
    used(key.bucket_identity, allowed=1, refused=1)
    pages = [url(key), url(key, f"?receipt={refusal.receipt}"), KEYS]
    pages += [url(key, "?receipt=%3Cimg%20src=x%3E&range=%3Cimg%3E")]
    pages += [f"{KEYS}{new.pk}/{slug}/" for slug in ("rotate", "revoke", "move", "boost", "end-boost", "reset")]
    for asked in pages:
        answer = admin_client.get(asked)
        assert answer.status_code == 200, asked
        page = Page(answer.content.decode())
        assert [image for image in page.all("img") if not (image["src"] or "").startswith("/static/admin/")] == [], (
            asked
        )
        assert HOSTILE in page.text, asked


def test_every_page_about_keys_obeys_a_strict_content_security_policy(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"))
    used(key.bucket_identity, allowed=9, refused=1, unchecked=1)
    refused(key)
    slugs = ("page", "rotate", "revoke", "move", "boost", "end-boost", "reset", "change")
    answers = [admin_client.get(f"{KEYS}{key.pk}/{slug}/") for slug in slugs]
    answers += [admin_client.get(KEYS), admin_client.post(f"{KEYS}{key.pk}/rotate/", {"overlap_hours": 1})]
    for answer in answers:
        page = Page(answer.content.decode())
        assert page.all("style") == []
        for tag, attributes in page.elements:
            assert "style" not in attributes, tag
            assert not [name for name in attributes if name.startswith("on")], tag
            assert tag != "script" or attributes.get("type") == "application/json" or attributes.get("src")


def test_every_style_and_script_of_the_pages_about_keys_exists(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"))
    for asked in (url(key), KEYS, f"{KEYS}{key.pk}/revoke/"):
        page = Page(admin_client.get(asked).content.decode())
        linked = [link["href"] for link in page.all("link")] + [script.get("src") for script in page.all("script")]
        ours = [name for name in linked if name and name.startswith("/static/ratelimit_app/")]
        assert ours, asked
        for name in ours:
            assert finders.find(name.removeprefix("/static/")), name


def test_everybody_can_read_it(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    APIKey.objects.rotate(key)
    used(key.bucket_identity, allowed=9, refused=1)
    refused(key)
    page = look(admin_client, key)
    ids = {attributes["id"] for _, attributes in page.elements if attributes.get("id")}
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))
    for region in [div for div in page.all("div") if "rl-scroll" in (div.get("class") or "")]:
        assert (region["role"], region["tabindex"]) == ("region", "0")
        assert region.get("aria-label") or region["aria-labelledby"] in ids
    for section in page.all("section"):
        assert section["aria-labelledby"] in ids
    labelled = {label["for"] for label in page.all("label")}
    assert "rl-receipt" in labelled


@pytest.mark.parametrize("language", ["de", "fr"])
def test_c29_numbers_that_machines_read_are_not_localised(
    language: str, settings: Any, admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    settings.LANGUAGE_CODE = language
    settings.USE_THOUSAND_SEPARATOR = True
    plan = make_plan("Free", requests=1_234_567, period_seconds=60, burst=1_234_567)
    key, _ = make_key(plan)
    APIKey.objects.filter(pk=key.pk).update(id=1234)
    key = APIKey.objects.get()
    testing.reset()
    used(key.bucket_identity, ago=1, allowed=1_080_246, refused=154_321)
    page = look(admin_client, key)
    assert "1234567" in [data["value"] for data in page.all("data")]
    assert {"de": "1.234.567", "fr": "1 234 567"}[language] in page.text
    for asked in (url(key), KEYS, f"{KEYS}1234/boost/", f"{KEYS}1234/rotate/"):
        page = Page(admin_client.get(asked).content.decode())
        for tag, attributes in page.elements:
            if tag in ("rect", "line", "text", "svg", "data", "pattern"):
                for name in {"x", "y", "x1", "y1", "width", "height", "value"} & attributes.keys():
                    assert str(float(attributes[name] or "")), (tag, name, attributes[name])
        assert not [a["href"] for a in page.all("a") if "1.234/" in (a.get("href") or "")]
        assert f"{KEYS}1234/page/" in {a["href"] for a in page.all("a")} or asked == url(key)


def test_the_page_costs_the_same_queries_however_busy_the_key_is(
    admin_client: Client, make_plan: Any, make_key: Any, configure: Any
) -> None:
    configure(EXEMPT_PATHS=["/admin"], CACHE_TTL_SECONDS=3600)
    key, _ = make_key(make_plan("Free"))

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            look(admin_client, key)
        return len(captured)

    def grow(times: int) -> None:
        for number in range(times):
            used(key.bucket_identity, ago=1 + number + RefusalMinute.objects.count(), allowed=1, refused=1)
            RefusalMinute.objects.create(
                minute=minute(number), identity=key.bucket_identity, limit_id=1, route=f"/{uuid.uuid4()}/", refused=1
            )
            refused(key)
            make_key(key.plan)

    grow(1)
    queries()
    few = queries()
    grow(40)
    assert queries() == few
    assert few <= 22
