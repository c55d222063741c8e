"""Who is told, when, and what became of it? One message for each channel when an episode begins, and one at its end.

A message is a row, written with its episode. To send it, a worker first claims it by moving its
next attempt away; so two workers never send one at once, and one that dies leaves it to be sent
again. What could not be sent is tried again, ever more rarely, for a day.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import router
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from ratelimit_app import conf
from ratelimit_app.alerts import channels
from ratelimit_app.models import AlertMessage, APIKey, Episode
from ratelimit_app.usage import storable

logger = logging.getLogger("ratelimit_app")

GIVEN_UP_AFTER = timedelta(days=1)
_FIRST_PAUSE_SECONDS = 60
_LONGEST_PAUSE_SECONDS = 3600
#: Sent in one round at most: what waits beyond follows in the next.
_AT_ONCE = 100


def write(episode: Episode, event: AlertMessage.Event, *, using: str) -> None:
    """Write the messages about the beginning or the end of an episode, to be sent after the transaction."""
    settings = conf.current()
    wanted = {
        AlertMessage.Channel.EMAIL: bool(settings.alert_emails),
        AlertMessage.Channel.WEBHOOK: bool(settings.alert_webhook_url),
    }
    AlertMessage.objects.using(using).bulk_create(
        AlertMessage(episode=episode, event=event, channel=channel) for channel, on in wanted.items() if on
    )


def due() -> list[int]:
    """The messages that should be sent now, oldest first. One query."""
    return list(_due().order_by("pk").values_list("pk", flat=True)[:_AT_ONCE])


def send(message_id: int) -> bool:
    """Send one message, if it is due and nobody else is at it. Returns whether it was sent; a failure is kept."""
    now, rows = timezone.now(), AlertMessage.objects.using(_using())
    message = _due().select_related("episode").filter(pk=message_id).first()
    if message is None:
        return False
    pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(message.attempts, 10))
    claim = rows.filter(pk=message_id, next_attempt_at=message.next_attempt_at)
    if not claim.update(next_attempt_at=now + timedelta(seconds=pause), attempts=F("attempts") + 1):
        return False
    try:
        channels.send(message, key=_key(message.episode))
    # What can fail is an open set (smtplib, ssl, sockets, mail backends of other packages), and
    # every member of it means the same here.
    except Exception as failure:
        problem = f"{type(failure).__name__}: {failure}"
        logger.warning("An alert could not be sent by %s: %s", message.channel, problem)
        failed = rows.filter(pk=message_id)
        failed.update(error=storable(problem, 500))
        if message.created_at <= now - GIVEN_UP_AFTER:
            failed.update(next_attempt_at=None)
        return False
    rows.filter(pk=message_id).update(sent_at=timezone.now(), next_attempt_at=None, error="")
    return True


def _due() -> QuerySet[AlertMessage]:
    """What should be sent now. The end of an episode waits while its beginning is still to be told the same way."""
    rows = AlertMessage.objects.using(_using())
    earlier = rows.filter(episode=OuterRef("episode"), channel=OuterRef("channel"), pk__lt=OuterRef("pk"))
    return rows.filter(next_attempt_at__lte=timezone.now()).exclude(Exists(earlier.exclude(next_attempt_at=None)))


def _key(episode: Episode) -> APIKey | None:
    return APIKey.objects.filter(bucket_identity=episode.subject).order_by("pk").last() if episode.subject else None


def _using() -> str:
    return router.db_for_write(AlertMessage)
