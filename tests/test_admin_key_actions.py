"""May only those do something to a key who may, by POST with CSRF, and does each leave a trace without a secret?"""

from __future__ import annotations

import re
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
from tests.admin_pages import KEYS, shown_key, staff
from tests.outages import REFUSING, redis_at

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


# --- Rotating --------------------------------------------------------------------------------------------


def test_a_rotated_key_is_shown_once_on_a_page_that_nobody_stores(key: APIKey, admin_client: Client) -> None:
    answer = admin_client.post(f"{KEYS}{key.pk}/rotate/", {"overlap_hours": 1, "reason": ""})
    text = shown_key(answer)
    new = APIKey.objects.exclude(pk=key.pk).get()
    material = keys.parse(text)
    assert material is not None
    assert (new.public_id, bytes(new.digest)) == (material.public_id, material.digest)
    assert "no-store" in answer["Cache-Control"]
    html = unescape(answer.content.decode())
    assert f"curl -i -H 'Authorization: Bearer {text}'" in html
    assert f'href="{KEYS}{new.pk}/page/"' in html
    for url in (f"{KEYS}{key.pk}/page/", f"{KEYS}{new.pk}/page/", KEYS, f"{KEYS}{new.pk}/history/", "/admin/"):
        assert text[25:45] not in admin_client.get(url).content.decode()
    assert text[25:45] not in str(list(LogEntry.objects.values()))


def test_sending_the_form_again_neither_rotates_nor_shows_anything(key: APIKey, admin_client: Client) -> None:
    for overlap in (24, 0):
        form = {"overlap_hours": overlap}
        newest = APIKey.objects.order_by("pk").last()
        assert newest is not None
        shown_key(admin_client.post(f"{KEYS}{newest.pk}/rotate/", form))
        count = APIKey.objects.count()
        again = admin_client.post(f"{KEYS}{newest.pk}/rotate/", form, follow=True)
        assert again.redirect_chain == [(f"{KEYS}{newest.pk}/page/", 302)]
        assert "rl-key" not in again.content.decode()
        assert APIKey.objects.count() == count


def test_who_may_only_rotate_cannot_let_a_key_live_longer(make_plan: Any, make_key: Any) -> None:
    expires_at = timezone.now() + timedelta(days=30)
    row, _ = make_key(make_plan("Free"), expires_at=expires_at)
    form = {"overlap_hours": 0, "expires_at": "2090-01-01T00:00:00"}
    staff("view_apikey", "rotate_apikey").post(f"{KEYS}{row.pk}/rotate/", form)
    new = APIKey.objects.exclude(pk=row.pk).get()
    assert new.expires_at == expires_at
    staff("view_apikey", "rotate_apikey", "change_apikey").post(f"{KEYS}{new.pk}/rotate/", form)
    newest = APIKey.objects.exclude(pk__in=[row.pk, new.pk]).get()
    assert newest.expires_at is not None
    assert newest.expires_at.year in (2089, 2090)


def test_a_key_that_expires_soon_is_offered_another_year(make_plan: Any, make_key: Any, admin_client: Client) -> None:
    row, _ = make_key(make_plan("Free"), expires_at=timezone.now() + timedelta(days=3))
    page = admin_client.get(f"{KEYS}{row.pk}/rotate/").content.decode()
    offered = re.search(r'name="expires_at" value="(\d{4}-\d{2}-\d{2})T', page)
    assert offered is not None
    assert offered[1] == f"{timezone.localtime(timezone.now() + timedelta(days=365)):%Y-%m-%d}"


# --- What cannot be used is said, and loses nothing --------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "form", "field"),
    [
        ("rotate", {"overlap_hours": 5}, "overlap_hours"),
        ("rotate", {"overlap_hours": 24, "expires_at": "2020-01-01T00:00"}, "expires_at"),
        ("rotate", {"overlap_hours": 24, "expires_at": "soon"}, "expires_at"),
        ("revoke", {"typed": "another", "reason": "x"}, "typed"),
        ("revoke", {"typed": "", "reason": "x"}, "typed"),
        ("move", {"plan": "987654", "reason": "x"}, "plan"),
        ("boost", {"factor": "1", "until": "2090-01-01T00:00", "reason": "x"}, "factor"),
        ("boost", {"factor": "101", "until": "x", "reason": "x"}, "factor"),
        ("boost", {"factor": "1.5", "until": "x", "reason": "x"}, "factor"),
        ("boost", {"factor": "2", "until": "2020-01-01T00:00", "reason": "x"}, "until"),
        ("boost", {"factor": "2", "until": "2090-01-01T00:00", "reason": "x"}, "until"),
        ("boost", {"factor": "2", "until": "9999-12-31T23:59:59+00:00", "reason": "x"}, "until"),
        ("boost", {"factor": "2", "until": "2090-01-01T00:00", "reason": ""}, "reason"),
        ("boost", {"factor": "2", "until": "2090-01-01T00:00", "reason": "x" * 201}, "reason"),
        ("boost", {"factor": "2", "until": "2090-01-01T00:00", "reason": "nul\x00"}, "reason"),
        ("reset", {"reason": ""}, "reason"),
    ],
)
def test_a_typing_error_is_an_error_on_its_field(
    key: APIKey, admin_client: Client, slug: str, form: dict[str, Any], field: str
) -> None:
    before = list(APIKey.objects.values())
    answer = admin_client.post(f"{KEYS}{key.pk}/{slug}/", form)
    assert answer.status_code == 200
    assert field in answer.context["form"].errors
    for name, sent in form.items():
        if name in answer.context["form"].fields:
            assert answer.context["form"][name].value() == str(sent) or answer.context["form"][name].value() == sent
    assert list(APIKey.objects.values()) == before


def test_revoking_takes_the_name_or_the_public_id_in_any_form(
    make_plan: Any, make_key: Any, admin_client: Client
) -> None:
    plan = make_plan("Free")
    for typed in ("{key.name}", "{key.public_id}", "rl_live_{key.public_id}…", "  {key.public_id} ", "{text}"):
        row, text = make_key(plan, name="Nightly ETL")
        form = {"typed": typed.format(key=row, text=text), "reason": "x"}
        assert admin_client.post(f"{KEYS}{row.pk}/revoke/", form).status_code == 302, typed
        row.refresh_from_db()
        assert row.revoked_at is not None


def test_a_leaked_key_can_be_revoked_with_all_that_share_its_bucket(key: APIKey, admin_client: Client) -> None:
    new, _ = APIKey.objects.rotate(key)
    form = {"typed": new.public_id, "reason": "leaked"}
    assert key.public_id in admin_client.get(f"{KEYS}{new.pk}/revoke/").content.decode()
    admin_client.post(f"{KEYS}{new.pk}/revoke/", form)
    assert list(APIKey.objects.usable()) == [key]
    admin_client.post(f"{KEYS}{key.pk}/revoke/", {"typed": key.public_id, "reason": "leaked too"})
    assert not APIKey.objects.usable().exists()
    first, _ = APIKey.objects.create_key(plan=key.plan, name="pair")
    second, _ = APIKey.objects.rotate(first)
    form = {"typed": second.public_id, "reason": "leaked", "all_of_them": "on"}
    admin_client.post(f"{KEYS}{second.pk}/revoke/", form)
    assert not APIKey.objects.usable().exists()
    assert LogEntry.objects.filter(object_id__in=[first.pk, second.pk]).count() == 2


def test_when_redis_is_down_buckets_are_not_filled_and_it_is_said(key: APIKey, admin_client: Client) -> None:
    with redis_at(REFUSING):
        answer = admin_client.post(f"{KEYS}{key.pk}/reset/", {"reason": "x"}, follow=True)
    assert "Nothing was changed" in answer.content.decode()
    assert not LogEntry.objects.exists()


def test_a_plan_or_boost_is_set_for_all_keys_on_the_bucket_and_logged_for_each(
    key: APIKey, admin_client: Client
) -> None:
    new, _ = APIKey.objects.rotate(key)
    boost = {"factor": 7, "until": local(timezone.now() + DAY), "reason": "sale"}
    assert key.public_id in admin_client.get(f"{KEYS}{new.pk}/boost/").content.decode()
    admin_client.post(f"{KEYS}{new.pk}/boost/", boost)
    admin_client.post(f"{KEYS}{key.pk}/move/", {"plan": other_plan(key).pk, "reason": "upgrade"})
    assert {(row.plan.slug, row.boost) for row in APIKey.objects.all()} == {("other", 7)}
    assert LogEntry.objects.count() == 4
