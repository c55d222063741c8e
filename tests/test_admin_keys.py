"""Is a key handed out once, without spilling its secret anywhere?"""

from __future__ import annotations

import logging
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app import keys
from ratelimit_app.models import APIKey
from tests.admin_pages import KEYS, REFUSALS, key_form, shown_key, staff

pytestmark = pytest.mark.django_db


def test_a_key_is_shown_once_on_a_page_that_nobody_stores(admin_client: Client, make_plan: Any) -> None:
    answer = admin_client.post(KEYS + "add/", key_form(admin_client, make_plan("Free")))

    text = shown_key(answer)
    material = keys.parse(text)
    row = APIKey.objects.get()
    assert material is not None
    assert (material.public_id, material.digest) == (row.public_id, bytes(row.digest))
    assert "no-store" in answer["Cache-Control"]
    assert f"curl -i -H 'Authorization: Bearer {text}' http://testserver/" in unescape(answer.content.decode())
    for url in (KEYS, f"{KEYS}{row.pk}/change/", f"{KEYS}{row.pk}/history/", "/admin/"):
        assert text[-40:] not in admin_client.get(url).content.decode()


def test_the_curl_line_uses_the_first_header_that_is_read(admin_client: Client, make_plan: Any, configure: Any) -> None:
    configure(KEY_HEADERS=["X-API-Key"], PATHS={"/v1/": "required"})

    answer = admin_client.post(KEYS + "add/", key_form(admin_client, make_plan("Free")))

    line = f"curl -i -H 'X-API-Key: {shown_key(answer)}' http://testserver/v1/"
    assert line in unescape(answer.content.decode())


def test_sending_the_form_again_neither_shows_the_key_nor_creates_another(admin_client: Client, make_plan: Any) -> None:
    form = key_form(admin_client, make_plan("Free"))
    text = shown_key(admin_client.post(KEYS + "add/", form))

    again = admin_client.post(KEYS + "add/", form, follow=True)

    key = APIKey.objects.get()
    assert again.redirect_chain == [(f"{KEYS}{key.pk}/change/", 302)]
    assert "created before" in again.content.decode()
    assert text not in again.content.decode()
    assert LogEntry.objects.count() == 1


def test_a_second_form_creates_a_second_key(admin_client: Client, make_plan: Any) -> None:
    plan = make_plan("Free")
    texts = {shown_key(admin_client.post(KEYS + "add/", key_form(admin_client, plan))) for _ in range(2)}

    assert len(texts) == 2
    assert APIKey.objects.values("bucket_identity").distinct().count() == 2


def test_nobody_can_choose_the_bucket_of_another_key(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    victim, _ = make_key(make_plan("Free"))

    for forged in (victim.bucket_identity, "*", victim.bucket_identity + ":signature"):
        answer = admin_client.post(KEYS + "add/", key_form(admin_client, victim.plan, reserved=forged))
        assert list(answer.context["adminform"].form.errors) == ["reserved"]
    assert APIKey.objects.count() == 1


@pytest.mark.parametrize("button", ["_addanother", "_continue", "_popup"])
def test_whatever_button_was_pressed_the_key_is_shown(admin_client: Client, make_plan: Any, button: str) -> None:
    form = key_form(admin_client, make_plan("Free"), **{button: "1"})

    assert keys.parse(shown_key(admin_client.post(KEYS + "add/", form)))


def test_a_key_expires_in_a_year_unless_the_form_says_otherwise(admin_client: Client, make_plan: Any) -> None:
    plan = make_plan("Free")
    admin_client.post(KEYS + "add/", key_form(admin_client, plan))
    admin_client.post(KEYS + "add/", key_form(admin_client, plan, expires_at_0="", expires_at_1=""))

    never, year = APIKey.objects.all()
    assert never.expires_at is None
    assert abs(year.expires_at - timezone.now() - timedelta(days=365)) < timedelta(minutes=2)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "x" * 101}),
        ("name", {"name": "nul\x00"}),
        ("plan", {"plan": ""}),
        ("plan", {"plan": "987654"}),
        ("owner", {"owner": "987654"}),
        ("owner", {"owner": "alice"}),
        ("owner", {"owner": "9" * 40}),
        ("owner", {"owner": "\x00"}),
        ("expires_at", {"expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}),
        ("expires_at", {"expires_at_0": "soon", "expires_at_1": ""}),
        ("expires_at", {"expires_at_0": "99999-01-01", "expires_at_1": "00:00:00"}),
    ],
)
def test_a_typing_error_in_a_key_is_an_error_on_its_field(
    admin_client: Client, make_plan: Any, field: str, fields: dict[str, str]
) -> None:
    answer = admin_client.post(KEYS + "add/", key_form(admin_client, make_plan("Free"), **fields))

    assert answer.status_code == 200
    assert list(answer.context["adminform"].form.errors) == [field]
    assert not APIKey.objects.exists()


def test_only_plans_for_keys_are_offered(admin_client: Client, make_plan: Any) -> None:
    make_plan("Free")
    visitors = make_plan("Visitors", audience="anonymous")

    page = admin_client.get(KEYS + "add/").content.decode()
    assert ">Free</option>" in page
    assert ">Visitors</option>" not in page
    answer = admin_client.post(KEYS + "add/", key_form(admin_client, visitors))
    assert list(answer.context["adminform"].form.errors) == ["plan"]


def test_a_key_has_an_owner_by_primary_key(admin_client: Client, make_plan: Any) -> None:
    alice = get_user_model().objects.create_user("alice")

    shown_key(admin_client.post(KEYS + "add/", key_form(admin_client, make_plan("Free"), owner=alice.pk)))

    assert APIKey.objects.get().owner == alice


def test_creating_needs_its_permission_and_csrf(make_plan: Any) -> None:
    plan = make_plan("Free")
    assert staff("view_apikey").post(KEYS + "add/", {"name": "x", "plan": plan.pk}).status_code == 403
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.post(KEYS + "add/", {"name": "x", "plan": plan.pk}).status_code == 403
    assert not APIKey.objects.exists()


def test_c18_the_secret_leaves_no_trace_in_messages_logs_entries_sessions_or_tables(
    admin_client: Client, make_plan: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), CaptureQueriesContext(connection) as captured:
        form = key_form(admin_client, make_plan("Free"))
        answer = admin_client.post(KEYS + "add/", form)
        text = shown_key(answer)
        admin_client.post(KEYS + "add/", form)
        mistyped = text[:-1] + ("a" if text[-1] != "a" else "b")
        for pasted in (text, mistyped, f"Authorization: Bearer {text}", text[:-10], text[21:]):
            for page in (KEYS, REFUSALS):
                found = admin_client.get(page, {"q": pasted}, follow=True)
                assert found.status_code == 200
                assert text[25:45] not in found.content.decode()
                assert all(text[25:45] not in url for url, _ in found.redirect_chain)

    secret = text[25:45]
    assert not list(get_messages(answer.wsgi_request))
    assert secret not in caplog.text
    assert not [query for query in captured.captured_queries if secret in query["sql"]]
    assert not [session for session in Session.objects.all() if secret in str(session.get_decoded())]
    for model in apps.get_models():
        if model._meta.managed:
            for row in model._default_manager.values():
                assert secret not in str(row), model
