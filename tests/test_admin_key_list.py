"""Do staff find a key, and can they withdraw it?"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from ratelimit_app.admin import pasted_keys
from ratelimit_app.models import APIKey, KeyUse, Plan
from tests.admin_pages import KEYS, PLANS, rows_of, staff

pytestmark = pytest.mark.django_db


def test_the_list_says_what_state_a_key_is_in_and_when_it_was_used(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    plan = make_plan("Free")
    active, _ = make_key(plan)
    expired, _ = make_key(plan, expires_at=timezone.now() - timedelta(seconds=1))
    revoked, _ = make_key(plan)
    APIKey.objects.filter(pk=revoked.pk).revoke()
    KeyUse.objects.create(key_id=active.pk, last_used_at=timezone.now().replace(year=2025))

    page = admin_client.get(KEYS).content.decode()
    assert f"rl_live_{active.public_id}…" in page
    assert re.findall(r'field-state">(\w+)<', page) == ["revoked", "expired", "active"]
    assert re.findall(r'field-last_used[^"]*">([^<]+)<', page)[:2] == ["never", "never"]
    assert "2025" in re.findall(r'field-last_used[^"]*">([^<]+)<', page)[2]
    for state, key in (("active", active), ("expired", expired), ("revoked", revoked)):
        assert rows_of(admin_client.get(KEYS, {"state": state})) == [key]


def test_a_key_is_found_by_public_id_name_and_owner(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    plan = make_plan("Free")
    alice = get_user_model().objects.create_user("alice-smith")
    key, _text = make_key(plan, name="Nightly ETL", owner=alice)
    for _ in range(3):
        make_key(plan)
    public_id = key.public_id

    for asked in (
        public_id,
        public_id[:5],
        f"rl_live_{public_id}",
        f"rl_live_{public_id}…",
        f"rl_live_{public_id}...",
        f"rl_live_{public_id[:6]}",
        f"old_prefix_{public_id}",
        f"  {public_id} ",
        "nightly",
        "etl night",
        "alice-smith",
        "Alice",
    ):
        assert rows_of(admin_client.get(KEYS, {"q": asked}, follow=True)) == [key], asked
    assert rows_of(admin_client.get(KEYS, {"q": "nobody"})) == []


def test_a_name_in_the_shape_of_a_public_id_is_found_too(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"), name="my_checkoutweb1")

    assert rows_of(admin_client.get(KEYS, {"q": "my_checkoutweb1"})) == [key]


def test_a_pasted_key_is_cut_down_to_its_public_id(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, text = make_key(make_plan("Free"))
    make_key(key.plan)

    answer = admin_client.get(KEYS, {"q": text, "state": "active"}, follow=True)

    assert answer.redirect_chain == [(f"{KEYS}?q={key.public_id}&state=active", 302)]
    assert rows_of(answer) == [key]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("rl_live_7Kq2mB0xTn4e_" + "s" * 49, "7Kq2mB0xTn4e"),
        ("Bearer rl_live_7Kq2mB0xTn4e_sss", "Bearer 7Kq2mB0xTn4e"),
        ("x" * 49, ""),
        ("rl_live_7Kq2mB0xTn4e…", "rl_live_7Kq2mB0xTn4e…"),
        ("rl_live_7Kq2mB0xTn4e_", "rl_live_7Kq2mB0xTn4e_"),
        ("Nightly ETL", "Nightly ETL"),
        ("d" * 40, "d" * 40),
        ("", ""),
    ],
)
def test_secrets_are_cut_out_of_searches(given: str, kept: str) -> None:
    assert pasted_keys.without_secrets(given) == kept


def test_a_key_can_be_renamed_and_given_another_expiry_but_not_be_moved(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    free = make_plan("Free")
    key, _ = make_key(free)
    pro = make_plan("Pro")
    before = (key.public_id, bytes(key.digest), key.bucket_identity)
    form = {"name": "New name", "plan": pro.pk, "owner": "", "expires_at_0": "2090-01-01", "expires_at_1": "00:00:00"}

    assert admin_client.post(f"{KEYS}{key.pk}/change/", form).status_code == 302

    key.refresh_from_db()
    assert (key.name, key.plan, key.expires_at.year) == ("New name", free, 2090)
    assert (key.public_id, bytes(key.digest), key.bucket_identity) == before


def test_another_owner_is_the_owner_of_all_keys_on_the_bucket(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    alice = get_user_model().objects.create_user("alice")
    key, _ = make_key(make_plan("Free"))
    new, _ = APIKey.objects.rotate(key)
    bystander, _ = make_key(key.plan)

    form = {"name": key.name, "owner": alice.pk, "expires_at_0": "", "expires_at_1": ""}
    assert admin_client.post(f"{KEYS}{new.pk}/change/", form).status_code == 302

    assert set(APIKey.objects.filter(owner=alice)) == {key, new}
    assert APIKey.objects.get(pk=bystander.pk).owner is None


def test_an_expired_key_can_be_renamed_but_no_expiry_be_set_in_the_past(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    past = timezone.now() - timedelta(days=1)
    key, _ = make_key(make_plan("Free"), expires_at=past.replace(microsecond=123))
    local = timezone.localtime(key.expires_at)
    form = {"name": "New name", "plan": key.plan_id, "expires_at_0": f"{local:%Y-%m-%d}"}

    same = form | {"expires_at_1": f"{local:%H:%M:%S}"}
    assert admin_client.post(f"{KEYS}{key.pk}/change/", same).status_code == 302
    other = form | {"expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    answer = admin_client.post(f"{KEYS}{key.pk}/change/", other)
    assert list(answer.context["adminform"].form.errors) == ["expires_at"]


def revoke(client: Client, *chosen: APIKey, **fields: Any) -> Any:
    form = {"action": "revoke", "_selected_action": [key.pk for key in chosen], **fields}
    return client.post(KEYS, form, follow=True)


def test_keys_are_revoked_together_after_a_question_and_audited(make_plan: Any, make_key: Any) -> None:
    client = staff("view_apikey", "revoke_apikey")
    plan = make_plan("Free")
    first, second, third, spared = (make_key(plan, name=f"key {n}")[0] for n in range(4))
    APIKey.objects.filter(pk=third.pk).revoke()
    third.refresh_from_db()

    question = revoke(client, first, second, third)
    assert "2 API keys will be answered 401" in question.content.decode()
    assert APIKey.objects.exclude(revoked_at=None).count() == 1
    answer = revoke(client, first, second, third, post="yes")

    assert "2 API keys were revoked" in answer.content.decode()
    assert set(APIKey.objects.filter(revoked_at=None)) == {spared}
    assert APIKey.objects.get(pk=third.pk).revoked_at == third.revoked_at
    entries = LogEntry.objects.all()
    assert {(entry.object_id, entry.get_change_message()) for entry in entries} == {
        (str(first.pk), "Revoked."),
        (str(second.pk), "Revoked."),
    }
    assert "Revoked." in client.get(f"{KEYS}{first.pk}/history/").content.decode()


def test_a_reason_for_revoking_several_is_kept_without_secrets(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    first, text = make_key(make_plan("Free"))
    second, _ = make_key(first.plan)

    revoke(admin_client, first, second, post="yes", reason=f"leaked\x00: {text} " + "x y " * 100)

    for key in (first, second):
        key.refresh_from_db()
        assert key.revoked_reason.startswith(f"leaked: {first.public_id} x y")
        assert len(key.revoked_reason) <= 200
    assert all(text[25:45] not in entry.change_message for entry in LogEntry.objects.all())


def test_revoking_needs_a_permission_of_its_own(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    client = staff("view_apikey", "change_apikey", "add_apikey", "delete_apikey")

    assert "revoke" not in dict(client.get(KEYS).context["action_form"].fields["action"].choices)
    revoke(client, key, post="yes")
    assert APIKey.objects.get().usable


def test_revoking_by_get_or_without_csrf_does_nothing(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root"))
    form = {"action": "revoke", "_selected_action": key.pk, "post": "yes"}

    client.get(KEYS, form)
    assert client.post(KEYS, form).status_code == 403
    assert APIKey.objects.get().usable


def test_all_keys_of_a_search_can_be_revoked_at_once(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    plan = make_plan("Free")
    leaked = [make_key(plan, name=f"leaked {n}")[0] for n in range(120)]
    spared, _ = make_key(plan, name="fine")
    form = {"action": "revoke", "_selected_action": [leaked[0].pk], "select_across": "1"}

    question = admin_client.post(KEYS + "?q=leaked", form).content.decode()
    assert "and 100 more" in question
    assert 'name="select_across" value="1"' in question
    admin_client.post(KEYS + "?q=leaked", form | {"post": "yes"})

    assert list(APIKey.objects.filter(revoked_at=None)) == [spared]
    assert LogEntry.objects.count() == 120


def test_a_revoked_key_is_read_only(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    APIKey.objects.filter(pk=key.pk).revoke()
    url = f"{KEYS}{key.pk}/change/"

    page = admin_client.get(url)
    assert page.status_code == 200
    assert 'name="_save"' not in page.content.decode()
    assert admin_client.post(url, {"name": "x", "plan": key.plan_id}).status_code == 403
    key.refresh_from_db()
    assert key.name != "x"


def test_deleting_more_than_a_hundred_keys_at_once_is_refused(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    plan = make_plan("Free")
    made = [make_key(plan)[0].pk for _ in range(101)]
    form = {"action": "delete_selected", "_selected_action": made[:1], "select_across": "1", "post": "yes"}

    answer = admin_client.post(KEYS, form, follow=True)

    assert "Delete at most 100 API keys at once" in answer.content.decode()
    assert APIKey.objects.count() == 101
    few = {"action": "delete_selected", "_selected_action": made[:2], "post": "yes"}
    admin_client.post(KEYS, few)
    assert APIKey.objects.count() == 99


def test_a_plan_with_many_keys_is_refused_with_their_number(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    plan = make_plan("Free")
    for _ in range(30):
        make_key(plan)

    page = admin_client.get(f"{PLANS}{plan.pk}/delete/").content.decode()
    assert "30 API keys" in page
    assert "rl_live" not in page
    admin_client.post(f"{PLANS}{plan.pk}/delete/", {"post": "yes"})
    assert Plan.objects.filter(pk=plan.pk).exists()


def test_a_plan_without_keys_can_be_deleted(admin_client: Client, make_plan: Any) -> None:
    plan = make_plan("Free")

    assert admin_client.post(f"{PLANS}{plan.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Plan.objects.exists()
