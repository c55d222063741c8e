"""What raises an alert, and what does not? Evaluated step by step on a clock that is passed in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratelimit_app.models import DroppedMinute, Episode
from tests.alert_rows import NOON, arrived, at, evaluate, open_kinds, steady, took, used

pytestmark = pytest.mark.django_db


# --- What raises one ---------------------------------------------------------------------------


def test_traffic_that_is_well_raises_nothing():
    used(allowed=100_000, refused=5_000)
    used(identity="", allowed=10_000)
    took()
    arrived(0)
    evaluate()
    assert not Episode.objects.exists()


def test_more_than_the_allowed_share_of_blocked_requests_raises_an_alert():
    used(-4, allowed=600, refused=60)
    used(-5, allowed=1_000_000)  # before the five minutes
    used(1, allowed=1_000_000)  # not settled yet
    used(0, identity="", allowed=300, refused=40)
    evaluate()
    assert open_kinds()["blocked"] == 10.0
    episode = Episode.objects.get(kind="blocked")
    assert (episode.started_at, episode.bad_until) == (NOON - timedelta(minutes=4), NOON + timedelta(minutes=1))
    assert episode.threshold == 5.0


def test_shares_of_few_requests_raise_nothing(configure):
    used(allowed=1, refused=498)
    took(microseconds=5_000, decisions=499)
    evaluate()
    assert open_kinds() == {}
    configure(ALERT_MIN_REQUESTS=499)
    evaluate()
    assert open_kinds() == {"blocked": 498 * 100 / 499, "key_blocked": 498 * 100 / 499, "slow": 0.005}


def test_each_key_is_weighed_by_itself_and_at_most_ten_are_told():
    used(identity="", allowed=10_000_000, refused=900)
    used(identity="*", allowed=1_000, refused=900)
    for number in range(15):
        used(identity=f"key-{number:02}", allowed=1_000, refused=100 + number)
    evaluate()
    told = list(Episode.objects.order_by("-worst").values_list("kind", "subject"))
    assert told == [("key_blocked", f"key-{number:02}") for number in range(14, 4, -1)]
    evaluate()
    assert Episode.objects.count() == 10


def test_one_request_that_redis_did_not_decide_raises_an_alert_with_its_minutes():
    used(-30, allowed=10_000, local=3)
    used(-28, allowed=10_000, unchecked=2, failed_closed=1)
    used(0, allowed=10_000)
    evaluate()
    episode = Episode.objects.get()
    assert (episode.kind, episode.worst) == ("unchecked", 6)
    assert (episode.started_at, episode.ended_at) == (NOON - timedelta(minutes=30), NOON - timedelta(minutes=27))
    evaluate(1)
    assert Episode.objects.count() == 1  # told once


def test_rows_that_come_late_belong_to_the_episode_or_begin_another():
    used(-3, unchecked=2)
    evaluate()
    used(0, unchecked=5)
    used(-2, local=1)
    evaluate(1)
    assert Episode.objects.get(ended_at=None).worst == 8
    evaluate(20)
    used(10, unchecked=1)  # after the end of what was told, an hour ago at most
    evaluate(40)
    assert list(Episode.objects.order_by("started_at").values_list("worst", flat=True)) == [8, 1]
    assert not Episode.objects.filter(ended_at=None).exists()


def test_of_a_long_outage_the_worst_value_is_the_most_within_an_hour():
    for minute in range(-180, 1):
        used(minute, local=10)
    for minute in range(-170, 1, 10):
        evaluate(minute)
    episode = Episode.objects.get()
    assert episode.worst == 610  # the hour until the last settled minute, and the one that is not over
    assert episode.started_at == NOON - timedelta(minutes=180)


def test_slow_decisions_raise_an_alert_by_their_p99():
    took(microseconds=300, decisions=980)
    took(microseconds=5_000, decisions=20)
    evaluate()
    assert open_kinds() == {"slow": 0.005}


def test_a_budget_that_is_kept_exactly_raises_nothing():
    took(microseconds=2_000)
    evaluate()
    assert open_kinds() == {}


def test_dropped_records_raise_an_alert_and_samples_that_were_not_kept_do_not():
    DroppedMinute.objects.create(minute=NOON, kind="samples", dropped=1_000)
    evaluate()
    assert open_kinds() == {}
    DroppedMinute.objects.create(minute=NOON, kind="usage", dropped=7)
    evaluate()
    assert open_kinds() == {"dropped": 7}


@pytest.mark.parametrize(
    "name", ["ALERT_BLOCKED_PERCENT", "ALERT_KEY_BLOCKED_PERCENT", "ALERT_P99_SECONDS", "ALERT_LATE_SECONDS"]
)
def test_zero_turns_one_kind_off(configure, name):
    used(refused=1_000)
    took(-20, microseconds=5_000)
    took(microseconds=5_000)
    arrived(20)
    kind = {"ALERT_BLOCKED_PERCENT": "blocked", "ALERT_KEY_BLOCKED_PERCENT": "key_blocked"}.get(
        name, "slow" if name == "ALERT_P99_SECONDS" else "late"
    )
    configure(**{name: 0})
    # Late data are looked at as far as they reach; with the alert off, as if they were in time.
    evaluate(20 if kind == "late" else 0)
    assert kind not in open_kinds()


# --- Data that does not arrive -----------------------------------------------------------------


def test_minutes_that_arrive_long_after_they_ended_are_late():
    took(-9)
    arrived(0)  # 12:01:31, of the minute that ended at 11:52
    evaluate()
    assert open_kinds() == {"late": 571}


def test_silence_after_steady_traffic_raises_an_alert_that_data_ends():
    steady()
    arrived(0)
    evaluate(4.9)
    assert open_kinds() == {}
    evaluate(5.1)
    evaluate(8)
    assert open_kinds() == {"no_data": 480}

    for minute in (8, 9, 13):
        took(minute)
        arrived(minute)
    evaluate(12)
    assert open_kinds() == {"no_data": 480}  # quiet for less than five minutes
    evaluate(14)
    assert Episode.objects.get().ended_at == at(8)


def test_silence_after_a_single_request_is_nothing_to_tell():
    took()
    arrived(0)
    evaluate(30)
    assert open_kinds() == {}


def test_silence_is_no_news_of_a_limiter_that_is_switched_off(configure):
    steady()
    arrived(0)
    configure(MODE="off")
    evaluate(30)
    assert open_kinds() == {}


def test_what_was_wrong_when_data_stopped_is_not_taken_for_over():
    steady()
    used(allowed=1_000, refused=1_000)
    arrived(0)
    evaluate()
    for minute in range(6, 60, 9):
        evaluate(minute)
    assert set(open_kinds()) == {"blocked", "key_blocked", "no_data"}


def test_without_any_data_nothing_is_wrong():
    evaluate()
    assert not Episode.objects.exists()
