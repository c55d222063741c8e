"""What happened beside the traffic? Refusals with receipts, alerts, and what people did to some of the keys."""

from __future__ import annotations

import math
import uuid
from datetime import timedelta

from django.contrib.auth import get_user_model
from django.utils import timezone

from ratelimit_app.models import AlertMessage, APIKey, Episode, Refusal
from tests.browser import seeded

#: The key that most of this is about, and a receipt that it was given.
NAME = "Acme mobile app"
RECEIPT = uuid.UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")


def fill() -> dict[str, APIKey]:
    """The traffic, and what happened beside it. Returns the keys by name."""
    keys = seeded.fill()
    _earlier_today(keys)
    acme = keys[NAME]
    acme.owner = get_user_model().objects.create_user("anna", "anna@example.com")
    acme.save()
    APIKey.objects.boost(acme, factor=2, until=timezone.now() + timedelta(days=3), reason="Their sale")
    APIKey.objects.filter(pk=keys["partner-sync"].pk).update(expires_at=timezone.now() + timedelta(days=9))
    keys["status-page, new"], _text = APIKey.objects.rotate(keys["status-page"])
    APIKey.objects.filter(pk=keys["Borough bus times"].pk).revoke(reason="Found in a public repository")
    _refusals(acme)
    _alerts(acme)
    return keys


def _earlier_today(keys: dict[str, APIKey]) -> None:
    """What the last day of a key looks like in the list: more by day than by night."""
    rows = seeded.Rows()
    now = timezone.now().replace(second=0, microsecond=0)
    for ago in range(3 * 60, 24 * 60):
        for name, _plan, per_minute, share, _lately in seeded.CALLERS:
            calls = int(per_minute * (0.9 + 0.3 * math.cos(ago / (24 * 60) * 2 * math.pi)))
            refused = int(calls * share)
            rows.used(now - timedelta(minutes=ago), keys[name], allowed=calls - refused, refused=refused)
    rows.write()


def _refusals(key: APIKey) -> None:
    limit = key.plan.limits.earliest("pk")
    now = timezone.now()
    Refusal.objects.bulk_create(
        Refusal(
            receipt=uuid.UUID(int=ago) if ago else RECEIPT,
            at=now - timedelta(seconds=11 * ago),
            identity=key.bucket_identity,
            key_id=key.pk,
            plan_id=key.plan_id,
            limit_id=limit.pk,
            limit_name=limit.name,
            route="/api/items/" if ago % 3 else "/api/search/",
            method="POST" if ago % 5 == 0 else "GET",
            address="203.0.113.9",
            cost=1,
            retry_after_seconds=1 + ago % 4,
        )
        for ago in range(60)
    )


def _alerts(key: APIKey) -> None:
    now = timezone.now()
    hurt = Episode.objects.create(
        kind="key_blocked",
        subject=key.bucket_identity,
        started_at=now - timedelta(minutes=12),
        bad_until=now,
        worst=34.1,
        threshold=5,
    )
    out = Episode.objects.create(
        kind="unchecked",
        started_at=now - timedelta(minutes=40),
        ended_at=now - timedelta(minutes=36),
        bad_until=now - timedelta(minutes=36),
        worst=100_905,
        threshold=0,
        note="The failover took four minutes.",
        acknowledged_at=now - timedelta(minutes=38),
        acknowledged_by="anna",
    )
    for episode, event, ago in ((hurt, "opened", 12), (out, "opened", 40), (out, "ended", 36)):
        for channel in ("email", "webhook"):
            AlertMessage.objects.create(
                episode=episode,
                event=event,
                channel=channel,
                attempts=1,
                sent_at=now - timedelta(minutes=ago),
                next_attempt_at=None,
            )
