"""Is a key known without a query, forgotten when it must be, and is the memory bounded?"""

from __future__ import annotations

import hashlib
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model, hashers
from django.db import DatabaseError, connection
from django.utils import timezone

from ratelimit_app import key_cache, keys
from ratelimit_app.models import APIKey
from tests.test_plan_cache import unreadable

pytestmark = pytest.mark.django_db


def unknown_key() -> str:
    return keys.generate("rl_live")[0]


def test_a_key_is_found_with_one_query_and_then_with_none(plan, make_key, django_assert_num_queries):
    row, text = make_key(plan)
    with django_assert_num_queries(1):
        known = key_cache.find(text)
    assert known is not None
    assert known.caller == row.as_caller()
    with django_assert_num_queries(0):
        for _ in range(50):
            assert key_cache.find(text)


def test_an_unknown_key_costs_one_query_and_junk_none(django_assert_num_queries):
    text = unknown_key()
    with django_assert_num_queries(1):
        for _ in range(10):
            assert key_cache.find(text) is None
    with django_assert_num_queries(0):
        for junk in ("", "x", text[:-1], text + "x", "\0", "\ud800", "a" * 10_000):
            assert key_cache.find(junk) is None


def test_the_right_id_with_another_secret_opens_nothing(plan, make_key, django_assert_num_queries):
    row, text = make_key(plan)
    body = f"rl_live_{row.public_id}_{'0' * 43}"
    forged = body + keys._checksum(body)
    assert keys.parse(forged) is not None
    assert key_cache.find(forged) is None  # cold
    assert key_cache.find(text)
    with django_assert_num_queries(0):
        assert key_cache.find(forged) is None  # warm
        assert key_cache.find(text)


def test_no_slow_hash_is_ever_computed(plan, make_key, monkeypatch):
    _, text = make_key(plan)

    def slow(*args, **kwargs):
        raise AssertionError("a slow hash on every request is a gift to whoever sends junk")

    for name in ("pbkdf2_hmac", "scrypt"):
        monkeypatch.setattr(hashlib, name, slow)
    monkeypatch.setattr(hashers, "check_password", slow)
    assert key_cache.find(text)
    assert key_cache.find(unknown_key()) is None


# --- Keys that open nothing any more -------------------------------------------------------------------


def test_a_key_that_expires_while_it_is_in_memory_opens_nothing_from_that_moment(plan, make_key, wait_until):
    _, text = make_key(plan, expires_at=timezone.now() + timedelta(seconds=0.3))
    assert key_cache.find(text)
    wait_until(lambda: key_cache.find(text) is None)


def test_the_key_of_an_owner_who_is_no_longer_active_opens_nothing(plan, make_key):
    owner = get_user_model().objects.create_user("ada", is_active=False)
    _, text = make_key(plan, owner=owner)
    assert key_cache.find(text) is None


@pytest.mark.django_db(transaction=True)
def test_revoking_deleting_and_creating_count_at_once_in_this_process(plan, make_key):
    for edit in (lambda row: APIKey.objects.filter(pk=row.pk).revoke(), APIKey.delete):
        row, text = make_key(plan)
        assert key_cache.find(text)
        edit(row)
        assert key_cache.find(text) is None
    row.pk = None
    row.save(force_insert=True)
    assert key_cache.find(text)


@pytest.mark.django_db(transaction=True)
def test_a_key_revoked_while_it_is_being_read_is_not_remembered(plan, make_key):
    row, text = make_key(plan)
    revoked = threading.Event()

    def revoke_meanwhile(execute, sql, params, many, context):
        result = execute(sql, params, many, context)
        if not revoked.is_set():
            revoked.set()
            thread = threading.Thread(target=revoke)
            thread.start()
            thread.join()
        return result

    def revoke() -> None:
        APIKey.objects.filter(pk=row.pk).revoke()
        connection.close()

    with connection.execute_wrapper(revoke_meanwhile):
        key_cache.find(text)  # was true when it was read
    assert key_cache.find(text) is None


def test_every_request_gets_an_owner_of_its_own(plan, make_key, django_assert_num_queries):
    _, text = make_key(plan, owner=get_user_model().objects.create_user("ada"))
    known = key_cache.find(text)
    assert known is not None
    with django_assert_num_queries(0):
        first, second = known.owner, known.owner
    assert first == second
    first.username = "changed by a view"
    assert second.username == known.owner.username == "ada"


# --- Bounds ----------------------------------------------------------------------------------------------


def test_a_flood_of_invented_ids_pushes_no_known_key_out(plan, make_key, configure, django_assert_num_queries):
    configure(KEY_CACHE_SIZE=10)
    _, text = make_key(plan)
    assert key_cache.find(text)
    for _ in range(50):
        assert key_cache.find(unknown_key()) is None
    assert len(key_cache._unknown) <= 10
    with django_assert_num_queries(0):
        assert key_cache.find(text)


def test_no_more_keys_are_remembered_than_the_setting_allows(plan, make_key, configure):
    configure(KEY_CACHE_SIZE=10)
    for _ in range(30):
        assert key_cache.find(make_key(plan)[1])
    assert len(key_cache._known) <= 10


def test_raw_sql_is_seen_once_the_entry_expired(plan, make_key, configure, wait_until):
    configure(CACHE_TTL_SECONDS=0.05)
    row, text = make_key(plan)
    assert key_cache.find(text)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ratelimit_app_apikey SET revoked_at = %s WHERE id = %s", [timezone.now(), row.pk])
    wait_until(lambda: key_cache.find(text) is None)


# --- When the database is gone -----------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_known_key_goes_on_when_the_database_is_gone_and_a_new_one_is_an_error(plan, make_key, configure):
    configure(CACHE_TTL_SECONDS=0.01)
    _, text = make_key(plan)
    _, other = make_key(plan)
    assert key_cache.find(text)
    time.sleep(0.02)  # past its time
    with unreadable("ratelimit_app_apikey"):
        assert key_cache.find(text)
        with pytest.raises(DatabaseError):
            key_cache.find(other)
    assert key_cache.find(other)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_gone_is_not_asked_again_for_every_request(plan, make_key, configure):
    configure(CACHE_TTL_SECONDS=0.01)
    _, text = make_key(plan)
    assert key_cache.find(text)
    time.sleep(0.02)  # past its time
    asked = []

    def count(execute, sql, params, many, context):
        asked.append(sql)
        return execute(sql, params, many, context)

    with unreadable("ratelimit_app_apikey"), connection.execute_wrapper(count):
        for _ in range(20):
            assert key_cache.find(text)
    assert len(asked) <= 2
