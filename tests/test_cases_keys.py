"""Are keys secret, and cheap to check? Cases C18 and C20 from the field."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth import hashers
from django.db import InterfaceError, OperationalError, connection
from django.urls import reverse
from django.views.debug import ExceptionReporter

from ratelimit_app import conf, keys, recording, usage
from ratelimit_app.models import APIKey
from tests import brokers, decisions
from tests.doors import (
    DRF,
    DRF_LATE,
    PLAIN,
    at,
    every_door,
    statuses,
)
from tests.outages import REFUSING, redis_at

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)


def mistyped(key: str) -> str:
    return key[:-1] + ("0" if key[-1] != "0" else "1")


# --- C18 ---------------------------------------------------------------------------------------


class Reports(logging.Handler):
    """What a site's error mails would hold."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0]:
            reporter = ExceptionReporter(getattr(record, "request", None), *record.exc_info, is_email=True)
            self.texts += [reporter.get_traceback_html(), reporter.get_traceback_text()]


@pytest.fixture
def reports() -> Iterator[Reports]:
    handler = Reports()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def everything_in_redis(client: Any) -> str:
    found = [client.keys("*")]
    for name in client.keys("*"):
        found.append(client.dump(name))
        if client.type(name) == b"string":
            found.append(client.get(name))
    return repr(found)


def every_row() -> str:
    models: list[Any] = [model for model in apps.get_app_config("ratelimit_app").get_models() if model._meta.managed]
    return repr([list(model._base_manager.values()) for model in (*models, LogEntry)])


def hits(text: str, key: str) -> list[str]:
    """Which parts of a key's secret stand in a text; its public id may."""
    secret = key.rpartition("_")[2]
    return [part for part in (secret[:43], secret[:20], secret[20:40]) if part in text]


@pytest.mark.django_db(transaction=True)
@every_door
def test_c18_the_secret_never_leaves_the_request(
    door, make_plan, admin_client, admin_user, broker, redis_client, reports, caplog, settings
):
    caplog.set_level(logging.DEBUG)
    connection.force_debug_cursor = True
    queue_client, queue = broker()
    plan = make_plan(requests=1, period_seconds=3600, burst=2)
    plan.limits.create(name="trial", requests=1, period_seconds=3600, burst=1, mode="shadow")
    page = admin_client.get(reverse("admin:ratelimit_app_apikey_add"))
    form = page.context["adminform"].form
    answer = admin_client.post(
        reverse("admin:ratelimit_app_apikey_add"),
        {"name": "secret", "plan": plan.pk, "owner": admin_user.pk, "reserved": form["reserved"].initial},
    )
    key = answer.context["key"]

    assert statuses([door.send(key), door.send(key, "outcome/500/"), door.send(key)]) == [200, 500, 429]
    assert door.send(mistyped(key)).status_code == 401
    with redis_at(REFUSING):
        assert door.send(key).status_code == 200
    assert usage.flush(10)
    raw = repr(queue_client.lrange(queue, 0, -1))
    batches = list(decisions.queued(queue_client, queue=queue))
    assert decisions.totals(batches) == {"allowed": 3, "would_refuse": 1, "refused": 1, "local": 1}
    for batch in batches:
        recording.record(batch)
    connection.force_debug_cursor = False

    assert LogEntry.objects.exists()
    assert reports.texts, "the view's error is reported"
    searched = {
        "Redis": everything_in_redis(redis_client),
        "the broker": raw + json.dumps(batches),
        "the tables": every_row(),
        "the logs": repr([(record.getMessage(), record.exc_text, record.__dict__) for record in caplog.records]),
        "the error reports": " ".join(reports.texts),
    }
    public_id = APIKey.objects.get().public_id
    assert public_id in searched["the tables"], "a search that finds nothing must be able to find something"
    for sent in (key, mistyped(key)):
        assert {place: hits(text, sent) for place, text in searched.items() if hits(text, sent)} == {}


@pytest.mark.parametrize("failure", [OperationalError, InterfaceError])
@at(DRF, DRF_LATE, PLAIN)
def test_c18_a_look_up_that_fails_reports_no_secret(door, failure, make_plan, make_key, reports, caplog):
    """The answer is the 503 of a key that cannot be looked up, and no report holds the key."""
    caplog.set_level(logging.DEBUG)
    plan = make_plan()
    key = make_key(plan)[1]
    assert door.send(make_key(plan)[1]).status_code == 200  # the plans are in memory

    def fail(*args: Any) -> None:
        raise failure("connection already closed")

    with connection.execute_wrapper(fail):
        answer = door.send(key)
    told = repr([(record.getMessage(), record.exc_text) for record in caplog.records]) + " ".join(reports.texts)
    assert hits(told, key) == []
    assert answer.status_code == 503


# --- C20 ---------------------------------------------------------------------------------------


def garbage() -> str:
    """A key of the right form that nobody has."""
    return keys.generate(conf.current().key_prefix)[0]


@every_door
def test_c20_no_slow_hash_is_computed(door, plan, make_key, monkeypatch):
    key = make_key(plan)[1]

    def slow(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a slow hash")

    for name in ("pbkdf2_hmac", "scrypt"):
        monkeypatch.setattr(hashlib, name, slow)
    for name in ("make_password", "check_password", "get_hasher"):
        monkeypatch.setattr(hashers, name, slow)
    for name in ("encode", "verify"):
        monkeypatch.setattr(hashers.BasePasswordHasher, name, slow)
        monkeypatch.setattr(hashers.MD5PasswordHasher, name, slow)
    assert door.send(key).status_code == 200
    for sent in (garbage(), "garbage", mistyped(key)):
        assert door.send(sent).status_code == 401


@every_door
def test_c20_a_warm_key_costs_no_query(door, plan, make_key, django_user_model, django_assert_num_queries):
    owner = django_user_model.objects.create_user("owner")
    key = make_key(plan, owner=owner)[1]
    assert door.send(key).status_code == 200
    with django_assert_num_queries(0):
        assert statuses([door.send(key) for _ in range(3)]) == [200, 200, 429]


@every_door
def test_c20_garbage_costs_little(door, plan, make_key, django_assert_max_num_queries):
    assert door.send(make_key(plan)[1]).status_code == 200
    for kind in (garbage, lambda: mistyped(garbage()), lambda: "garbage" * 5):
        sent = [kind() for _ in range(67)]
        for key in sent:
            with django_assert_max_num_queries(1 if kind is garbage else 0):
                assert door.send(key).status_code == 401
        with django_assert_max_num_queries(0):
            assert door.send(sent[-1]).status_code == 401, "once known to be nobody's, it costs no query"
