"""Does the overview say in a sentence what is wrong, who is hurt and since when, and keep quiet otherwise?"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from ratelimit_app.models import DecisionMinute, Episode
from tests.overview_page import arrived, look, minute, redis_was_gone, sign_in_viewer, used

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("every_request_counts")]


@pytest.fixture
def viewer(db: None, settings: Any) -> Client:
    settings.TIME_ZONE = "UTC"
    arrived()
    return sign_in_viewer()


def test_when_nothing_is_wrong_there_is_one_quiet_line(viewer: Client) -> None:
    used("x", ago=2, allowed=1_000, refused=50)  # 4.8 %

    page = look(viewer)

    assert re.search(r"All clear since \d\d:\d\d UTC\.", page.text)
    assert "Needs attention" not in page.text
    assert "All clear in all of this time" in look(viewer, "?range=7d").text


def test_an_open_alert_is_said_with_who_takes_care_of_it(viewer: Client) -> None:
    Episode.objects.create(
        kind="dropped",
        subject="",
        started_at=minute(9),
        bad_until=minute(1),
        worst=40,
        threshold=0,
        acknowledged_by="<b>Ada</b>",
    )
    used("x", ago=2, allowed=1_000)

    page = look(viewer)

    assert re.search(r"Told since \d\d:\d\d UTC\. <b>Ada</b> takes care of it\.", page.text)
    assert "All clear" not in page.text


def test_nothing_is_called_clear_where_nothing_was_counted(viewer: Client) -> None:
    assert "All clear" not in look(viewer).text


def test_the_worst_key_is_named_with_its_share_and_for_how_long(viewer: Client, make_plan: Any, make_key: Any) -> None:
    plan = make_plan("Free")
    worst, _ = make_key(plan, name="Acme <b>mobile</b>")
    other, _ = make_key(plan, name="small")
    for ago in (40, 30, 20, 10, 1):
        used(worst.bucket_identity, ago=ago, allowed=100, refused=60 if ago in (40, 10, 1) else 0)
    used(other.bucket_identity, ago=1, allowed=1, refused=9)
    used("", ago=1, allowed=0, refused=5_000)  # callers without a key are no key

    page = look(viewer)

    said = r"2 keys are above 5 % blocked\. Worst: Acme <b>mobile</b> , 26\.5 % of its 680 requests, for 1\d min\."
    assert re.search(said, page.text)
    assert "?callers=all#rl-callers" in [a["href"] for a in page.all("a")]


def test_a_key_that_was_blocked_and_no_longer_is_says_when(viewer: Client, make_plan: Any, make_key: Any) -> None:
    now = minute()
    key, _ = make_key(make_plan("Free"), name="Acme")
    used(key.bucket_identity, now=now, ago=30, allowed=10, refused=90)
    used(key.bucket_identity, now=now, ago=20, allowed=10, refused=90)
    used(key.bucket_identity, now=now, ago=5, allowed=100)

    start, end = minute(30, now=now), minute(19, now=now)
    assert f"60.0 % of its 300 requests ({start:%H:%M} to {end:%H:%M} UTC)." in look(viewer).text


def test_an_outage_is_told_with_its_numbers_and_a_link_to_its_span(viewer: Client) -> None:
    now = minute()
    used("x", now=now, ago=50, local=3, allowed=3)
    redis_was_gone(now=now, ago=50, minutes=1)
    used("x", now=now, ago=20, unchecked=1_234)
    used("x", now=now, ago=19, failed_closed=5)
    redis_was_gone(now=now, ago=20, minutes=2)

    page = look(viewer)

    start, end = minute(20, now=now), minute(18, now=now)
    assert (
        f"unchecked Redis could not be asked from {start:%H:%M} to {end:%H:%M} UTC (timeout). "
        "1,234 requests passed unchecked, 5 were answered 503. Recovered. 1 outage before."
    ) in page.text
    assert "Unchecked 1,234 99.4 % 2 outages, 3 min" in page.text
    link = next(a["href"] for a in page.all("a") if (a["href"] or "").startswith("?from="))
    around = {"from": f"{minute(30, now=now):%Y-%m-%dT%H:%MZ}", "to": f"{minute(8, now=now):%Y-%m-%dT%H:%MZ}"}
    assert link == "?" + urlencode(around)


def test_an_outage_that_goes_on_says_so(viewer: Client) -> None:
    now = minute()
    used("x", now=now, ago=1, local=7, allowed=7)
    used("x", now=now, ago=0, local=7, allowed=7)
    redis_was_gone(now=now, ago=1, minutes=1, ended=False)

    text = look(viewer).text

    since = f"{minute(1, now=now):%H:%M} UTC"
    assert f"Redis could not be asked since {since} (timeout). 14 were decided without Redis. It goes on." in text


def test_single_failures_are_told_without_an_outage(viewer: Client) -> None:
    used("x", ago=20, allowed=1_000, unchecked=3)

    text = look(viewer).text

    assert "Redis failed single requests, without an outage: 3 requests passed unchecked." in text
    assert "Unchecked 3 no outage" in text


def test_slow_decisions_are_told_with_their_worst_moment(viewer: Client) -> None:
    now = minute()
    used("x", now=now, ago=2, allowed=100)
    DecisionMinute.objects.create(minute=minute(5, now=now), at_most_microseconds=1_000, decisions=98)
    DecisionMinute.objects.create(minute=minute(10, now=now), at_most_microseconds=20_000, decisions=2)

    text = look(viewer).text

    assert (
        f"slow Decisions were slow: p99 20 ms , budget 2 ms; worst at {minute(10, now=now):%H:%M} UTC (20 ms)." in text
    )
    assert "p99 decision time ≤ 20 ms p50 1 ms, budget 2 ms" in text


def test_one_slow_decision_in_a_thousand_is_not_worth_a_sentence(viewer: Client) -> None:
    now = minute()
    used("x", now=now, ago=2, allowed=1_000)
    DecisionMinute.objects.create(minute=minute(5, now=now), at_most_microseconds=500, decisions=999)
    DecisionMinute.objects.create(minute=minute(5, now=now), at_most_microseconds=20_000, decisions=1)

    assert "All clear" in look(viewer).text
