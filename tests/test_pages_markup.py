"""Can everybody read the overview, machines included, and is it safe to open?"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ratelimit_app import stats
from ratelimit_app.models import APIKey
from ratelimit_app.pages.chart import chart
from tests import statistics
from tests.overview_page import URL, Page, look, minute, sign_in_viewer, used

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(db: None) -> Client:
    return sign_in_viewer()


def test_every_page_obeys_a_strict_content_security_policy(
    viewer: Client, admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"))
    used(key.bucket_identity, allowed=9, refused=1, unchecked=1)
    chosen = {"action": "revoke", "_selected_action": [key.pk]}
    pages = [
        look(viewer),
        Page(admin_client.post("/admin/ratelimit_app/apikey/", chosen).content.decode()),
        Page(
            admin_client.post("/admin/ratelimit_app/apikey/add/", {"name": "n", "plan": key.plan_id}).content.decode()
        ),
    ]

    for page in pages:
        assert page.all("style") == []
        for tag, attributes in page.elements:
            assert "style" not in attributes, tag
            assert not [name for name in attributes if name.startswith("on")], tag
            is_data = attributes.get("type") == "application/json"  # never run
            assert tag != "script" or is_data or (attributes.get("src") or "").startswith("/static/")
            assert not (attributes.get("href") or "").lower().startswith("javascript:")


def test_a_hostile_name_is_only_ever_text(viewer: Client, make_plan: Any, make_key: Any) -> None:
    hostile = "<img src=x onerror=alert(1)>\"'</script>\u202e"
    plan = make_plan("Free", mode="shadow")
    plan.name = hostile
    plan.save()
    key, _ = make_key(plan, name=hostile)
    used(key.bucket_identity, allowed=1)

    page = look(viewer)

    assert page.all("img") == []
    assert hostile in page.text


def test_everybody_can_read_it(viewer: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free", mode="shadow"))
    used(key.bucket_identity, allowed=9, refused=1)

    page = look(viewer)

    ids = {attributes["id"] for _, attributes in page.elements if attributes.get("id")}
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))
    pictures = [attributes for _, attributes in page.elements if attributes.get("role") == "img"]
    assert len(pictures) == 4  # three charts, and one for those without JavaScript
    for picture in pictures:
        assert picture.get("aria-label") or set((picture["aria-labelledby"] or "").split()) <= ids
    regions = [div for div in page.all("div") if "rl-scroll" in (div.get("class") or "")]
    assert len(regions) == 3
    for region in regions:
        assert (region["role"], region["tabindex"]) == ("region", "0")
        assert region.get("aria-label") or region["aria-labelledby"] in ids
    assert "9 requests allowed, 1 blocked and 0 let through unchecked." in page.text


def test_the_table_behind_the_chart_has_every_bucket(viewer: Client) -> None:
    used("x", ago=1, allowed=1_234_567, refused=3)

    html = viewer.get(URL + "?range=15m").content.decode()

    table = html[html.index('id="rl-requests-table"') : html.index("</details>", html.index('id="rl-requests-table"'))]
    assert table.count('<th scope="row">') == 15
    assert table.count("still filling") in (1, 2)
    assert '<data value="1234567">' in table


def test_breadcrumbs_have_the_markup_of_this_djangos_admin(viewer: Client) -> None:
    index = viewer.get("/admin/ratelimit_app/").content.decode()
    markup = re.search(r'<(div|ol) class="breadcrumbs">', index)

    assert markup is not None
    assert markup[0] in viewer.get(URL).content.decode()


def test_asked_for_json_the_page_gives_its_live_parts(viewer: Client) -> None:
    used("x", ago=2, allowed=1_234, refused=3)

    answer = viewer.get(URL + "?range=15m", headers={"accept": "application/json"})

    assert answer.headers["Content-Type"] == "application/json"
    assert "Accept" in answer.headers["Vary"]
    assert "no-store" in answer.headers["Cache-Control"]
    parts = Page(answer.json()["html"])
    live = {div["id"] for _, div in parts.elements if "rl-live" in (div.get("class") or "")}
    assert {"rl-freshness", "rl-attention", "rl-figures", "rl-callers", "rl-shadow", "rl-requests-numbers"} <= live
    assert "html" not in [tag for tag, _ in parts.elements]
    assert "1,234" in parts.text
    charts = answer.json()["charts"]
    assert sum(charts["requests"]["series"][0]["values"]) == 1_234
    assert charts.keys() == {"requests", "share", "times"}


def test_the_project_can_fill_the_block_for_its_own_panels(viewer: Client, settings: Any, tmp_path: Any) -> None:
    extended = tmp_path / "admin/ratelimit_app/overview.html"
    extended.parent.mkdir(parents=True)
    extended.write_text(
        '{% extends "admin/ratelimit_app/overview.html" %}{% block ops %}<p>Queue depth: 3</p>{% endblock %}'
    )
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]

    text = look(viewer).text

    assert "Queue depth: 3" in text
    assert text.count("Rate limit overview") == text.replace("Queue depth: 3", "").count("Rate limit overview")


@pytest.mark.parametrize("slug", stats.RANGES)
@pytest.mark.parametrize("most", [0, 1, 7, 99, 100, 101, 1_234_567, 9_999_999_999])
def test_bands_stand_on_each_other_inside_the_frame(slug: str, most: int) -> None:
    window = stats.window(stats.RANGES[slug], now=timezone.now())
    buckets = tuple(
        stats.Traffic(at=at, allowed=most * n // 100, blocked=n, unchecked=n // 2) for n, at in enumerate(window.starts)
    )

    drawn = chart(window, buckets, stats.total(buckets, at=window.start))

    for bar in drawn.bars:
        assert drawn.left <= bar.x
        assert bar.x + bar.width <= drawn.right
        assert 0 <= bar.unchecked_y <= bar.blocked_y <= bar.allowed_y <= drawn.bottom
        assert bar.allowed_y + bar.allowed_height == pytest.approx(drawn.bottom)
        assert bar.blocked_y + bar.blocked_height == pytest.approx(bar.allowed_y)
        assert bar.unchecked_y + bar.unchecked_height == pytest.approx(bar.blocked_y)
    assert len(drawn.levels) == 5
    assert 2 <= len(drawn.moments) <= 9


@pytest.mark.parametrize("language", ["de", "fr"])
def test_c29_numbers_that_machines_read_are_not_localised(
    language: str, settings: Any, admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    settings.LANGUAGE_CODE = language
    settings.USE_THOUSAND_SEPARATOR = True
    plan = make_plan("Free", mode="shadow")
    plan.limits.all().delete()
    plan.pk = 1234
    plan.slug, plan.name = "other", "Other"
    plan.save(force_insert=True)
    limit = plan.limits.create(name="other", requests=1_234_567, period_seconds=3600, burst=1234, mode="shadow")
    key, _ = make_key(plan)
    APIKey.objects.filter(pk=key.pk).update(id=1234)
    used(key.bucket_identity, ago=1, allowed=1_080_246, refused=154_321)
    statistics.limited(limit.pk, at=minute(), would_refuse=1234)

    page = look(admin_client)

    figures = [d["value"] for d in page.all("data") if d.get("class") == "rl-value"]
    assert figures[:2] == ["1234567", "12.5"]
    hrefs = [a["href"] for a in page.all("a")]
    assert "/admin/ratelimit_app/apikey/1234/page/" in hrefs
    assert "/admin/ratelimit_app/plan/1234/change/" in hrefs
    numeric = {"x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "width", "height", "value"}
    for tag, attributes in page.elements:
        if tag in ("rect", "line", "text", "svg", "data", "pattern"):
            for name in numeric & attributes.keys():
                assert re.fullmatch(r"-?\d+(\.\d+)?", attributes[name] or ""), (tag, name, attributes[name])
    assert {"de": "1.234.567", "fr": "1 234 567"}[language] in page.text

    for path in ("apikey/", "apikey/1234/change/", "plan/", "plan/1234/change/", "refusal/", "apikey/1234/delete/"):
        answer = admin_client.get(f"/admin/ratelimit_app/{path}")
        assert answer.status_code == 200
        html = answer.content.decode()
        assert "1.234/" not in html
        assert "/1234/" in html or path == "refusal/"
        numbers = [i for i in Page(html).all("input") if i.get("type") == "number"]
        assert all(re.fullmatch(r"\d*", i.get("value") or "") for i in numbers)
