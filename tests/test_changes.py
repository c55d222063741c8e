"""Does an edit reach every process, however it was made? Held against another process, with Redis and without."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from ratelimit_app import changes, conf, key_cache, plan_cache
from ratelimit_app.models import APIKey, KeyChange, Plan, PlanLimit, Version
from ratelimit_app.models.announcements import LISTED_KEYS
from tests.outages import REFUSING, redis_at
from tests.peers import Peer, becomes

pytestmark = pytest.mark.django_db(transaction=True)

#: Normally 0.2 s; the rest is for a busy machine.
WITH_REDIS_SECONDS = 5.0
#: A poll, plus a query, plus a busy machine.
POLL_SECONDS = 0.25
WITHOUT_REDIS_SECONDS = POLL_SECONDS + 5.0


@pytest.fixture(params=["redis up", "redis gone"])
def peer_and_patience(request, process_environment, redis_client, prefix, wait_until):
    gone = request.param == "redis gone"
    environment = {**process_environment, **({"REDIS_URL": REFUSING} if gone else {})}
    # Without Redis only the poll is left; with Redis the poll is too slow to be what is measured.
    entries = {"POLL_SECONDS": POLL_SECONDS if gone else 30.0, "CACHE_TTL_SECONDS": 600}
    with Peer(environment, **entries) as peer:
        if not gone:
            wait_until(lambda: redis_client.pubsub_numsub(f"{prefix}:changed")[0][1])
        yield peer, (WITHOUT_REDIS_SECONDS if gone else WITH_REDIS_SECONDS)


def changed(row: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(row, name, value)
    return row


PLAN_EDITS: list[tuple[str, Callable[[Plan], Any], list[int]]] = [
    ("save", lambda plan: changed(plan.limits.get(), burst=4).save(), [4]),
    ("update", lambda plan: PlanLimit.objects.update(burst=5), [5]),
    ("bulk_update", lambda plan: PlanLimit.objects.bulk_update([changed(plan.limits.get(), burst=6)], ["burst"]), [6]),
    ("aupdate", lambda plan: asyncio.run(PlanLimit.objects.aupdate(burst=7)), [7]),
    (
        "bulk_create",
        lambda plan: PlanLimit.objects.bulk_create(
            [PlanLimit(plan=plan, name=f"n{burst}", requests=1, burst=burst) for burst in (8, 9)]
        ),
        [7, 8, 9],
    ),
    ("delete", lambda plan: plan.limits.get(burst=7).delete(), [8, 9]),
    ("queryset.delete", lambda plan: PlanLimit.objects.filter(burst=8).delete(), [9]),
    ("related manager", lambda plan: plan.limits.update(burst=10), [10]),
    ("update of the plan", lambda plan: Plan.objects.update(audience="everyone"), []),
    ("save of the plan", lambda plan: changed(plan, audience="keys").save(), [10]),
    ("update_or_create", lambda plan: plan.limits.update_or_create(name="n9", defaults={"burst": 11}), [11]),
    ("delete of the plan", lambda plan: plan.delete(), []),
]


def test_every_way_to_edit_a_plan_reaches_another_process_in_time(plan, peer_and_patience):
    peer, patience = peer_and_patience
    assert peer.bursts() == [3]
    for how, edit, expected in PLAN_EDITS:
        edit(plan)
        assert becomes(peer.bursts, expected, seconds=patience), how


KEY_EDITS: list[tuple[str, Callable[[APIKey], Any]]] = [
    ("save", lambda row: changed(row, revoked_at=timezone.now()).save()),
    ("update", lambda row: APIKey.objects.filter(pk=row.pk).update(revoked_at=timezone.now())),
    ("revoke", lambda row: APIKey.objects.filter(pk=row.pk).revoke()),
    ("bulk_update", lambda row: APIKey.objects.bulk_update([changed(row, revoked_at=timezone.now())], ["revoked_at"])),
    ("delete", lambda row: row.delete()),
    ("queryset.delete", lambda row: APIKey.objects.filter(pk=row.pk).delete()),
    ("aupdate", lambda row: asyncio.run(APIKey.objects.filter(pk=row.pk).aupdate(revoked_at=timezone.now()))),
    ("adelete", lambda row: asyncio.run(row.adelete())),
]


def test_every_way_to_revoke_a_key_reaches_another_process_in_time(plan, make_key, peer_and_patience):
    peer, patience = peer_and_patience
    _, untouched = make_key(plan)
    for how, edit in KEY_EDITS:
        row, text = make_key(plan)
        assert peer.accepts(text, untouched) == [True, True], how
        edit(row)
        assert becomes(partial(peer.accepts, text, untouched), [False, True], seconds=patience), how


def test_an_update_of_more_keys_than_are_listed_reaches_another_process(plan, make_key, peer_and_patience):
    peer, patience = peer_and_patience
    count = 2 * LISTED_KEYS
    rows = [APIKey(plan=plan, name="many", public_id=f"{number:012}", digest=b"") for number in range(count - 1)]
    APIKey.objects.bulk_create(rows)
    _, text = make_key(plan, name="many")
    assert peer.accepts(text) == [True]
    assert APIKey.objects.filter(name="many").update(revoked_at=timezone.now()) == count
    assert becomes(partial(peer.accepts, text), [False], seconds=patience)


def test_a_new_key_that_a_process_took_for_unknown_is_accepted_in_time(plan, make_key, peer_and_patience):
    peer, patience = peer_and_patience
    row, text = make_key(plan)
    row.delete()
    assert becomes(partial(peer.accepts, text), [False], seconds=patience)
    row.pk = None
    row.save(force_insert=True)
    assert becomes(partial(peer.accepts, text), [True], seconds=patience)


def test_with_every_message_lost_the_default_poll_sees_an_edit_within_a_second(plan, process_environment):
    environment = {**process_environment, "REDIS_URL": REFUSING}
    with Peer(environment, POLL_SECONDS=conf.Settings().poll_seconds, CACHE_TTL_SECONDS=600) as peer:
        for burst in (4, 5, 6):
            PlanLimit.objects.update(burst=burst)
            assert becomes(peer.bursts, [burst], seconds=1.0 + 4)


def test_what_was_rolled_back_is_never_seen(plan, peer_and_patience):
    peer, patience = peer_and_patience
    seen = [peer.bursts()]
    with transaction.atomic():
        PlanLimit.objects.update(burst=66)
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            PlanLimit.objects.update(burst=77)
            transaction.set_rollback(True)
        PlanLimit.objects.update(burst=4)

    def look() -> list[int]:
        seen.append(peer.bursts())
        return seen[-1]

    assert becomes(look, [4], seconds=patience)
    assert {tuple(bursts) for bursts in seen} == {(3,), (4,)}


def test_raw_sql_is_seen_when_the_cache_expires(plan, make_key, process_environment):
    row, text = make_key(plan)
    with Peer(process_environment, CACHE_TTL_SECONDS=1.0, POLL_SECONDS=0.2) as peer:
        assert (peer.bursts(), peer.accepts(text)) == ([3], [True])
        with connection.cursor() as cursor:
            cursor.execute("UPDATE ratelimit_app_planlimit SET burst = 9")
            cursor.execute("UPDATE ratelimit_app_apikey SET revoked_at = %s WHERE id = %s", [timezone.now(), row.pk])
        assert becomes(lambda: (peer.bursts(), peer.accepts(text)), ([9], [False]), seconds=1.0 + 4)


# --- In the process that made the change ---------------------------------------------------------------


def test_the_process_that_made_a_change_acts_on_it_as_soon_as_it_is_committed(plan, make_key):
    _, text = make_key(plan)
    assert key_cache.find(text)
    assert plan_cache.table().limits[plan.pk][0].burst == 3
    with transaction.atomic():
        PlanLimit.objects.update(burst=4)
        APIKey.objects.revoke()
    assert plan_cache.table().limits[plan.pk][0].burst == 4
    assert key_cache.find(text) is None


@pytest.mark.parametrize("url", [REFUSING, "redis://nonsense.invalid:1/0"])
def test_an_edit_goes_through_when_redis_is_gone(url, plan):
    with redis_at(url, CONNECT_TIMEOUT_SECONDS=0.2):
        PlanLimit.objects.update(burst=4)
        assert plan_cache.table().limits[plan.pk][0].burst == 4


def test_one_revoked_key_does_not_flush_the_others(plan, make_key, django_assert_num_queries):
    (first, first_text), (_, second_text) = make_key(plan), make_key(plan)
    key_cache.find(first_text)
    key_cache.find(second_text)
    APIKey.objects.filter(pk=first.pk).revoke()
    with django_assert_num_queries(0):
        assert key_cache.find(second_text)
    assert [change.public_id for change in KeyChange.objects.order_by("-pk")[:1]] == [first.public_id]


def test_each_change_raises_the_version_once(plan):
    def version() -> int:
        return Version.objects.get(name="plans").number

    before = version()
    PlanLimit.objects.update(burst=4)
    assert version() == before + 1
    with transaction.atomic():
        PlanLimit.objects.update(burst=5)
        transaction.set_rollback(True)
    assert version() == before + 1


# --- The watching thread -------------------------------------------------------------------------------


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ratelimit_app.changes"]


def test_watching_starts_one_thread_and_stops_it(configure, wait_until):
    configure(POLL_SECONDS=0.05)
    before = len(watchers())
    for _ in range(3):
        changes.watch()
    assert len(watchers()) == before + 1
    changes.stop()
    wait_until(lambda: len(watchers()) <= before)


def test_with_polling_off_nothing_watches():
    assert conf.current().poll_seconds == 0
    before = watchers()
    changes.watch()
    assert watchers() == before


def test_the_watching_thread_survives_a_database_that_is_gone_for_a_while(plan, configure, wait_until, caplog):
    configure(POLL_SECONDS=0.05, CACHE_TTL_SECONDS=600)
    plan_cache.table()
    changes.watch()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ratelimit_app_version RENAME TO gone")
        try:
            wait_until(lambda: "cannot be looked for" in caplog.text)
        finally:
            cursor.execute("ALTER TABLE gone RENAME TO ratelimit_app_version")
        cursor.execute("UPDATE ratelimit_app_planlimit SET burst = 9")
        cursor.execute("UPDATE ratelimit_app_version SET number = number + 1")
    wait_until(lambda: plan_cache.table().limits[plan.pk][0].burst == 9)
    changes.stop()
    wait_until(lambda: not watchers())
