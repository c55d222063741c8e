"""How is a key created without the admin? `manage.py create_key`, which prints it alone on stdout."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from ratelimit_app.models import APIKey, Plan
from ratelimit_app.pages.text import shown_as

_DURATION = re.compile(r"([0-9]{1,6})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Command(BaseCommand):
    help = "Create an API key and print it on stdout. It is shown this once and stored nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--plan", required=True, metavar="SLUG", help="the plan, by its slug")
        parser.add_argument("--name", required=True, help="what people call the key")
        parser.add_argument("--owner", metavar="USERNAME", help="the user it belongs to")
        parser.add_argument(
            "--expires", metavar="WHEN", help="30d, 12h, 4w, or a date: good until the end of that day; default: never"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        plan = _plan(options["plan"])
        name = _name(options["name"])
        owner = _owner(options["owner"]) if options["owner"] is not None else None
        expires_at = _moment(options["expires"]) if options["expires"] is not None else None
        key, text = APIKey.objects.create_key(plan=plan, name=name, owner=owner, expires_at=expires_at)
        expires = "never expires" if expires_at is None else f"expires {expires_at.isoformat(timespec='minutes')}"
        self.stderr.write(f"{shown_as(key.public_id)} on plan {plan.slug}, {expires}. The key, shown this once:")
        self.stdout.write(text)


def _plan(slug: str) -> Plan:
    plan: Plan | None = Plan.objects.filter(slug=slug).first()
    if plan is None:
        slugs = Plan.objects.filter(audience=Plan.Audience.KEYS).order_by("slug").values_list("slug", flat=True)
        known = ", ".join(slugs) or "none yet, create one in the admin"
        raise CommandError(f"There is no plan {slug!r}. Plans for keys: {known}.")
    if plan.audience != Plan.Audience.KEYS:
        raise CommandError(f"The plan {slug!r} is for {plan.get_audience_display()}: no key can be on it.")
    return plan


def _name(given: str) -> str:
    name = given.strip()
    try:
        name.encode()
        APIKey._meta.get_field("name").clean(name, None)
    except UnicodeEncodeError:
        raise CommandError("--name is not valid UTF-8.") from None
    except ValidationError as error:
        raise CommandError(f"--name: {' '.join(error.messages)}") from None
    return name


def _owner(username: str) -> Any:
    try:
        return get_user_model()._default_manager.get_by_natural_key(username)
    except ObjectDoesNotExist:
        raise CommandError(f"There is no user {username!r}.") from None


def _moment(text: str) -> datetime:
    """When a key expires: so long from now, or at the end of a day in the project's time zone."""
    now = timezone.now()
    if duration := _DURATION.fullmatch(text):
        try:
            moment = now + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        except OverflowError:
            raise CommandError(f"--expires {text} is further away than calendars go.") from None
    else:
        moment = _end_of_day(text)
    if moment <= now:
        raise CommandError(f"--expires {text} is not in the future.")
    return moment


def _end_of_day(text: str) -> datetime:
    try:
        midnight = datetime.combine(date.fromisoformat(text) + timedelta(days=1), datetime.min.time())
        return timezone.make_aware(midnight) - timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise CommandError(f"--expires {text!r}: write 30d, 12h or 4w, or a date such as 2027-01-31.") from None
