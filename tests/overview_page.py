"""How do tests fill the overview and take it apart?"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from ratelimit_app.models import Batch, OutageSpan
from tests import statistics

URL = "/admin/ratelimit_app/overview/"


class Page(HTMLParser):
    """A page taken apart: its elements with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def look(client: Client, query: str = "") -> Page:
    answer = client.get(URL + query)
    assert answer.status_code == 200
    return Page(answer.content.decode())


def minute(ago: int = 0, *, now: datetime | None = None) -> datetime:
    return (now or timezone.now()).replace(second=0, microsecond=0) - timedelta(minutes=ago)


def used(identity: str, *, ago: int = 0, now: datetime | None = None, plan_id: int = 1, **counts: Any) -> None:
    """Traffic so many minutes ago, as seen from `now`: the same for calls whose minutes have to fit together."""
    statistics.used(identity, at=minute(ago, now=now), plan_id=plan_id, **counts)


def redis_was_gone(*, ago: int, minutes: int, now: datetime | None = None, ended: bool = True) -> None:
    """An outage as one gateway told it: it began so many minutes ago, and lasted so long."""
    start = minute(ago, now=now)
    OutageSpan.objects.create(
        gateway="g", started_at=start, error="timeout", last_seen_at=start + timedelta(minutes=minutes), ended=ended
    )


def arrived(seconds_ago: float = 0) -> datetime:
    at = timezone.now() - timedelta(seconds=seconds_ago)
    Batch.objects.create(id=uuid.uuid4(), received_at=at)
    return at


def sign_in_viewer() -> Client:
    """Staff with the permission to view the overview, and no other."""
    user = get_user_model().objects.create_user("viewer", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_overview"))
    client = Client()
    client.force_login(user)
    return client
