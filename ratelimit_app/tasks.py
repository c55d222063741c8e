"""What does the worker do for us? It writes batches of usage down, sums them up, and clears away what is old."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from celery import Task, shared_task
from celery.exceptions import Reject
from celery.signals import worker_process_shutdown
from django.db import Error

from ratelimit_app import recording, shipping, usage

_LONGEST_PAUSE_SECONDS = 60


# acks_late: a batch leaves the queue when it is written, not when it is fetched. With it alone a
# killed child process of the worker would still lose its batch.
@shared_task(
    name=shipping.TASK, bind=True, acks_late=True, reject_on_worker_lost=True, ignore_result=True, max_retries=None
)
def record_usage(self: Task[..., None], *, batch: Mapping[str, Any], **unknown: Any) -> None:
    """Write one batch down, once. Waits for a database that is down, and for a migration still to come."""
    try:
        recording.record(batch)
    except Error as error:
        pause = min(_LONGEST_PAUSE_SECONDS, 2**self.request.retries) * random.uniform(0.5, 1.0)  # noqa: S311
        try:
            raise self.retry(exc=error, countdown=pause)
        except Reject as refused:  # the broker is down too: leave the batch where it is
            raise Reject(str(error), requeue=True) from refused


@shared_task(name="ratelimit_app.tasks.roll_up", ignore_result=True)
def roll_up(**unknown: Any) -> None:
    """Sum up hours and days that are over. To be run every few minutes; twice at once does no harm."""
    recording.roll_up()


@shared_task(name="ratelimit_app.tasks.prune", ignore_result=True)
def prune(**unknown: Any) -> None:
    """Delete what is older than it may be. To be run every hour or so; twice at once does no harm."""
    recording.prune()


@worker_process_shutdown.connect(dispatch_uid="ratelimit_app.tasks")
def flush_usage(**unknown: Any) -> None:
    """A worker's child process ends without running what `atexit` holds."""
    usage.flush(usage.EXIT_SECONDS)
