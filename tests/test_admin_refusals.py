"""Does a receipt lead to its refusal?"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ratelimit_app.models import APIKey, Refusal
from tests.admin_pages import REFUSALS, rows_of, staff

pytestmark = pytest.mark.django_db


def refused(key: APIKey, **fields: Any) -> Refusal:
    values = {
        "receipt": uuid.uuid4(),
        "at": timezone.now(),
        "identity": key.bucket_identity,
        "key_id": key.pk,
        "plan_id": key.plan_id,
        "limit_id": 1,
        "limit_name": "free",
        "route": "api/ping/",
        "method": "GET",
        "address": "203.0.113.9",
        "cost": 1,
        "retry_after_seconds": 7,
    }
    return Refusal.objects.create(**{**values, **fields})


def test_a_refusal_is_found_by_its_receipt_however_it_was_copied(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"))
    refusal = refused(key)
    refused(key)

    for asked in (
        f"urn:uuid:{refusal.receipt}",
        str(refusal.receipt),
        refusal.receipt.hex,
        f"  URN:UUID:{str(refusal.receipt).upper()} ",
    ):
        answer = admin_client.get(REFUSALS, {"q": asked})
        assert rows_of(answer) == [refusal], asked
        assert f"rl_live_{key.public_id}…" in answer.content.decode()
    assert rows_of(admin_client.get(REFUSALS, {"q": str(uuid.uuid4())})) == []
    assert rows_of(admin_client.get(REFUSALS, {"q": "g" * 32})) == []


def test_refusals_are_found_by_the_public_id_of_their_key(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    plan = make_plan("Free")
    key, text = make_key(plan)
    old, _ = make_key(plan)
    APIKey.objects.filter(pk=old.pk).update(bucket_identity=key.bucket_identity)
    refusal = refused(key)
    refused(old, identity=key.bucket_identity)

    for asked in (key.public_id, f"rl_live_{key.public_id}…", text):
        assert rows_of(admin_client.get(REFUSALS, {"q": asked}, follow=True)) == [refusal], asked
    assert rows_of(admin_client.get(REFUSALS, {"q": "nobody"})) == []


def test_refusals_can_only_be_read(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    refusal = refused(make_key(make_plan("Free"))[0])
    url = f"{REFUSALS}{refusal.receipt}/"

    page = admin_client.get(f"{url}change/").content.decode()
    assert "api/ping/" in page
    assert "7 s" in page
    assert 'name="_save"' not in page
    assert admin_client.post(f"{url}change/", {}).status_code == 403
    assert admin_client.post(f"{url}delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get(f"{REFUSALS}add/").status_code == 403
    assert staff("view_refusal").get(REFUSALS).status_code == 200


def test_a_refusal_of_a_deleted_key_is_still_shown(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    refusal = refused(key, retry_after_seconds=0)
    key.delete()

    assert rows_of(admin_client.get(REFUSALS)) == [refusal]
    assert "no wait helps" in admin_client.get(REFUSALS).content.decode()
