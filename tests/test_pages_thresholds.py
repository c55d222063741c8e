"""Do pages and alerts agree on what is too much? Both go by the same settings."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from ratelimit_app import stats
from ratelimit_app.models import DecisionMinute
from ratelimit_app.pages import thresholds
from tests.key_pages import url as key_url
from tests.overview_page import URL, look, minute, sign_in_viewer, used

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return sign_in_viewer()


def traffic(allowed: int, blocked: int) -> stats.Traffic:
    return stats.Traffic(at=minute(), allowed=allowed, blocked=blocked)


@pytest.mark.parametrize(
    ("allowed", "blocked", "percent", "is_over"),
    [(949, 51, 5, True), (95, 5, 5, False), (949, 51, 5.1, False), (9748, 252, 2.5, True), (9750, 250, 2.5, False)],
)
def test_a_key_is_over_above_the_share_that_is_set_and_not_at_it(
    configure: Any, allowed: int, blocked: int, percent: float, is_over: bool
) -> None:
    configure(ALERT_KEY_BLOCKED_PERCENT=percent, ALERT_MIN_REQUESTS=1)
    assert thresholds.key_is_over(traffic(allowed, blocked)) == is_over


def test_a_key_that_sent_little_is_not_called_blocked(
    viewer: Client, make_plan: Any, make_key: Any, configure: Any
) -> None:
    key, _ = make_key(make_plan("Free"), name="Seldom")
    used(key.bucket_identity, ago=2, allowed=1, refused=499)
    assert "Keys over 5 % blocked 1 of" in look(viewer).text
    assert "1 key is above 5 % blocked. Worst: Seldom , 99.8 %" in look(viewer).text
    configure(ALERT_MIN_REQUESTS=501)
    seen = look(viewer)
    assert "Keys over 5 % blocked 0 of" in seen.text
    assert "is above 5 % blocked" not in seen.text
    assert "99.8 % over 5 %" not in seen.text
    assert "99.8 %" in seen.text  # it stays in the table


def test_the_overview_draws_its_lines_where_alerts_begin(
    viewer: Client, admin_client: Client, make_plan: Any, make_key: Any, configure: Any
) -> None:
    configure(ALERT_BLOCKED_PERCENT=7.5, ALERT_KEY_BLOCKED_PERCENT=2.5, ALERT_P99_SECONDS=0.03)
    key, _ = make_key(make_plan("Free"))
    used(key.bucket_identity, ago=2, allowed=970, refused=30)
    DecisionMinute.objects.create(minute=minute(2), at_most_microseconds=20_000, decisions=500)

    text = look(viewer).text
    assert "Keys over 2.5 % blocked 1 of" in text
    assert "mark at 2.5 %" in text
    assert "budget 30 ms" in text
    assert "Decisions were slow" not in text
    charts = viewer.get(URL, headers={"accept": "application/json"}).json()["charts"]
    assert charts["share"]["limit"] == {"value": 7.5, "label": "7.5% blocked"}
    assert charts["times"]["limit"] == {"value": 30.0, "label": "budget 30 ms"}
    charts = admin_client.get(key_url(key), headers={"accept": "application/json"}).json()["charts"]
    assert charts["share"]["limit"]["value"] == 2.5

    configure(ALERT_P99_SECONDS=0.01)
    assert "Decisions were slow: p99 20 ms , budget 10 ms" in look(viewer).text


def test_without_a_threshold_nothing_is_too_much(viewer: Client, make_plan: Any, make_key: Any, configure: Any) -> None:
    configure(ALERT_BLOCKED_PERCENT=0, ALERT_KEY_BLOCKED_PERCENT=0, ALERT_P99_SECONDS=0)
    key, _ = make_key(make_plan("Free"))
    used(key.bucket_identity, ago=2, allowed=500, refused=500)
    DecisionMinute.objects.create(minute=minute(2), at_most_microseconds=20_000, decisions=500)

    seen = look(viewer)

    assert "Keys over 0 % blocked 1 of" in seen.text
    assert "All clear" in seen.text
    assert "budget" not in seen.text
    assert "mark at" not in seen.text
    charts = viewer.get(URL, headers={"accept": "application/json"}).json()["charts"]
    assert charts["share"]["limit"] is None
    assert charts["times"]["limit"] is None
