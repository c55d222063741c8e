"""Is a key replaced without a gap and without a second quota?"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone

from ratelimit_app import key_cache
from ratelimit_app.models import APIKey, NotRotatable
from tests.doors import DOORS, Door, every_door
from tests.gateway import gateways

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


def sent(door: Door, *texts: str) -> list[tuple[int, str | None]]:
    answers = [door.send(text) for text in texts]
    return [(answer.status_code, answer.get("X-RateLimit-Remaining")) for answer in answers]


# --- One bucket ------------------------------------------------------------------------------------------


@every_door
def test_old_and_new_key_share_one_bucket_across_the_cut_over(door, plan, make_key):
    row, old = make_key(plan)
    assert sent(door, old) == [(200, "2")]

    replacement, new = APIKey.objects.rotate(row, overlap=HOUR)
    assert sent(door, new, old, new, old) == [(200, "1"), (200, "0"), (429, "0"), (429, "0")]

    APIKey.objects.filter(pk=row.pk).update(expires_at=timezone.now())  # the overlap is over
    assert sent(door, old, new) == [(401, None), (429, "0")]
    assert replacement.bucket_identity == row.bucket_identity


def test_in_every_process_both_keys_spend_from_one_bucket(plan, make_key, process_environment):
    row, old = make_key(plan)
    with gateways(2, process_environment, POLL_SECONDS=0.2) as fleet:
        assert [gateway.ask("request", path="/plain/ping/", key=old)["remaining"] for gateway in fleet] == ["2", "1"]
        _replacement, new = APIKey.objects.rotate(row, overlap=HOUR)
        assert fleet[0].ask("request", path="/plain/ping/", key=new) == {"status": 200, "remaining": "0"}
        assert [gateway.send(text) for gateway in fleet for text in (old, new)] == [429] * 4


def test_rotating_twice_within_an_overlap_leaves_three_keys_on_one_bucket(plan, make_key):
    first, one = make_key(plan)
    second, two = APIKey.objects.rotate(first, overlap=HOUR)
    third, three = APIKey.objects.rotate(second, overlap=3 * HOUR)
    assert sent(DOORS[0], one, two, three, two) == [(200, "2"), (200, "1"), (200, "0"), (429, "0")]
    now = timezone.now()
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.expires_at is not None
    assert second.expires_at is not None
    assert now < first.expires_at <= now + HOUR < second.expires_at <= now + 3 * HOUR
    assert third.expires_at is None


# --- The overlap -----------------------------------------------------------------------------------------


def test_the_old_key_ends_by_itself_while_processes_remember_it(plan, make_key, wait_until):
    row, old = make_key(plan)
    assert key_cache.find(old)
    _replacement, new = APIKey.objects.rotate(row, overlap=timedelta(seconds=0.5))
    wait_until(lambda: key_cache.find(old) is None)
    assert key_cache.find(new)


def test_without_an_overlap_the_old_key_ends_at_once(plan, make_key):
    row, old = make_key(plan)
    assert sent(DOORS[0], old) == [(200, "2")]
    _replacement, new = APIKey.objects.rotate(row, overlap=timedelta(0))
    assert sent(DOORS[0], old, new) == [(401, None), (200, "1")]


def test_an_overlap_never_makes_a_key_live_longer(plan, make_key):
    soon = timezone.now() + HOUR
    row, _ = make_key(plan, expires_at=soon)
    APIKey.objects.rotate(row, overlap=24 * HOUR)
    row.refresh_from_db()
    assert row.expires_at == soon


def test_the_new_key_expires_when_the_old_one_would_have_unless_told_otherwise(plan, make_key):
    year = timezone.now() + timedelta(days=365)
    for told, expected in (({}, year), ({"expires_at": None}, None), ({"expires_at": year + HOUR}, year + HOUR)):
        row, _ = make_key(plan, expires_at=year)
        assert APIKey.objects.rotate(row, **told)[0].expires_at == expected


def test_the_new_key_is_the_same_caller_with_another_text(plan, make_key):
    owner = get_user_model().objects.create_user("ada")
    row, old = make_key(plan, name="nightly", owner=owner)
    APIKey.objects.boost(row, factor=3, until=timezone.now() + HOUR, reason="sale")
    new, text = APIKey.objects.rotate(row)
    assert (new.name, new.owner, new.plan, new.boost, new.boost_reason) == ("nightly", owner, plan, 3, "sale")
    assert (new.public_id, bytes(new.digest)) != (row.public_id, bytes(row.digest))
    assert old[-40:] != text[-40:]


# --- What cannot be rotated ------------------------------------------------------------------------------


def test_a_key_that_opens_nothing_cannot_be_rotated(plan, make_key):
    revoked, _ = make_key(plan)
    APIKey.objects.filter(pk=revoked.pk).revoke(reason="leaked")
    expired, _ = make_key(plan, expires_at=timezone.now() - HOUR)
    for row, word in ((revoked, "revoked"), (expired, "expired")):
        with pytest.raises(NotRotatable, match=word):
            APIKey.objects.rotate(row)
    assert APIKey.objects.count() == 2


def test_a_key_with_a_successor_that_works_cannot_be_rotated(plan, make_key):
    row, _ = make_key(plan)
    new, _ = APIKey.objects.rotate(row)
    with pytest.raises(NotRotatable, match=new.public_id):
        APIKey.objects.rotate(row)
    APIKey.objects.filter(pk=new.pk).revoke()  # it leaked: the old one is all there is
    assert APIKey.objects.rotate(row)[0].usable


def test_a_negative_overlap_is_a_mistake_of_the_program(plan, make_key):
    row, _ = make_key(plan)
    with pytest.raises(ValueError):
        APIKey.objects.rotate(row, overlap=-HOUR)


def test_of_two_rotations_at_once_one_succeeds(plan, make_key):
    row, _ = make_key(plan)
    results: list[Any] = []

    def rotate() -> None:
        try:
            results.append(APIKey.objects.rotate(row)[0])
        except NotRotatable:
            results.append(None)
        connection.close()

    threads = [threading.Thread(target=rotate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert results.count(None) == 1
    assert APIKey.objects.count() == 2


# --- Keys on one bucket are one caller -------------------------------------------------------------------


def test_a_plan_changes_for_all_keys_on_one_bucket_or_it_would_be_two_quotas(make_plan, make_key):
    free, pro = make_plan("Free"), make_plan("Pro", burst=9)
    row, old = make_key(free)
    _new, text = APIKey.objects.rotate(row)
    other, _ = make_key(free)

    assert APIKey.objects.move(row, plan=pro) == 2

    assert sent(DOORS[0], old, text, old) == [(200, "8"), (200, "7"), (200, "6")]
    other.refresh_from_db()
    assert other.plan == free


def test_no_key_moves_to_a_plan_that_is_not_for_keys(make_plan, make_key):
    row, _ = make_key(make_plan("Free"))
    with pytest.raises(ValueError, match="visitors"):
        APIKey.objects.move(row, plan=make_plan("Visitors", audience="anonymous"))


# --- Expiry warnings -------------------------------------------------------------------------------------


def test_keys_that_expire_soon_and_have_no_successor_are_listed(plan, make_key):
    soon = timezone.now() + timedelta(days=3)
    lonely, _ = make_key(plan, expires_at=soon)
    make_key(plan)
    make_key(plan, expires_at=timezone.now() + timedelta(days=15))
    make_key(plan, expires_at=timezone.now() - HOUR)
    revoked, _ = make_key(plan, expires_at=soon)
    APIKey.objects.filter(pk=revoked.pk).revoke()
    replaced, _ = make_key(plan, expires_at=soon)
    APIKey.objects.rotate(replaced, expires_at=None)
    assert list(APIKey.objects.expiring()) == [lonely]
    assert APIKey.objects.expiring(within=timedelta(days=2)).count() == 0
