"""How do the tests of the admin sign in, fill in forms and read lists?"""

from __future__ import annotations

import re
import uuid
from html import unescape
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from ratelimit_app.models import Plan

KEYS = "/admin/ratelimit_app/apikey/"
PLANS = "/admin/ratelimit_app/plan/"
REFUSALS = "/admin/ratelimit_app/refusal/"


def staff(*permissions: str) -> Client:
    user = get_user_model().objects.create_user(uuid.uuid4().hex, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    assert user.user_permissions.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


def key_form(client: Client, on: Plan, **fields: Any) -> dict[str, Any]:
    """The form as a browser would send it, what it was given included."""
    page = client.get(KEYS + "add/").content.decode()
    given = {}
    for tag in re.findall(r"<input[^>]*>", page):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and value and name[1] in ("reserved", "expires_at_0", "expires_at_1"):
            given[name[1]] = unescape(value[1])
    return {"name": "Acme", "plan": on.pk, "owner": ""} | given | fields


def shown_key(answer: Any) -> str:
    assert answer.status_code == 200
    found = re.search(r'id="rl-key"[^>]*>([^<]+)<', answer.content.decode())
    assert found is not None
    return unescape(found[1])


def rows_of(answer: Any) -> list[Any]:
    assert answer.status_code == 200
    return list(answer.context["cl"].result_list)
