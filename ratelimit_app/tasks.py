"""What does the worker do for us? It writes batches of usage down, sums them up, clears away the old, raises alerts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from celery import Task, shared_task
from celery.exceptions import Reject
from celery.signals import worker_process_shutdown
from django.db import Error

from ratelimit_app import alerts, ending, recording, shipping

#: By then the next round has put what is still to be sent onto the queue again.
_MESSAGE_EXPIRES_SECONDS = 120


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
        pause = min(shipping.LONGEST_PAUSE_SECONDS, 2**self.request.retries) * random.uniform(0.5, 1.0)  # noqa: S311
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
    alerts.prune()


@shared_task(name="ratelimit_app.tasks.watch", ignore_result=True)
def watch(**unknown: Any) -> None:
    """Look whether something is wrong, and have people told. To be run every minute."""
    alerts.evaluate()
    for message_id in alerts.due():
        # Each by itself: one that waits for its receiver holds up no other.
        send_alert.apply_async(kwargs={"message_id": message_id}, expires=_MESSAGE_EXPIRES_SECONDS)


@shared_task(name="ratelimit_app.tasks.send_alert", ignore_result=True, soft_time_limit=60)
def send_alert(*, message_id: int, **unknown: Any) -> None:
    """Send one message about an alert. One that fails is tried again by a later round of `watch`."""
    alerts.send(message_id)


@worker_process_shutdown.connect(dispatch_uid="ratelimit_app.tasks")
def end_in_order(**unknown: Any) -> None:
    """A worker's child process ends without running what `atexit` holds."""
    ending.end_in_order()
