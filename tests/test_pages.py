"""Is what the overview shows true, and only for those who may see it?"""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from ratelimit_app import stats
from ratelimit_app.models import DecisionMinute, DroppedMinute, KeyUse
from ratelimit_app.pages.text import NOTHING
from tests import statistics
from tests.overview_page import URL, arrived, look, minute, sign_in_viewer, used

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("every_request_counts")]


@pytest.fixture
def viewer(db: None) -> Client:
    return sign_in_viewer()


def test_nobody_in_particular_is_sent_to_the_login() -> None:
    for accept in ("text/html", "application/json"):
        answer = Client().get(URL, headers={"accept": accept})

        assert answer.status_code == 302
        assert "/login/" in answer["Location"]


def test_staff_without_the_permission_get_403_and_no_entry() -> None:
    user = get_user_model().objects.create_user("staff", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_plan"))
    client = Client()
    client.force_login(user)

    assert client.get(URL).status_code == 403
    assert client.get(URL, headers={"accept": "application/json"}).status_code == 403
    assert URL not in client.get("/admin/").content.decode()


def test_the_permission_alone_opens_the_page_and_its_entry(viewer: Client) -> None:
    assert viewer.get(URL).status_code == 200
    assert URL in viewer.get("/admin/").content.decode()
    assert viewer.post(URL).status_code == 405


def test_there_is_nothing_to_add_change_or_delete(admin_client: Client) -> None:
    for path in ("add/", "1/change/", "1/delete/", "1/history/"):
        assert admin_client.get(URL + path).status_code == 404


def test_the_figures_are_the_sums_of_the_window(viewer: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"), name="Nightly ETL")
    used(key.bucket_identity, ago=2, allowed=900, refused=60)
    used(key.bucket_identity, ago=20, allowed=100, refused=40)
    used("", ago=2, allowed=1_000, unchecked=7, failed_closed=2)
    KeyUse.objects.create(key_id=key.pk, last_used_at=minute(2))
    DecisionMinute.objects.create(minute=minute(), at_most_microseconds=300, decisions=98)
    DecisionMinute.objects.create(minute=minute(), at_most_microseconds=2_000, decisions=2)

    page = look(viewer, "?range=15m")

    figures = [d["value"] for d in page.all("data") if d.get("class") == "rl-value"]
    assert [float(value or "") for value in figures] == [1_960, 3.0612, 2.0, 7, 1]
    assert "Requests checked 1,960" in page.text
    assert "Blocked 3.1 % 60 nothing a day ago" in page.text
    assert "p99 decision time ≤ 2 ms p50 0.3 ms, budget 2 ms" in page.text
    assert "Unchecked 7 no outage" in page.text
    assert "Keys over 5 % blocked 1 of 1 active 1 in the 15 min before" in page.text


def test_figures_are_compared_with_a_day_ago(viewer: Client) -> None:
    used("x", ago=2, allowed=900, refused=100)
    used("x", ago=24 * 60 + 2, allowed=400, refused=100)
    used("x", ago=24 * 60 + 70, allowed=50)  # not at this hour

    text = look(viewer, "?range=1h").text

    assert "Requests checked 1,000" in text
    assert "now, +100 % on a day ago" in text
    assert "Blocked 10.0 % 100 20.0 % a day ago" in text


def test_slower_than_the_histogram_reaches_is_said_to_be_over_its_end(viewer: Client) -> None:
    DecisionMinute.objects.create(minute=minute(), at_most_microseconds=60_000_000, decisions=1)

    assert "over 1,000 ms" in look(viewer).text


def test_callers_are_listed_by_name_with_their_share_and_last_block(
    viewer: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"), name="Nightly ETL")
    used(key.bucket_identity, ago=3, allowed=50, refused=50)
    used("", ago=1, allowed=10_000, refused=1)
    used("*", ago=1, allowed=5)
    used("deleted", ago=1, allowed=4)

    text = look(viewer).text

    rows = text[text.index("Last block") :]
    known = f"Nightly ETL rl_live_{key.public_id}… · Free 100 50 50.0 % over 5 % {NOTHING}"
    assert re.search(known + r" \d min ago", rows)
    assert f"no key 10,001 1 <0.1 % {NOTHING} " in rows
    assert f"other (overflow) 5 0 0.0 % {NOTHING} none" in rows
    assert f"a deleted key 4 0 0.0 % {NOTHING} none" in rows


def test_callers_are_compared_with_the_time_before(viewer: Client) -> None:
    for identity, before, now in (("up", 10, 30), ("down", 30, 10), ("same", 20, 20)):
        used(identity, ago=90, allowed=100 - before, refused=before)
        used(identity, ago=5, allowed=100 - now, refused=now)

    text = look(viewer).text

    assert "30.0 % over 5 % ↑ 10.0 %" in text
    assert "10.0 % over 5 % ↓ 30.0 %" in text
    assert "20.0 % over 5 % = 20.0 %" in text


def test_a_few_callers_are_listed_and_all_when_asked(viewer: Client) -> None:
    for number in range(9):
        used(f"x{number}", ago=1, allowed=10, refused=number)

    assert look(viewer).text.count("a deleted key") == 5 + 1  # the sentence names the worst
    everyone = look(viewer, "?callers=all&range=6h")
    assert everyone.text.count("a deleted key") == 9 + 1
    assert "?callers=all&range=24h" in [a["href"] for a in everyone.all("a")]


def test_keys_and_plans_are_links_only_for_those_who_may_open_them(
    viewer: Client, admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free", mode="shadow"))
    used(key.bucket_identity, allowed=1)

    assert f"/apikey/{key.pk}/" not in viewer.get(URL).content.decode()
    html = admin_client.get(URL).content.decode()
    assert f"/admin/ratelimit_app/apikey/{key.pk}/" in html
    assert f"/admin/ratelimit_app/plan/{key.plan_id}/change/" in html


def test_without_data_the_page_says_what_to_do(viewer: Client) -> None:
    page = look(viewer)

    assert "no data yet" in page.text
    assert "Nothing has been counted yet" in page.text
    assert "Run a Celery worker" in page.text


def test_an_empty_range_with_older_data_points_further_back(viewer: Client) -> None:
    arrived()
    used("x", ago=180, allowed=1)

    page = look(viewer)

    assert "Nothing was counted in this range" in page.text
    assert "?range=30d" in [a["href"] for a in page.all("a")]
    assert "Nothing was counted" not in look(viewer, "?range=24h").text


def test_the_range_stays_in_the_url_and_nonsense_means_an_hour(viewer: Client) -> None:
    def chosen(query: str) -> list[str | None]:
        return [a["href"] for a in look(viewer, query).all("a") if a.get("aria-current") == "true"]

    for slug in stats.RANGES:
        assert chosen(f"?range={slug}") == [f"?range={slug}"]
    assert chosen("") == chosen("?range=<script>") == chosen("?range=") == ["?range=1h"]


def test_fresh_data_is_dated_to_the_second_in_the_readers_time_zone(viewer: Client, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kolkata"
    at = arrived(seconds_ago=20)

    page = look(viewer)

    newest = next(t for t in page.all("time") if t.get("title"))
    assert newest["title"] == f"{at.astimezone(ZoneInfo('Asia/Kolkata')):%H:%M:%S} IST"
    assert newest["datetime"] == at.astimezone(UTC).isoformat()
    assert re.search(r"As of \d\d:\d\d:\d\d IST newest data \d+ (s|min) old", page.text)
    assert "Nothing has arrived" not in page.text


def test_late_data_is_called_late(viewer: Client, settings: Any) -> None:
    settings.TIME_ZONE = "UTC"
    at = arrived(seconds_ago=300)

    text = look(viewer).text

    assert re.search(r"late newest data \d min old", text)
    assert f"late Nothing has arrived since {at.astimezone(UTC):%H:%M} UTC" in text


def test_dropped_records_and_limits_in_shadow_are_shown(viewer: Client, make_plan: Any, make_key: Any) -> None:
    limit = make_plan("Pro 2027", mode="shadow").limits.get()
    DroppedMinute.objects.create(minute=minute(), kind="usage", dropped=1_234)
    statistics.limited(limit.pk, at=minute(), would_refuse=5_602)
    for identity, refused, would_refuse in (("x", 0, 5_602), ("y", 1_910, 0), ("z", 1, 9), ("quiet", 0, 0)):
        used(identity, plan_id=limit.plan_id, allowed=50_000, refused=refused, would_refuse=would_refuse)
        KeyUse.objects.create(key_id=make_key(limit.plan)[0].pk, last_used_at=minute())

    text = look(viewer).text

    assert "dropped 1,234 records (usage) did not fit" in text
    assert "Limit on trial pro-2027 Plan Pro 2027 Rule 1 per 1 h, burst 3 Would have blocked 5,602 (2.8 %)" in text
    assert "The plan blocks now 1,911 (0.9 %) Keys newly hit 1 of 4" in text


@pytest.mark.parametrize(("mode", "words"), [("shadow", "nobody is refused"), ("off", "nothing is limited")])
def test_the_switch_for_everything_is_announced(viewer: Client, configure: Any, mode: str, words: str) -> None:
    assert words not in look(viewer).text
    configure(MODE=mode)
    assert words in look(viewer).text
