"""How is a key replaced without the admin? `manage.py rotate_key`, which prints the new one alone on stdout."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ratelimit_app.models import APIKey, NotRotatable
from ratelimit_app.pages.text import shown_as

_MOST_HOURS = 24 * 365


class Command(BaseCommand):
    help = "Replace an API key and print the new one on stdout. It is shown this once and stored nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("public_id", help="the 12 characters that people are shown of the key")
        parser.add_argument(
            "--overlap-hours", type=int, default=24, metavar="N", help="how long the old key works on; default: 24"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        hours = options["overlap_hours"]
        if not 0 <= hours <= _MOST_HOURS:
            raise CommandError(f"--overlap-hours takes 0 to {_MOST_HOURS}.")
        old = APIKey.objects.filter(public_id=options["public_id"].replace("\0", "")).first()
        if old is None:
            # It is not said again: it may be a whole key.
            raise CommandError("There is no key with this public id.")
        try:
            new, text = APIKey.objects.rotate(old, overlap=timedelta(hours=hours))
        except NotRotatable as obstacle:
            raise CommandError(f"It cannot be rotated: {obstacle}") from None
        self.stderr.write(
            f"{shown_as(old.public_id)} works on for {hours} h. {shown_as(new.public_id)}, on the same plan, owner and "
            "buckets, shown this once:"
        )
        self.stdout.write(text)
