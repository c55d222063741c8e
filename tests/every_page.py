"""Which addresses does the app have in the admin? All that its models registered, so that a new one is tested, too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from django.contrib import admin
from django.urls import reverse
from django.utils import timezone

from ratelimit_app.models import AlertMessage, APIKey, Episode, OutageSpan, Plan, PlanLimit, Refusal, record_versions
from tests.overview_page import arrived, redis_was_gone, used

#: The primary key of every row: a number that is written with a separator where numbers are localised.
PK = 1234
RECEIPT = uuid.UUID(int=PK)


def fill(name: str = "Acme") -> None:
    """One row of each model, named so."""
    plan = Plan.objects.create(pk=PK, name=name, slug="acme")
    PlanLimit.objects.create(pk=PK, plan=plan, name="acme", requests=1_234_567, period_seconds=60, burst=PK)
    record_versions(using="default")
    key, _text = APIKey.objects.create_key(plan=plan, name=name)
    APIKey.objects.filter(pk=key.pk).update(id=PK)
    used(key.bucket_identity, ago=1, plan_id=PK, allowed=1_080_246, refused=154_321)
    redis_was_gone(ago=9, minutes=3)
    OutageSpan.objects.update(id=PK)
    now = timezone.now()
    episode = Episode.objects.create(
        pk=PK,
        kind="key_blocked",
        subject=key.bucket_identity,
        started_at=now,
        bad_until=now,
        worst=12.5,
        threshold=5,
        note=name,
    )
    AlertMessage.objects.create(pk=PK, episode=episode, event="opened", channel="email", error=name)
    Refusal.objects.create(
        receipt=RECEIPT,
        at=now,
        identity=key.bucket_identity,
        key_id=PK,
        plan_id=PK,
        limit_id=PK,
        limit_name="acme",
        route=name,
        method="GET",
        address="203.0.113.9",
        cost=PK,
        retry_after_seconds=PK,
    )
    arrived()


def addresses() -> Iterator[str]:
    """Each page that has a name, about the rows of `fill`. A page with another argument has to be told of here."""
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label != "ratelimit_app":
            continue
        row = RECEIPT if model is Refusal else PK
        values = {"pk": row, "object_id": row, "number": 1}
        for url in model_admin.get_urls():
            if url.name:
                names = url.pattern.converters
                yield reverse(f"admin:{url.name}", kwargs={name: values[name] for name in names})
