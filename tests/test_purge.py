"""Is everything deleted when its time is over, and nothing before what stands for it is there?"""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from ratelimit_app import recording, resolutions
from ratelimit_app.models import (
    Batch,
    DroppedMinute,
    KeyChange,
    KeyUse,
    Refusal,
    SetAside,
    Stale,
    UsageDay,
)
from ratelimit_app.recording import purge
from ratelimit_app.resolutions import FACTS, USAGE
from tests.statistics import NIGHT, record, total

HOUR, DAY = 3600, 86_400


@pytest.mark.django_db
def test_each_resolution_is_kept_for_its_own_time(configure, monkeypatch):
    configure(MINUTE_RETENTION_DAYS=2, HOUR_RETENTION_DAYS=10, DAY_RETENTION_DAYS=30)
    monkeypatch.setattr(purge, "_ROWS_IN_A_DELETE", 2)  # so that several bites are taken
    for days in (1, 5, 20, 40):
        record(NIGHT - days * DAY)

    recording.prune(now_seconds=NIGHT + HOUR)

    for fact in FACTS:
        assert [table._base_manager.count() for table in fact.tables.values()] == [1, 2, 3], fact
    assert total(USAGE, "allowed") == 3


@pytest.mark.django_db
def test_minutes_are_not_deleted_before_they_are_summed_up(configure):
    configure(MINUTE_RETENTION_DAYS=1)
    record(NIGHT)
    recording.roll_up(now_seconds=NIGHT + HOUR)
    Stale.objects.create(resolution="hour", start=NIGHT, changes=1)
    purge._give_up(resolutions.HOUR, older_than=NIGHT + 9 * DAY, using="default")
    assert resolutions.reaches()[resolutions.HOUR].purged_until <= NIGHT


@pytest.mark.django_db
def test_hours_are_not_deleted_while_one_of_their_day_may_be_summed_up_again(configure):
    configure(MINUTE_RETENTION_DAYS=1, HOUR_RETENTION_DAYS=1)
    record(NIGHT)
    record(NIGHT + HOUR)
    recording.roll_up(now_seconds=NIGHT + 9 * DAY)
    record(NIGHT + 60)  # between the two steps of a purge
    for coarser in (resolutions.HOUR, resolutions.DAY):
        purge._give_up(coarser, older_than=NIGHT + 8 * DAY, using="default")
    assert resolutions.reaches()[resolutions.DAY].purged_until <= NIGHT
    recording.prune(now_seconds=NIGHT + 9 * DAY)
    assert UsageDay.objects.get().allowed == total(USAGE, "allowed") == 3


@pytest.mark.django_db
def test_refusals_in_full_and_what_was_set_aside_are_kept_for_the_retention_time(configure):
    configure(RETENTION_DAYS=30)
    now = timezone.now()
    for days in (1, 29, 31, 40):
        at = now - timedelta(days=days)
        seconds = int(at.timestamp())
        sample = [str(uuid.uuid4()), seconds, "a", 7, 3, 11, "pro", "items", "GET", "", 1, 5]
        recording.record({"id": str(uuid.uuid4()), "samples": [sample], "dropped": [[seconds, "usage", 1]]})
        SetAside.objects.create(batch_id=uuid.uuid4(), received_at=at, row="", error="")

    recording.prune()

    assert Refusal.objects.count() == SetAside.objects.count() == 2
    assert DroppedMinute.objects.count() == 4  # as long as there are days that are short of it


@pytest.mark.django_db
def test_what_only_recent_deliveries_and_caches_need_is_deleted_after_a_week():
    for days in (6, 8):
        at = timezone.now() - timedelta(days=days)
        Batch.objects.create(id=uuid.uuid4(), received_at=at)
        KeyChange.objects.create(version=days, at=at)
    recording.prune()
    assert Batch.objects.count() == 1
    assert KeyChange.objects.get().version == 6


@pytest.mark.django_db
def test_the_last_use_of_a_key_is_kept_as_long_as_the_key(make_plan, make_key, monkeypatch):
    monkeypatch.setattr(purge, "_ROWS_IN_A_DELETE", 2)
    key, _ = make_key(make_plan())
    for key_id in (key.pk, key.pk + 1, key.pk + 2, key.pk + 3):
        KeyUse.objects.create(key_id=key_id, last_used_at=timezone.now() - timedelta(days=50))
    recording.prune()
    assert KeyUse.objects.get().key_id == key.pk


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_last_use_that_a_worker_is_writing_is_left_for_the_next_time_and_waited_for_by_nobody():
    for key_id in (101, 102):
        KeyUse.objects.create(key_id=key_id, last_used_at=timezone.now())
    is_held, is_pruned = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            KeyUse.objects.filter(key_id=101).update(last_used_at=timezone.now())
            is_held.set()
            is_pruned.wait(60)
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert is_held.wait(60)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '20s'")
            recording.prune()
    finally:
        is_pruned.set()
        writer.join()
    assert KeyUse.objects.get().key_id == 101
    recording.prune()
    assert not KeyUse.objects.exists()
