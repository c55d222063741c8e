"""How do tests open the page of a key, and what do they put on it?"""

from __future__ import annotations

import uuid
from typing import Any

from django.test import Client
from django.utils import timezone

from ratelimit_app.models import APIKey, Refusal
from tests.admin_pages import KEYS
from tests.overview_page import Page


def url(key: APIKey, query: str = "") -> str:
    return f"{KEYS}{key.pk}/page/{query}"


def look(client: Client, key: APIKey, query: str = "") -> Page:
    answer = client.get(url(key, query))
    assert answer.status_code == 200
    return Page(answer.content.decode())


def refused(key: APIKey, **fields: Any) -> Refusal:
    return Refusal.objects.create(
        **{
            "receipt": uuid.uuid4(),
            "at": timezone.now(),
            "identity": key.bucket_identity,
            "key_id": key.pk,
            "plan_id": key.plan_id,
            "limit_id": 1,
            "limit_name": "free",
            "route": "/api/items/",
            "method": "GET",
            "address": "203.0.113.9",
            "cost": 1,
            "retry_after_seconds": 7,
            **fields,
        }
    )
