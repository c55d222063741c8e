"""Does a page look at what its address says, in the reader's time zone, whatever the address says?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ratelimit_app import stats
from ratelimit_app.models import KeyUse
from ratelimit_app.pages.selection import Selection, selection
from tests.overview_page import URL, Page, look, minute, sign_in_viewer, used

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("every_request_counts")]

NOW = datetime(2026, 11, 30, 15, 0, 12, tzinfo=UTC)


@pytest.fixture
def viewer(db: None) -> Client:
    return sign_in_viewer()


def selected(**given: str) -> Selection:
    if "since" in given:
        given["from"] = given.pop("since")
    return selection(given, now=NOW)


def test_a_range_ends_with_the_minute_that_is_now() -> None:
    chosen = selected(range="15m")

    assert chosen.window.start == datetime(2026, 11, 30, 14, 46, tzinfo=UTC)
    assert chosen.window.end == datetime(2026, 11, 30, 15, 1, tzinfo=UTC)
    assert chosen.is_live


def test_a_span_is_what_it_says_in_whole_minutes() -> None:
    chosen = selected(since="2026-11-30T14:10:20Z", to="2026-11-30T14:19:40Z")

    assert chosen.window.start == datetime(2026, 11, 30, 14, 10, tzinfo=UTC)
    assert chosen.window.end == datetime(2026, 11, 30, 14, 20, tzinfo=UTC)
    assert len(chosen.window.starts) == 10
    assert not chosen.is_live
    assert (chosen.range_slug, chosen.problem) == ("", "")


@pytest.mark.parametrize("days", [0.5, 1, 2, 7, 30, 31])
def test_a_long_span_has_coarse_buckets(days: float) -> None:
    start = NOW - timedelta(days=days)

    chosen = selected(since=start.isoformat(), to=NOW.isoformat())

    assert len(chosen.window.starts) <= 121
    assert chosen.window.start <= start
    assert chosen.window.end >= NOW
    assert chosen.is_live


def test_a_moment_without_a_zone_is_in_the_readers(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"

    chosen = selected(since="2026-11-30T14:00", to="2026-11-30T15:00")

    assert chosen.window.start == datetime(2026, 11, 30, 13, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "to"),
    [
        ("", ""),
        ("yesterday", "today"),
        ("2026-11-30T14:00Z", ""),
        ("", "2026-11-30T14:00Z"),
        ("2026-11-30T15:00Z", "2026-11-30T14:00Z"),
        ("2026-11-30T14:00Z", "2026-11-30T14:00Z"),
        ("2026-11-30T16:00Z", "2026-11-30T17:00Z"),
        ("2026-10-01T00:00Z", "2026-11-30T14:00Z"),
        ("0001-01-01T00:00", "9999-12-31T23:59"),
        ("0001-01-01T00:00+14:00", "2026-11-30T14:00Z"),
        ("<script>", "'; DROP TABLE"),
    ],
)
def test_a_span_that_cannot_be_used_is_said_and_an_hour_is_shown(since: str, to: str) -> None:
    chosen = selected(since=since, to=to)

    assert chosen.range_slug == "1h"
    assert "cannot be used" in chosen.problem


def test_an_unknown_plan_is_said_and_all_plans_are_shown(make_plan: Any) -> None:
    make_plan("Free")

    assert selected(plan="free").plan is not None
    assert selected(plan="free").problem == ""
    for slug in ("gone", "\x01", "x" * 9000):
        assert selected(plan=slug).plan is None
        assert "no plan" in selected(plan=slug).problem


def test_links_carry_on_what_the_address_says_and_nothing_else(make_plan: Any) -> None:
    make_plan("Free")

    chosen = selected(range="6h", plan="free", paused="1", other="<x>")

    assert chosen.link() == "?range=6h&plan=free&paused=1"
    assert chosen.link_to_range("7d") == "?range=7d&plan=free&paused=1"
    assert chosen.link_to_span(NOW - timedelta(hours=1), NOW) == (
        "?plan=free&paused=1&from=2026-11-30T14%3A00Z&to=2026-11-30T15%3A00Z"
    )


def test_a_span_with_nonsense_in_it_still_opens_the_page(viewer: Client) -> None:
    page = look(viewer, "?from=<b>&to=%00&plan=%3Cscript%3E&paused=7&callers=every")

    assert "The span in the address cannot be used" in page.text
    assert "There is no plan with the name in the address" in page.text
    assert page.all("b") == []


def test_the_plan_filter_holds_for_every_number(viewer: Client, make_plan: Any, make_key: Any) -> None:
    free, pro = make_plan("Free"), make_plan("Pro", mode="shadow")
    key, _ = make_key(free, name="on free")
    used(key.bucket_identity, ago=2, plan_id=free.pk, allowed=30, refused=70)
    for plan_key in (key, make_key(pro)[0]):
        KeyUse.objects.create(key_id=plan_key.pk, last_used_at=minute(2))
    used("other", ago=2, plan_id=pro.pk, allowed=5_000, refused=4_000, unchecked=3)

    page = look(viewer, "?plan=free")

    assert "Requests checked 100 " in page.text
    assert "Unchecked 0 Redis decided everything" in page.text
    assert "1 key is above 5 % blocked. Worst: on free , 70.0 % of its 100 requests" in page.text
    assert "of 1 active" in page.text
    assert "a deleted key" not in page.text
    assert "No limit is in shadow" in page.text
    assert [option["value"] for option in page.all("option") if "selected" in option] == ["free"]


def test_every_panel_follows_a_span(viewer: Client) -> None:
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(hours=30)
    used("inside", ago=30 * 60 - 2, allowed=7, refused=1)
    used("outside", ago=30 * 60 + 9, allowed=1_000)
    used("now", ago=1, allowed=5_000)

    answer = viewer.get(URL, {"from": at.isoformat(), "to": (at + timedelta(minutes=5)).isoformat()})

    page = Page(answer.content.decode())
    assert "Requests checked 8 " in page.text
    assert "7 requests allowed, 1 blocked" in page.text
    assert answer.content.decode().count('<th scope="row"><a class="rl-keeps"') == 10  # five in each table
    assert answer.context["charts"]["requests"]["series"][0]["values"] == [0, 0, 7, 0, 0]
    assert [row.traffic.allowed for row in answer.context["callers"]] == [7]
    assert "data-live" not in next(div for div in page.all("div") if div.get("id") == "rl-page")


def test_the_ranges_of_the_page_are_those_of_stats(viewer: Client) -> None:
    hrefs = [a["href"] for a in look(viewer).all("a")]

    assert {f"?range={slug}" for slug in stats.RANGES} <= set(hrefs)
