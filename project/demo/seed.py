"""What is in the database when the demo begins? Three plans, a dozen keys, and with DEBUG a user.

Run as a script, in a process of its own: prints one JSON object with the keys' texts, which are
stored nowhere. So a later run replaces each key, and keeps the identity that its statistics hang on.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

#: name, slug, requests a minute, burst: the numbers of the three plans for callers with a key.
PLANS = (
    ("Free", "free", 60, 20),
    ("Pro", "pro", 1_000, 100),
    ("Business", "business", 10_000, 1_000),
)
#: The key of the line to try; traffic leaves it alone.
TRY_IT = "Your terminal"
#: name, plan, and how it calls: a habit from `traffic.HABITS`.
KEYS = (
    (TRY_IT, "free", ""),
    ("Aldgate weather widget", "free", "steady"),
    ("Borough bus times", "free", "impatient"),
    ("Camden price tracker", "free", "bursts"),
    ("Dalston hobby project", "free", "quiet"),
    ("Ealing status page", "free", "patient"),
    ("Fulham logistics", "pro", "steady"),
    ("Greenwich analytics", "pro", "impatient"),
    ("Hackney bookings", "pro", "bursts"),
    ("Islington invoices", "pro", "quiet"),
    ("Kensington bank", "business", "steady"),
    ("Lambeth marketplace", "business", "bursts"),
)


def main(*, reset: bool) -> dict[str, Any]:
    """Bring the database to where the demo begins. Returns the keys with their texts."""
    from django.conf import settings
    from django.core.management import call_command
    from django.db import transaction

    call_command("migrate", verbosity=0, interactive=False)
    with transaction.atomic():
        if reset:
            forget_everything()
        make_plans()
        keys = [{"name": name, "plan": slug, "habit": habit, "key": issue(name, slug)} for name, slug, habit in KEYS]
        if settings.DEBUG:
            make_user()
    return {"keys": keys, "user": settings.DEBUG}


def forget_everything() -> None:
    """Delete every row of the app, and none of anybody else's."""
    from django.apps import apps

    from ratelimit_app.models import APIKey

    APIKey.objects.all().delete()  # before the plans that protect them
    for model in apps.get_app_config("ratelimit_app").get_models():
        if model._meta.managed:
            model._default_manager.all().delete()


def make_plans() -> None:
    """Make the plans that are missing; what was edited in the admin stays as it is."""
    from ratelimit_app.models import Plan

    for name, slug, requests, burst in PLANS:
        plan, created = Plan.objects.get_or_create(slug=slug, defaults={"name": name})
        if created:
            plan.limits.create(name=slug, requests=requests, period_seconds=60, burst=burst)
    everyone, created = Plan.objects.get_or_create(
        slug="everyone",
        defaults={
            "name": "Everyone",
            "audience": Plan.Audience.EVERYONE,
            "description": "Holds for every request, beside the caller's own plan.",
        },
    )
    if created:
        everyone.limits.create(
            name="login", scope="login", per="address", requests=10, period_seconds=60, burst=5, on_failure="closed"
        )


def issue(name: str, plan_slug: str) -> str:
    """Give a caller a fresh key. Returns its text."""
    from ratelimit_app.models import APIKey, Plan

    earlier = APIKey.objects.filter(name=name).first()
    row, text = APIKey.objects.create_key(plan=Plan.objects.get(slug=plan_slug), name=name)
    if earlier is not None:
        row.bucket_identity = earlier.bucket_identity
        row.save()
        APIKey.objects.filter(name=name).exclude(pk=row.pk).delete()
    return text


def make_user() -> None:
    """The user `ops`, who may do everything; only ever with DEBUG."""
    from django.contrib.auth import get_user_model

    users = get_user_model()
    if not users._default_manager.filter(username="ops").exists():
        users.objects.create_superuser("ops", password="ops")  # noqa: S106 - printed beside the address


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    import django

    django.setup()
    json.dump(main(reset="--reset" in sys.argv), sys.stdout)
