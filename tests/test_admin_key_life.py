"""Does the list of keys say what each did lately, what will end soon, and what was replaced?"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ratelimit_app.models import APIKey, KeyUse, UsageMinute
from ratelimit_app.pages.sparkline import HEIGHT, WIDTH, sparkline
from ratelimit_app.stats import keys as key_stats
from ratelimit_app.stats.keys import Hour
from tests.admin_pages import KEYS, rows_of
from tests.overview_page import Page, used

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 30, 15, 20, tzinfo=UTC)


def rows_at(identity: str, at: datetime, **counts: int) -> None:
    UsageMinute.objects.create(minute=at, identity=identity, plan_id=1, **counts)


# --- The last day ------------------------------------------------------------------------------------------


def test_the_last_day_is_24_hours_that_end_with_the_one_that_is_filling(django_assert_num_queries: Any) -> None:
    rows_at("one", NOW, allowed=1)
    rows_at("one", NOW - timedelta(minutes=20), allowed=2, refused=3)  # 15:00, the same hour
    rows_at("one", NOW - timedelta(minutes=21), allowed=4)  # 14:59
    rows_at("one", datetime(2026, 11, 29, 16, 0, tzinfo=UTC), allowed=5)  # the first minute that counts
    rows_at("one", datetime(2026, 11, 29, 15, 59, tzinfo=UTC), allowed=1000)
    rows_at("other", NOW, allowed=7, refused=7)
    with django_assert_num_queries(2):
        days = key_stats.last_day(["one", "quiet"], now=NOW)
    assert days["quiet"] == (Hour(),) * 24
    assert days["one"] == (Hour(5, 0), *(Hour(),) * 21, Hour(4, 0), Hour(3, 3))


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_the_last_day_does_not_depend_on_the_time_zone(zone: str, settings: Any) -> None:
    settings.TIME_ZONE = zone
    rows_at("one", NOW, allowed=1)
    rows_at("one", NOW - timedelta(hours=3), allowed=2)
    day = key_stats.last_day(["one"], now=NOW.astimezone(timezone.get_current_timezone()))["one"]
    assert [hour.allowed for hour in day[-4:]] == [2, 0, 0, 1]


@pytest.mark.parametrize("most", [1, 7, 1_000, 9_999_999_999])
def test_the_drawing_stays_inside_its_frame_and_shows_whatever_is_not_nothing(most: int) -> None:
    hours = [Hour(most * number // 23, 1 if number % 2 else most // 2) for number in range(24)]
    drawn = sparkline(hours)
    assert len(drawn.bars) == len([hour for hour in hours if hour.allowed or hour.blocked])
    for bar in drawn.bars:
        assert bar.x >= 0
        assert bar.x + bar.width <= WIDTH
        assert 0 <= bar.blocked_y <= bar.allowed_y <= HEIGHT
        assert bar.allowed_y + bar.allowed_height == pytest.approx(HEIGHT)
        assert bar.blocked_height == 0 or bar.blocked_height >= 1


def test_a_drawing_says_the_same_in_words() -> None:
    def words(*hours: Hour) -> str:
        return sparkline(hours).words.replace("\xa0", " ")

    assert words(Hour(), Hour()) == "no requests"
    assert words(Hour(1_500, 500), Hour()) == "2,000 requests, 25.0 % blocked"
    assert words(Hour(999_999, 1), Hour()) == "1,000,000 requests, <0.1 % blocked"


def test_each_row_of_the_list_draws_the_last_day_of_its_key(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    busy, _ = make_key(make_plan("Free"))
    quiet, _ = make_key(busy.plan)
    used(busy.bucket_identity, allowed=30, refused=10)
    html = admin_client.get(KEYS).content.decode().replace("\xa0", " ")
    days = re.findall(r'class="field-day">(.*?)</td>', html, re.DOTALL)
    assert len(days) == 2  # the newest first
    assert "no requests" in days[0]
    assert "<svg" not in days[0]
    assert "40 requests, 25.0 % blocked" in days[1]
    assert days[1].count("<rect") == 2
    assert f'href="{KEYS}{quiet.pk}/page/"' in html


# --- What will end, and what was replaced --------------------------------------------------------------------


def test_keys_that_expire_soon_are_found_by_a_filter_and_say_so(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    plan = make_plan("Free")
    soon, _ = make_key(plan, expires_at=timezone.now() + timedelta(days=3, hours=1))
    make_key(plan, expires_at=timezone.now() + timedelta(days=15))
    make_key(plan, expires_at=timezone.now() - timedelta(days=1))
    replaced, _ = make_key(plan, expires_at=timezone.now() + timedelta(days=3))
    APIKey.objects.rotate(replaced, expires_at=None)

    answer = admin_client.get(KEYS, {"expires": "soon"})

    assert rows_of(answer) == [soon]
    assert "Expires in 3 days." in Page(answer.content.decode()).text
    assert Page(admin_client.get(KEYS).content.decode()).text.count("Expires in") == 1
    assert len(rows_of(admin_client.get(KEYS, {"expires": "nonsense"}))) == 5


def test_a_pair_is_listed_as_one_with_the_last_use_of_the_old_key(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    old, _ = make_key(make_plan("Free"))
    new, _ = APIKey.objects.rotate(old)
    KeyUse.objects.create(key_id=old.pk, last_used_at=timezone.now() - timedelta(hours=2))

    text = Page(admin_client.get(KEYS).content.decode()).text

    assert f"Replaces rl_live_{old.public_id}…, last used 2 hours ago. Works until" in text
    assert f"Replaced by rl_live_{new.public_id}…. Works until" in text
    APIKey.objects.filter(pk=old.pk).update(expires_at=timezone.now())
    text = Page(admin_client.get(KEYS).content.decode()).text
    assert "Replaces" not in text
    assert f"Replaced by rl_live_{new.public_id}…." in text


def test_boosted_keys_are_found_by_a_filter(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    boosted, _ = make_key(make_plan("Free"))
    over, _ = make_key(boosted.plan)
    for key, until in ((boosted, timezone.now() + timedelta(days=1)), (over, timezone.now() - timedelta(days=1))):
        APIKey.objects.filter(pk=key.pk).update(boost_factor=2, boost_ends_at=until, boost_reason=str(uuid.uuid4()))
    answer = admin_client.get(KEYS, {"state": "boosted"})
    assert rows_of(answer) == [boosted]
    assert Page(answer.content.decode()).text.count("Boosted 2 times") == 1
