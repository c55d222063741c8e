"""Do the tasks keep their word to other versions, to dying workers and to the buffer, and what do they delete?"""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest
from celery.signals import worker_process_shutdown
from django.utils import timezone

from ratelimit_app import recording, shipping, tasks, usage
from ratelimit_app.models import (
    Batch,
    DecisionMinute,
    DroppedMinute,
    KeyChange,
    KeyUse,
    Refusal,
    RefusalMinute,
    SetAside,
    UsageMinute,
)
from ratelimit_app.usage.tally import Tally
from tests import brokers, decisions

broker = pytest.fixture(brokers.chosen)


def test_the_task_has_the_name_that_batches_are_sent_to():
    assert tasks.record_usage.name == shipping.TASK


def test_a_batch_stays_on_the_queue_until_it_is_written_and_no_result_is_kept():
    assert tasks.record_usage.acks_late
    assert tasks.record_usage.reject_on_worker_lost
    assert tasks.record_usage.ignore_result
    assert tasks.record_usage.max_retries is None


@pytest.mark.django_db
def test_keywords_of_a_newer_version_are_ignored():
    minute = int(timezone.now().timestamp()) // 60 * 60
    batch = {"id": str(uuid.uuid4()), "usage": [[minute, "a", 1, 5]]}
    tasks.record_usage.apply(kwargs={"batch": batch, "compressed": False}, throw=True)
    assert UsageMinute.objects.get().allowed == 5


@pytest.mark.django_db
def test_pruning_deletes_what_is_older_than_the_settings_say(configure):
    configure(RETENTION_DAYS=2)
    for days in (1, 3):
        DroppedMinute.objects.create(minute=timezone.now() - timedelta(days=days), kind="usage", dropped=days)
    tasks.prune.apply(kwargs={"later": "argument"}, throw=True)
    assert DroppedMinute.objects.get().dropped == 1


def test_a_child_process_of_a_worker_ships_what_it_recorded_before_it_ends(broker):
    client, queue = broker(COUNTS_FLUSH_SECONDS=600)
    usage.record(decisions.ALLOWED, decisions.CALLER, seconds=0.0)
    worker_process_shutdown.send(sender=None, pid=0, exitcode=0)
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 1}


@pytest.mark.django_db
def test_old_rows_are_deleted_and_young_ones_kept(configure, monkeypatch):
    configure(RETENTION_DAYS=30)
    monkeypatch.setattr(recording, "_ROWS_IN_A_DELETE", 2)  # so that several bites are taken
    for days in (1, 29, 31, 40, 50):
        at = timezone.now() - timedelta(days=days)
        minute = int(at.timestamp()) // 60 * 60
        tally = Tally(100)
        tally.count(decisions.refused(), decisions.CALLER, "items", "GET", 0.001, minute)
        tally.drop("usage")
        for frozen in tally.freeze(everything=True):
            frozen["dropped"] = [[minute, "usage", 1]]
            recording.record({**frozen, "key_uses": []})
        SetAside.objects.create(batch_id=uuid.uuid4(), received_at=at, row="", error="")
    KeyUse.objects.create(key_id=7, last_used_at=timezone.now() - timedelta(days=50))

    recording.prune()

    for model in (UsageMinute, RefusalMinute, DecisionMinute, DroppedMinute, Refusal, SetAside):
        assert model.objects.count() == 2, model
    assert KeyUse.objects.count() == 1  # when a key was last used is worth knowing for ever


@pytest.mark.django_db
def test_what_only_recent_deliveries_and_caches_need_is_deleted_after_a_week():
    for days in (6, 8):
        at = timezone.now() - timedelta(days=days)
        Batch.objects.create(id=uuid.uuid4(), received_at=at)
        KeyChange.objects.create(version=days, at=at)
    recording.prune()
    assert Batch.objects.count() == 1
    assert KeyChange.objects.get().version == 6
