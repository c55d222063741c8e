"""Do the tasks keep their word to other versions, to dying workers and to the buffer, and what do they delete?"""

from __future__ import annotations

import uuid

import pytest
from celery.signals import worker_process_shutdown
from django.utils import timezone

from ratelimit_app import shipping, tasks, usage
from ratelimit_app.models import (
    UsageMinute,
)
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
@pytest.mark.parametrize("task", [tasks.prune, tasks.roll_up])
def test_a_scheduled_task_tolerates_keywords_of_a_newer_version(task):
    task.apply(kwargs={"later": "argument"}, throw=True)


def test_a_child_process_of_a_worker_ships_what_it_recorded_before_it_ends(broker):
    client, queue = broker(COUNTS_FLUSH_SECONDS=600)
    usage.record(decisions.ALLOWED, decisions.CALLER, seconds=0.0)
    worker_process_shutdown.send(sender=None, pid=0, exitcode=0)
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 1}
