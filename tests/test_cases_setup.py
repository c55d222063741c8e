"""Does the app fit into projects and their tests? Cases C19, C23 and C24 from the field."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import override_settings
from django.urls import path, reverse
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import plan_cache, testing, usage
from ratelimit_app.models import Refusal, RefusalMinute
from tests import brokers, urls
from tests.doors import Door, every_door, remaining, statuses
from tests.outages import REFUSING, redis_at
from tests.workers import Worker

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)

ROOT = Path(__file__).parent.parent


class WritesAndRaises(APIView):
    """Writes a row, and then fails in a way that DRF answers or in a way that it does not."""

    def get(self, request: Request, view: str) -> Response:
        get_user_model()._default_manager.create(username=f"written by {request.path} {os.urandom(4).hex()}")
        raise ValidationError("no") if view == "ping" else RuntimeError("broken on purpose")


class WritesAndRaisesLate(WritesAndRaises):
    def get_throttles(self) -> Any:
        return super().get_throttles()


urlpatterns = [
    path("writes/<slug:view>/", WritesAndRaises.as_view()),
    path("writes/late/<slug:view>/", WritesAndRaisesLate.as_view()),
    *urls.urlpatterns,
]


# --- C19: without Redis ------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield listener


def manage(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_c19_commands_do_not_wait_for_redis(silent, tmp_path):
    settings_module = tmp_path / "without_redis.py"
    settings_module.write_text(f"from tests.settings import *\nSTATIC_ROOT = {str(tmp_path / 'static')!r}\n")
    environment = {
        "DJANGO_SETTINGS_MODULE": "without_redis",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'empty.sqlite3'}",
        "REDIS_URL": f"redis://127.0.0.1:{silent.getsockname()[1]}/0",
    }
    for command in ("check", "makemigrations --check --dry-run", "migrate --verbosity 0", "collectstatic --noinput"):
        done = manage(*command.split(), environment=environment)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    silent.setblocking(False)
    with pytest.raises(BlockingIOError):  # nobody even came
        silent.accept()


def test_c19_the_admin_opens_and_creates_keys_without_redis(admin_client, plan, make_key):
    make_key(plan)
    with redis_at(REFUSING):
        assert admin_client.get(reverse("admin:ratelimit_app_apikey_changelist")).status_code == 200
        made = admin_client.post(reverse("admin:ratelimit_app_apikey_add"), {"name": "another", "plan": plan.pk})
        assert made.status_code == 200
        assert made.context["key"]


# --- C23 ---------------------------------------------------------------------------------------


@every_door
@pytest.mark.parametrize(
    ("entries", "inside"),
    [
        ({"MODE": "off"}, 200),
        ({"MODE": "shadow"}, 200),
        ({"PREFIX": "another"}, 200),
        ({"EXEMPT_PATHS": ["/api", "/plain", "/async"]}, 200),
        ({"KEY_HEADERS": ["X-Another"]}, 401),
        ({"HEADERS": ["ietf"]}, 429),
    ],
)
def test_c23_settings_may_be_overridden_for_a_while(door, entries, inside, settings, plan, make_key, prefix):
    key = make_key(plan)[1]
    assert door.drain(key) == 3
    if "PREFIX" in entries:
        entries = {"PREFIX": f"{prefix}-another"}
    with override_settings(RATELIMIT_APP={**settings.RATELIMIT_APP, **entries}):
        answer = door.send(key)
        assert answer.status_code == inside
        assert ("X-RateLimit-Remaining" in answer) == ("PREFIX" in entries)
    after = door.send(key)
    assert (after.status_code, after["X-RateLimit-Remaining"]) == (429, "0")


@every_door
def test_c23_the_failure_choice_is_a_field_and_acts_at_once(door, plan, make_key):
    key = make_key(plan)[1]
    with redis_at(REFUSING):
        assert door.send(key).status_code == 200
        plan.limits.update(on_failure="closed")
        plan_cache.forget()  # a transaction that never commits announces nothing
        assert door.send(key).status_code == 503


@every_door
def test_c23_a_reset_gives_the_next_test_a_full_bucket(door, plan, make_key, redis_client, prefix):
    others = {f"{prefix}x:1", f"x{prefix}:1", prefix, f"{prefix}-x:1"}
    for name in others:
        redis_client.set(name, "not ours", ex=60)
    key = make_key(plan)[1]
    assert door.drain(key) == 3
    testing.reset()
    assert door.send(key)["X-RateLimit-Remaining"] == "2"
    assert all(redis_client.get(name) == b"not ours" for name in others)


PROJECT_TESTS = """
import pytest
from django.test import Client
from ratelimit_app import testing
from ratelimit_app.models import APIKey, Plan


@pytest.fixture(autouse=True)
def full_buckets():
    testing.reset()


@pytest.fixture
def key(db):
    plan = Plan.objects.create(name="Small", slug="small")
    plan.limits.create(name="small", requests=1, period_seconds=3600, burst=3)
    row, text = APIKey.objects.create_key(plan=plan, name="the same for every test")
    APIKey.objects.filter(pk=row.pk).update(bucket_identity="always the same")
    return text


@pytest.mark.parametrize("number", range(12))
def test_every_test_starts_with_a_full_bucket(key, number):
    client = Client(headers={"Authorization": f"Bearer {key}"})
    assert [client.get("/plain/ping/").status_code for _ in range(4)] == [200, 200, 200, 429]
"""


def test_c23_the_tests_of_a_project_run_in_parallel_and_in_any_order(tmp_path, prefix):
    """As the how-to says: a reset before each test, and a prefix of its own for each parallel worker."""
    (tmp_path / "shop_settings.py").write_text(
        "import os\nfrom tests.settings import *\n"
        f"PREFIX = {prefix!r} + os.environ.get('PYTEST_XDIST_WORKER', '')\n"
        "RATELIMIT_APP = {**RATELIMIT_APP, 'PREFIX': PREFIX}\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n"
    )
    (tmp_path / "test_shop.py").write_text(PROJECT_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    environment |= {"DJANGO_SETTINGS_MODULE": "shop_settings"}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS", "CI"):
        environment.pop(name, None)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "randomly",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:valkey",
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 passed" in done.stdout


# --- C24 ---------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("door", "view"),
    [(Door("drf", "/writes/"), "broken/"), (Door("drf-late", "/writes/late/"), "ping/")],
    ids=["drf", "drf-late"],
)
def test_c24_a_rolled_back_request_has_spent_its_token_and_every_refusal_arrives(
    door, view, broker, make_plan, make_key, settings, monkeypatch, process_environment, tmp_path, wait_until
):
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    _client, queue = broker()
    row, key = make_key(make_plan(requests=1, period_seconds=3600, burst=2))
    answers = [door.send(key, view) for _ in range(5)]
    raised = 400 if view == "ping/" else 500
    assert statuses(answers) == [raised, raised, 429, 429, 429]
    assert remaining(answers) == ["1", "0", "0", "0", "0"]
    assert not get_user_model()._default_manager.exists(), "what the view wrote is rolled back"

    assert usage.flush(10)
    worker = Worker(process_environment, queue=queue, log_path=tmp_path / "worker.log")
    try:
        wait_until(lambda: RefusalMinute.objects.exists() and Refusal.objects.count() == 3, seconds=40)
    finally:
        worker.stop()
    assert sum(RefusalMinute.objects.values_list("refused", flat=True)) == 3
    receipts = {answer.json()["instance"].rpartition(":")[2] for answer in answers[2:]}
    assert {str(refusal.receipt) for refusal in Refusal.objects.all()} == receipts
    assert {refusal.identity for refusal in Refusal.objects.all()} == {row.bucket_identity}
