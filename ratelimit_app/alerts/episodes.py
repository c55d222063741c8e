"""When does an alert begin, and when is it over? A finding opens one episode; five quiet minutes end it.

One worker evaluates at a time, by a row lock, and the database holds at most one open episode of a
kind and subject. To evaluate twice, or late, changes nothing. The messages about an episode are
written in the same transaction as the episode itself, so that none is lost and none sent twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import router, transaction
from django.db.models import Max
from django.utils import timezone

from ratelimit_app.alerts import findings, messages, words
from ratelimit_app.models import AlertMessage, APIKey, Episode, Evaluation

#: An episode ends when nothing was wrong for so long.
QUIET = timedelta(minutes=5)
#: Episodes are kept for so long after their end.
KEPT = timedelta(days=365)
#: About data that does not arrive: these go by the clock, the others by the data that there is.
_BY_THE_CLOCK = (Episode.Kind.LATE, Episode.Kind.NO_DATA)


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An episode that is open, as a page shows it."""

    pk: int
    kind: str
    #: What is wrong, in the reader's language.
    sentence: str
    started_at: datetime
    #: The newest key that it is about, or None: it is about all callers, or the key was deleted.
    key: APIKey | None
    #: Where to look, on this site: the page of the key, or the overview, with the range chosen.
    path: str
    #: Who has taken it on, and what they say; "" when nobody has.
    acknowledged_by: str
    note: str


def evaluate(*, now: datetime | None = None) -> None:
    """Open, continue and end episodes. A fixed number of queries; raises django.db.Error."""
    now = now or timezone.now()
    using = router.db_for_write(Episode)
    Evaluation.objects.using(using).get_or_create(pk=1)
    with transaction.atomic(using=using):
        Evaluation.objects.using(using).select_for_update().get(pk=1)
        rows = Episode.objects.using(using)
        open_episodes = {(episode.kind, episode.subject): episode for episode in rows.filter(ended_at=None)}
        recent = rows.filter(ended_at__gte=now - 2 * findings.LOOKBACK).order_by()
        ended = {
            (kind, subject): until
            for kind, subject, until in recent.values_list("kind", "subject").annotate(Max("bad_until"))
        }
        reach = findings.horizon(now=now)
        for finding in findings.look(reach, open_episodes=open_episodes, ended=ended):
            episode = open_episodes.get((finding.kind, finding.subject))
            if episode is not None:
                _continue(episode, finding)
            # A worker whose clock is behind finds again what another has seen the end of.
            elif finding.opens and finding.until > ended.get((finding.kind, finding.subject), finding.since):
                open_episodes[finding.kind, finding.subject] = _open(finding, using=using)
        for episode in open_episodes.values():
            complete = now if episode.kind in _BY_THE_CLOCK else reach.settled
            if episode.bad_until <= complete - QUIET:
                episode.ended_at = episode.bad_until
                episode.save(using=using, update_fields=["ended_at"])
                messages.write(episode, AlertMessage.Event.ENDED, using=using)
        Evaluation.objects.using(using).filter(pk=1).update(evaluated_at=now)


def evaluated_at() -> datetime | None:
    """When alerts were last evaluated; None when they never were. Beat or the worker stand still if it is long ago."""
    return Evaluation.objects.values_list("evaluated_at", flat=True).filter(pk=1).first()


def open_alerts() -> tuple[OpenAlert, ...]:
    """What is wrong now, the newest first. Two queries."""
    episodes = list(Episode.objects.filter(ended_at=None))
    keys = keys_of(episodes)
    return tuple(
        OpenAlert(
            pk=episode.pk,
            kind=episode.kind,
            sentence=words.sentence(episode, key=keys.get(episode.subject)),
            started_at=episode.started_at,
            key=keys.get(episode.subject),
            path=words.look_path(episode, key=keys.get(episode.subject), now=timezone.now()),
            acknowledged_by=episode.acknowledged_by,
            note=episode.note,
        )
        for episode in episodes
    )


def keys_of(episodes: Iterable[Episode]) -> dict[str, APIKey]:
    """The newest key of each identity that episodes are about. One query, or none."""
    subjects = {episode.subject for episode in episodes} - {""}
    if not subjects:
        return {}
    keys = APIKey.objects.filter(bucket_identity__in=subjects).order_by("pk")
    return {key.bucket_identity: key for key in keys}


def prune() -> None:
    """Delete episodes that ended long ago, with their messages."""
    Episode.objects.using(router.db_for_write(Episode)).filter(ended_at__lt=timezone.now() - KEPT).delete()


def _open(finding: findings.Finding, *, using: str) -> Episode:
    episode = Episode.objects.using(using).create(
        kind=finding.kind,
        subject=finding.subject,
        started_at=finding.since,
        bad_until=finding.until,
        worst=finding.value,
        threshold=finding.threshold,
    )
    messages.write(episode, AlertMessage.Event.OPENED, using=using)
    return episode


def _continue(episode: Episode, finding: findings.Finding) -> None:
    worst, bad_until = max(episode.worst, finding.value), max(episode.bad_until, finding.until)
    if (worst, bad_until) != (episode.worst, episode.bad_until):
        episode.worst, episode.bad_until = worst, bad_until
        episode.save(update_fields=["worst", "bad_until"])
