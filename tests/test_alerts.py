"""When does an alert begin, go on and end, and how is it told to pages? On a clock that is passed in."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connections, transaction
from django.test.utils import CaptureQueriesContext

from ratelimit_app import alerts
from ratelimit_app.models import Episode, Evaluation, UsageMinute
from tests.alert_rows import NOON, arrived, at, evaluate, took, used

pytestmark = pytest.mark.django_db


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
