"""When does an alert begin, go on and end? Evaluated step by step on a clock that is passed in."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.test.utils import CaptureQueriesContext

from ratelimit_app import alerts
from ratelimit_app.models import Batch, DecisionMinute, DroppedMinute, Episode, Evaluation, UsageMinute

pytestmark = pytest.mark.django_db

#: Evaluated here, 12:00 is the newest settled minute: it ended 30 s ago, when every process flushes within 10 s.
NOW = datetime(2026, 11, 30, 12, 1, 31, tzinfo=UTC)
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def used(minute: float = 0, identity: str = "caller", **counts: int) -> None:
    UsageMinute.objects.create(minute=NOON + timedelta(minutes=minute), identity=identity, plan_id=1, **counts)


def took(minute: float = 0, *, microseconds: int = 300, decisions: int = 10_000) -> None:
    DecisionMinute.objects.create(
        minute=NOON + timedelta(minutes=minute), at_most_microseconds=microseconds, decisions=decisions
    )


def arrived(minutes: float) -> None:
    """A batch was stored so many minutes after NOW."""
    Batch.objects.create(id=uuid.uuid4(), received_at=at(minutes))


def evaluate(minutes: float = 0) -> None:
    alerts.evaluate(now=at(minutes))


def open_kinds() -> dict[str, float]:
    return {episode.kind: episode.worst for episode in Episode.objects.filter(ended_at=None)}


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


def steady(until: int = 0) -> None:
    for minute in range(-59, until + 1):
        took(minute)


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


# --- Beginning and end -------------------------------------------------------------------------


def test_an_episode_begins_once_goes_on_and_ends_after_five_quiet_minutes():
    for minute in range(20):
        used(minute, identity="", allowed=10_000, refused=2_000 if minute < 8 else 0)
    for minute in range(20):
        evaluate(minute)
    episode = Episode.objects.get()
    assert episode.worst == pytest.approx(100 / 6)
    assert episode.started_at == NOON - timedelta(minutes=4)
    # The last five minutes that were above four fifths of the threshold ended at 12:10.
    assert episode.ended_at == NOON + timedelta(minutes=11)


def test_a_value_around_its_threshold_is_one_episode():
    for minute in range(60):
        used(minute, identity="", allowed=1_000, refused=55 if minute % 10 < 5 else 46)
    for minute in range(60):
        evaluate(minute)
    assert Episode.objects.count() == 1
    assert Episode.objects.get().ended_at is None


def test_to_evaluate_twice_changes_nothing():
    used(allowed=1_000, refused=1_000, unchecked=3)
    evaluate()
    before = list(Episode.objects.order_by("pk").values())
    evaluate()
    assert list(Episode.objects.order_by("pk").values()) == before
    assert len(before) == 3


def test_the_database_itself_allows_one_open_episode_of_a_kind_and_subject():
    values: dict[str, Any] = {"kind": "blocked", "started_at": NOON, "bad_until": NOON, "worst": 9, "threshold": 5}
    Episode.objects.create(**values, ended_at=NOON)
    Episode.objects.create(**values)
    Episode.objects.create(**values, subject="key")
    with pytest.raises(IntegrityError), transaction.atomic():
        Episode.objects.create(**values)


@pytest.mark.django_db(transaction=True)
def test_workers_that_evaluate_at_once_open_one_episode_with_one_message(configure):
    configure(ALERT_WEBHOOK_URL="http://127.0.0.1:1/")
    used(allowed=1_000, refused=1_000, unchecked=3)
    together, errors = threading.Barrier(4), []

    def work() -> None:
        try:
            together.wait()
            for minute in (0, 1, 0, 12):
                evaluate(minute)
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(Episode.objects.values_list("kind", "messages__event")) == sorted(
        (kind, event) for kind in ("blocked", "key_blocked", "unchecked") for event in ("opened", "ended")
    )


def test_the_number_of_queries_does_not_depend_on_the_number_of_keys():
    def queries() -> int:
        with CaptureQueriesContext(connections["default"]) as captured:
            evaluate()
        return len(captured)

    took(microseconds=5_000)
    used(identity="first", allowed=1_000, refused=1_000, unchecked=1)
    arrived(0)
    evaluate()
    few = queries()
    UsageMinute.objects.bulk_create(
        UsageMinute(minute=NOON, identity=f"key-{number}", plan_id=1, allowed=1_000, refused=10)
        for number in range(2_000)
    )
    assert queries() == few <= 16


def test_it_is_known_when_alerts_were_last_evaluated():
    assert alerts.evaluated_at() is None
    evaluate()
    evaluate(3)
    assert alerts.evaluated_at() == at(3)
    assert Evaluation.objects.count() == 1


def test_episodes_are_kept_for_a_year_and_open_ones_for_ever():
    values: dict[str, Any] = {"kind": "blocked", "worst": 9, "threshold": 5}
    for days, is_open in ((400, False), (300, False), (500, True)):
        then = datetime.now(UTC) - timedelta(days=days)
        Episode.objects.create(**values, started_at=then, bad_until=then, ended_at=None if is_open else then)
    alerts.prune()
    assert Episode.objects.count() == 2


# --- For the pages -----------------------------------------------------------------------------


def test_open_alerts_are_said_with_their_key_and_where_to_look(make_plan, make_key):
    key, _ = make_key(make_plan(), name="Nightly <b>ETL</b>")
    used(identity=key.bucket_identity, allowed=900, refused=100)
    used(identity="gone", allowed=800, refused=200)
    evaluate()
    by_key = {alert.key: alert for alert in alerts.open_alerts()}
    (everyone, ours) = (
        next(alert for alert in alerts.open_alerts() if alert.kind == "blocked"),
        by_key[key],
    )
    assert everyone.sentence == "15.0 % of all requests were blocked; the threshold is 5.0 %."
    assert ours.sentence.startswith(f"Nightly <b>ETL</b> (rl_live_{key.public_id}…) had 10.0 % of its requests blocked")
    assert everyone.path.startswith("/admin/ratelimit_app/overview/?range=")
    assert "range=" in ours.path
    assert key.public_id in ours.path or f"/{key.pk}/" in ours.path
    assert any("A deleted key" in alert.sentence for alert in alerts.open_alerts())


def test_open_alerts_cost_two_queries(django_assert_num_queries):
    for number in range(5):
        used(identity=f"key-{number}", allowed=900, refused=100)
    evaluate()
    with django_assert_num_queries(2):
        assert len(alerts.open_alerts()) == 6
