"""Does each action on a key do what its form says, and say plainly what cannot be done?"""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from ratelimit_app import keys
from ratelimit_app.models import APIKey, Plan
from tests.admin_pages import KEYS, shown_key, staff
from tests.outages import REFUSING, redis_at

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(make_plan: Any, make_key: Any) -> APIKey:
    row: APIKey = make_key(make_plan("Free"))[0]
    return row


# --- Rotating ---


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
    boost = {
        "factor": 7,
        "until": f"{timezone.localtime(timezone.now() + timedelta(days=1)):%Y-%m-%dT%H:%M}",
        "reason": "sale",
    }
    assert key.public_id in admin_client.get(f"{KEYS}{new.pk}/boost/").content.decode()
    admin_client.post(f"{KEYS}{new.pk}/boost/", boost)
    admin_client.post(
        f"{KEYS}{key.pk}/move/", {"plan": Plan.objects.create(name="Other", slug="other").pk, "reason": "upgrade"}
    )
    assert {(row.plan.slug, row.boost) for row in APIKey.objects.all()} == {("other", 7)}
    assert LogEntry.objects.count() == 4
