"""Do all pages say where they are, how fresh their data is, and when things were, in a way nobody can take wrong?"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from ratelimit_app.models import APIKey, Episode, KeyUse, OutageSpan, Plan, PlanLimit, PlanVersion, record_versions
from tests.admin_pages import KEYS, PLANS, REFUSALS, plan_form
from tests.followed_pages import ROOT
from tests.key_pages import refused
from tests.overview_page import URL as OVERVIEW
from tests.overview_page import Page, arrived, redis_was_gone
from tests.statistics import limited

pytestmark = pytest.mark.django_db

PAGES = {
    "overview": OVERVIEW,
    "keys": KEYS,
    "key": KEYS + "{key}/page/",
    "form of a key": KEYS + "{key}/change/",
    "new key": KEYS + "add/",
    "rotate": KEYS + "{key}/rotate/",
    "revoke": KEYS + "{key}/revoke/",
    "plans": PLANS,
    "plan": PLANS + "{plan}/change/",
    "versions": PLANS + "{plan}/versions/",
    "version": PLANS + "{plan}/versions/1/",
    "limits in shadow": PLANS + "shadow/?range=30d",
    "whom a limit in shadow hurts": PLANS + "shadow/?range=30d&limit={limit}",
    "enforce": PLANS + "shadow/{limit}/enforce/",
    "refusals": REFUSALS,
    "alerts": "/admin/ratelimit_app/episode/",
    "alert": "/admin/ratelimit_app/episode/{episode}/change/",
    "outages": "/admin/ratelimit_app/outagespan/",
    "outage": "/admin/ratelimit_app/outagespan/{span}/change/",
}
#: The same time on the clocks of Berlin, before and after they are set back.
FIRST, SECOND = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


@pytest.fixture
def subjects(make_plan: Any, make_key: Any) -> dict[str, int]:
    limit: PlanLimit = make_plan("Free", mode="shadow").limits.get()
    record_versions(using="default")
    key, _ = make_key(limit.plan, name="Acme")
    APIKey.objects.rotate(key)
    refused(key)
    redis_was_gone(ago=10, minutes=2)
    now = datetime.now(UTC)
    episode = Episode.objects.create(kind="slow", started_at=now, bad_until=now, worst=1, threshold=1)
    limited(limit.pk, at=now.replace(second=0, microsecond=0), identity=key.bucket_identity, would_refuse=3)
    return {
        "key": key.pk,
        "plan": limit.plan_id,
        "limit": limit.pk,
        "episode": episode.pk,
        "span": OutageSpan.objects.get().pk,
    }


def look(client: Client, name: str, subjects: dict[str, int]) -> str:
    answer = client.get(PAGES[name].format(**subjects))
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_says_how_old_its_data_is_and_that_it_is_late(
    admin_client: Client, subjects: dict[str, int], name: str
) -> None:
    assert "no data yet" in Page(look(admin_client, name, subjects)).text
    arrived(seconds_ago=600)
    html = look(admin_client, name, subjects)
    text = Page(html).text
    assert re.search(r"As of \d\d:\d\d:\d\d \S+ late newest data 1\d min old", text)
    assert html.count('id="rl-freshness"') == 1
    arrived()
    assert re.search(r"newest data \d+ s old", Page(look(admin_client, name, subjects)).text)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_says_where_it_is(admin_client: Client, subjects: dict[str, int], name: str) -> None:
    page = Page(look(admin_client, name, subjects))
    assert [element for element in page.elements if element[1].get("class") == "breadcrumbs"]
    assert len(page.all("h1")) >= 1
    assert any(link.get("href") == "/admin/ratelimit_app/" for link in page.all("a"))


@pytest.mark.parametrize("name", PAGES)
def test_every_table_of_ours_has_a_caption_and_cells_that_are_headings_say_of_what(
    admin_client: Client, subjects: dict[str, int], name: str
) -> None:
    html = look(admin_client, name, subjects)
    if (start := html.find('id="rl-page"')) < 0 and name not in ("versions",):
        return  # a list or form of Django's
    tables = re.findall(r"<table.*?</table>", html[max(start, 0) :], re.S)
    for table in tables:
        assert "<caption" in table
        assert not re.search(r"<th(?![^>]*scope=)[ >]", table)


def test_what_an_edit_of_a_plan_would_do_is_shown_in_the_frame_of_the_other_pages(
    admin_client: Client, subjects: dict[str, int]
) -> None:
    limit = PlanLimit.objects.get(pk=subjects["limit"])
    url = PAGES["plan"].format(**subjects)
    html = admin_client.post(url, plan_form(limit, requests="30")).content.decode()
    text = Page(html).text
    assert "What it would do, when enforced" in text
    assert "no data yet" in text
    assert f'<a href="{url}">Free</a>' in html
    assert "<caption" in html


def test_a_page_of_limits_in_shadow_refreshes_its_parts_and_can_be_asked_for_one_plan(
    admin_client: Client, subjects: dict[str, int], make_plan: Any
) -> None:
    make_plan("Pro", mode="shadow")
    url = PLANS + "shadow/"
    assert admin_client.get(url).content.decode().count("/change/") >= 2
    parts = admin_client.get(url + "?plan=free", headers={"accept": "application/json"}).json()["html"]
    assert 'id="rl-limits"' in parts
    assert f"/plan/{subjects['plan']}/change/" in parts
    assert f"/plan/{Plan.objects.get(slug='pro').pk}/change/" not in parts


def test_moments_in_the_hour_that_comes_twice_are_told_apart(
    admin_client: Client, subjects: dict[str, int], settings: Any
) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    key = APIKey.objects.get(pk=subjects["key"])
    APIKey.objects.filter(bucket_identity=key.bucket_identity).update(created_at=FIRST, expires_at=SECOND)
    KeyUse.objects.create(key_id=key.pk, last_used_at=SECOND)
    Episode.objects.update(started_at=FIRST, ended_at=SECOND)
    PlanVersion.objects.update(at=FIRST)
    first, second = refused(key, at=FIRST), refused(key, at=SECOND)
    OutageSpan.objects.update(started_at=FIRST, last_seen_at=SECOND)
    receipts = [PAGES["key"] + f"?receipt={refusal.receipt}" for refusal in (first, second)]

    for name in ("keys", "key", "alerts", "alert", "refusals"):
        text = Page(look(admin_client, name, subjects)).text
        assert re.search(r"2026-10-25 02:30(:00)? CEST", text), name
        assert re.search(r"2026-10-25 02:30(:00)? CET", text), name
    for name in ("versions", "version", "limits in shadow"):
        assert "2026-10-25 02:30 CEST" in Page(look(admin_client, name, subjects)).text, name
    for path, zone in zip(receipts, ("CEST", "CET"), strict=True):
        text = Page(admin_client.get(path.format(**subjects)).content.decode()).text
        assert f"At 2026-10-25 02:30:00 {zone}" in text
    for path in (PAGES["outage"], PAGES["outages"] + "?from=2026-10-24T00:00Z&to=2026-10-26T00:00Z"):
        text = Page(admin_client.get(path.format(**subjects)).content.decode()).text
        assert "25 Oct, 02:30 CEST to 25 Oct, 02:30 CET" in text


def test_no_template_writes_a_moment_with_a_format_that_loses_its_zone() -> None:
    templates = list((ROOT / "ratelimit_app" / "templates").rglob("*.html"))
    assert len(templates) > 10
    for template in templates:
        for how in re.findall(r"\|(?:date|time):'([^']*)'", template.read_text()):
            assert how == "c", template.name
