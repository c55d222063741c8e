"""How do the tests of the admin sign in, fill in forms and read lists?"""

from __future__ import annotations

import re
import uuid
from html import unescape
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from ratelimit_app.models import Plan, PlanLimit

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


def plan_form(limit: PlanLimit | None = None, /, **fields: Any) -> dict[str, Any]:
    """What a browser sends for a plan with one limit."""
    values = {
        "name": "free",
        "algorithm": "token_bucket",
        "requests": "60",
        "period_seconds": "60",
        "burst": "20",
        "per": "key",
        "scope": "",
        "methods": "",
        "shards": "",
        "mode": "enforce",
        "on_failure": "open",
    } | {name: value for name, value in fields.items() if name not in ("plan_name", "slug", "audience")}
    form = {f"limits-0-{name}": value for name, value in values.items()}
    return {
        "name": fields.get("plan_name", "Free"),
        "slug": fields.get("slug", "free"),
        "description": "",
        "audience": fields.get("audience", "keys"),
        "limits-TOTAL_FORMS": "1",
        "limits-INITIAL_FORMS": "1" if limit else "0",
        "limits-0-id": limit.pk if limit else "",
        "limits-0-plan": limit.plan_id if limit else "",
        **form,
    }


def filled_in(page: Any) -> list[tuple[str, str]]:
    """What the form on a page holds without anybody typing, but for the token against forgery."""
    text = page.content.decode().partition('class="rl-action-form"')[2]
    tags = re.findall(r'<input type="(?:hidden|text)" name="([^"]*)"[^>]*? value="([^"]*)"', text)
    return [(unescape(name), unescape(value)) for name, value in tags if name != "csrfmiddlewaretoken"]


def confirm(client: Client, url: str, form: dict[str, Any], button: str = "_enforce") -> Any:
    """Send the form of a plan, and press a button on the page that asks."""
    page = client.post(url, form)
    assert page.status_code == 200
    assert page.templates[0].name == "admin/ratelimit_app/plan/preview.html", errors_of(page)
    data: dict[str, Any] = {button: "x"}
    for name, value in filled_in(page):
        data.setdefault(name, []).append(value)
    return client.post(url, data)


def errors_of(answer: Any) -> dict[str, list[str]]:
    """Errors by field of the plan's form and of its one limit."""
    assert answer.status_code == 200
    found: dict[str, list[str]] = {**answer.context["adminform"].form.errors}
    return found | answer.context["inline_admin_formsets"][0].formset.forms[0].errors
