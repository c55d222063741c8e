"""May only those do something to a key who may, by POST with CSRF, and does each leave a trace without a secret?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from ratelimit_app import keys, limiter
from ratelimit_app.models import APIKey
from tests.admin_pages import KEYS, staff

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def local(at: Any) -> str:
    return f"{timezone.localtime(at):%Y-%m-%dT%H:%M}"


@dataclass(frozen=True)
class Trial:
    """An action, what is sent for it, and how to see that it was done."""

    slug: str
    permission: str
    form: Callable[[APIKey], dict[str, Any]]
    done: Callable[[APIKey], bool]

    def url(self, key: APIKey) -> str:
        return f"{KEYS}{key.pk}/{self.slug}/"


TRIALS = [
    Trial("rotate", "rotate_apikey", lambda key: {"overlap_hours": 24}, lambda key: APIKey.objects.count() == 2),
    Trial(
        "revoke",
        "revoke_apikey",
        lambda key: {"typed": key.public_id, "reason": "leaked"},
        lambda key: (key.revoked_at is not None, key.revoked_reason) == (True, "leaked"),
    ),
    Trial(
        "move",
        "move_apikey",
        lambda key: {"plan": other_plan(key).pk, "reason": "upgrade"},
        lambda key: key.plan.slug == "other",
    ),
    Trial(
        "boost",
        "boost_apikey",
        lambda key: {"factor": 7, "until": local(timezone.now() + DAY), "reason": "sale"},
        lambda key: (key.boost, key.boost_reason) == (7, "sale"),
    ),
    Trial("end-boost", "boost_apikey", lambda key: {"reason": "over"}, lambda key: key.boost_factor == 1),
    Trial(
        "reset",
        "reset_bucket",
        lambda key: {"reason": "our fault"},
        lambda key: limiter.peek(key.as_caller()).remaining == 3 * key.boost,
    ),
]
every_action = pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.slug)


def other_plan(key: APIKey) -> Any:
    plan, _ = type(key.plan).objects.get_or_create(slug="other", defaults={"name": "Other"})
    return plan


@pytest.fixture
def key(make_plan: Any, make_key: Any, request: pytest.FixtureRequest) -> APIKey:
    """A key that is boosted where the boost is to end, and that has spent something."""
    row: APIKey = make_key(make_plan("Free"))[0]
    trial = request.node.callspec.params.get("trial") if hasattr(request.node, "callspec") else None
    if trial is not None and trial.slug == "end-boost":
        APIKey.objects.boost(row, factor=2, until=timezone.now() + DAY, reason="")
    row.refresh_from_db()
    limiter.check(row.as_caller(), cost=2)
    return row


def is_done(trial: Trial, key: APIKey) -> bool:
    return trial.done(APIKey.objects.select_related("plan").get(pk=key.pk))


# --- Who may ---------------------------------------------------------------------------------------------


@every_action
def test_nobody_who_is_not_signed_in_gets_anywhere(trial: Trial, key: APIKey) -> None:
    for answer in (Client().get(trial.url(key)), Client().post(trial.url(key), trial.form(key))):
        assert answer.status_code == 302
        assert "/admin/login/" in answer["Location"]
    assert not is_done(trial, key)


@every_action
def test_staff_without_the_permission_are_refused(trial: Trial, key: APIKey) -> None:
    others = {other.permission for other in TRIALS} - {trial.permission}
    for client in (
        staff("view_apikey", "change_apikey", "add_apikey", "delete_apikey", *others),
        staff(trial.permission),  # without seeing keys
    ):
        assert client.get(trial.url(key)).status_code == 403
        assert client.post(trial.url(key), trial.form(key)).status_code == 403
    assert not is_done(trial, key)
    assert not LogEntry.objects.exists()


@every_action
def test_staff_with_the_permission_do_it_and_leave_a_trace(trial: Trial, key: APIKey) -> None:
    client = staff("view_apikey", trial.permission)
    assert trial.url(key) in client.get(f"{KEYS}{key.pk}/page/").content.decode()
    question = client.get(trial.url(key))
    assert question.status_code == 200
    assert not is_done(trial, key)

    answer = client.post(trial.url(key), trial.form(key))

    assert answer.status_code == (200 if trial.slug == "rotate" else 302)
    assert is_done(trial, key)
    entry = LogEntry.objects.filter(object_id=str(key.pk)).get()
    assert trial.form(key).get("reason", "Rotated") in entry.get_change_message()
    history = Client()
    history.force_login(get_user_model().objects.create_superuser("root"))
    assert entry.get_change_message() in unescape(history.get(f"{KEYS}{key.pk}/history/").content.decode())


@every_action
def test_without_csrf_nothing_happens(trial: Trial, key: APIKey) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.post(trial.url(key), trial.form(key)).status_code == 403
    client.get(trial.url(key), trial.form(key))
    assert not is_done(trial, key)


@every_action
def test_an_action_on_a_key_that_is_not_there_is_404(trial: Trial, key: APIKey, admin_client: Client) -> None:
    url = trial.url(key).replace(f"/{key.pk}/", "/987654/")
    assert admin_client.get(url).status_code == 404
    assert admin_client.post(url, trial.form(key)).status_code == 404


@every_action
def test_a_revoked_key_is_past_all_actions(trial: Trial, key: APIKey, admin_client: Client) -> None:
    APIKey.objects.filter(pk=key.pk).revoke(reason="before")
    page = admin_client.get(f"{KEYS}{key.pk}/page/").content.decode()
    assert trial.url(key) not in page or trial.slug == "end-boost"
    answer = admin_client.post(trial.url(key), trial.form(key), follow=True)
    assert answer.status_code == 200
    key.refresh_from_db()
    assert key.revoked_reason == "before"
    assert APIKey.objects.count() == 1


@every_action
def test_a_secret_pasted_as_a_reason_is_not_kept(trial: Trial, key: APIKey, admin_client: Client) -> None:
    text, _ = keys.generate("rl_live")
    admin_client.post(trial.url(key), trial.form(key) | {"reason": f"they sent {text} by mail"})
    assert is_done(trial, key) or trial.slug in ("revoke", "boost")
    kept = str(list(LogEntry.objects.values())) + str(list(APIKey.objects.values()))
    assert text[25:45] not in kept
    assert "they sent" in kept
