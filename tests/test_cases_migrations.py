"""Are migrations complete and quiet in every host project? Case C26 from the field, in projects made for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.db import connection

from ratelimit_app import conf

ROOT = Path(__file__).parent.parent

SETTINGS = """
from tests.settings import *
DATABASES = {"default": environment.database(os.environ["DATABASE_URL"])}
del DEFAULT_AUTO_FIELD
"""

PEOPLE_APP = """
from django.apps import AppConfig
class PeopleConfig(AppConfig):
    name = "people"
    default_auto_field = "django.db.models.BigAutoField"
"""
PEOPLE_MODELS = """
import uuid
from django.contrib.auth.models import AbstractUser
from django.db import models
class Person(AbstractUser):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
"""

USE = """
import json, uuid
import django
django.setup()
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from project.celery import app
from ratelimit_app import recording, usage
from ratelimit_app.models import APIKey, Plan, Refusal
from tests import decisions
import redis, os
owner = get_user_model()._default_manager.create_user("owner")
assert isinstance(owner.pk, uuid.UUID)
plan = Plan.objects.create(name="Small", slug="small")
plan.limits.create(name="small", requests=1, period_seconds=3600, burst=1, per="user")
first, first_key = APIKey.objects.create_key(plan=plan, name="first", owner=owner)
second, second_key = APIKey.objects.create_key(plan=plan, name="second", owner=owner)
call_command("create_key", plan="small", name="third", owner="owner")
def status(path, key):
    return Client().get(path, headers={"Authorization": f"Bearer {key}"}).status_code
assert status("/plain/ping/", first_key) == 200
assert status("/api/ping/", second_key) == 429
assert status("/api/late/ping/", first_key) == 429
assert usage.flush(10), usage.state()
client = redis.Redis.from_url(app.conf.broker_url)
batches = list(decisions.queued(client, queue=os.environ["TEST_QUEUE"]))
assert decisions.totals(json.loads(json.dumps(batches))) == {"allowed": 1, "refused": 2}
for batch in batches:
    recording.record(batch)
assert set(Refusal.objects.values_list("key_id", flat=True)) == {first.pk, second.pk}
assert APIKey.objects.get(pk=first.pk).owner == owner
"""


class HostProject:
    """Another project that has the app installed, in a directory of its own."""

    def __init__(self, directory: Path, database_url: str, more_settings: str, variables: dict[str, str]) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "host_settings.py").write_text(SETTINGS + more_settings)
        (directory / "use.py").write_text(USE)
        people = directory / "people"
        (people / "migrations").mkdir(parents=True)
        for file, text in (
            ("__init__", ""),
            ("migrations/__init__", ""),
            ("apps", PEOPLE_APP),
            ("models", PEOPLE_MODELS),
        ):
            (people / f"{file}.py").write_text(text)
        self.environment = {
            **os.environ,
            **variables,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{directory}",
            "DJANGO_SETTINGS_MODULE": "host_settings",
            "DATABASE_URL": database_url,
        }

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def manage(self, *arguments: str) -> str:
        return self.run("-m", "django", *arguments)


@pytest.fixture
def host_project(tmp_path, prefix) -> Callable[..., HostProject]:
    def make(more_settings: str = "", *, database_url: str = "") -> HostProject:
        database_url = database_url or f"sqlite:///{tmp_path / 'host.sqlite3'}"
        queue = f"{prefix}-queue"
        more_settings += f"\nRATELIMIT_APP = {{**RATELIMIT_APP, 'QUEUE': {queue!r}}}\n"
        variables = {"TEST_PREFIX": prefix, "TEST_QUEUE": queue}
        return HostProject(tmp_path / "host", database_url, more_settings, variables)

    return make


UUID_USERS = """
INSTALLED_APPS += ["people.apps.PeopleConfig"]
AUTH_USER_MODEL = "people.Person"
"""
OTHER_ENTRIES = {
    "MODE": "shadow",
    "PREFIX": "other",
    "KEY_PREFIX": "other_prefix_of_keys",
    "KEY_CACHE_SIZE": 1,
    "QUEUE": "other",
    "RETENTION_DAYS": 1,
    "HEADERS": ["ietf"],
}


@pytest.mark.parametrize(
    "more_settings",
    [
        "",
        "DEFAULT_AUTO_FIELD = 'django.db.models.AutoField'",
        "DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'",
        "LANGUAGE_CODE = 'de'\nUSE_THOUSAND_SEPARATOR = True\nTIME_ZONE = 'Asia/Kathmandu'",
        f"RATELIMIT_APP |= {OTHER_ENTRIES!r}",
        UUID_USERS,
    ],
    ids=["unset", "AutoField", "BigAutoField", "German", "other settings", "UUID users"],
)
def test_c26_no_host_project_finds_a_migration_missing(more_settings, host_project):
    assert set(OTHER_ENTRIES) <= set(conf.NAMES)
    project = host_project(more_settings)
    if more_settings == UUID_USERS:
        project.manage("makemigrations", "people", "--verbosity", "0")
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run")


def there_and_back(project: HostProject) -> None:
    project.manage("makemigrations", "people", "--verbosity", "0")
    project.manage("migrate", "--verbosity", "0")
    assert "[ ]" not in project.manage("showmigrations", "ratelimit_app")
    project.run("use.py")
    project.manage("migrate", "ratelimit_app", "zero", "--verbosity", "0")
    assert "[X]" not in project.manage("showmigrations", "ratelimit_app")
    project.manage("migrate", "--verbosity", "0")


def test_c26_owners_with_uuids_work_and_migrations_go_back_on_sqlite(host_project):
    there_and_back(host_project(UUID_USERS))


@pytest.fixture
def empty_database(db) -> Iterator[str]:
    """The URL of a database of its own on the PostgreSQL of the tests."""
    name = f"host_{os.getpid()}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    yield os.environ["DATABASE_URL"].rpartition("/")[0] + f"/{name}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.postgresql
def test_c26_owners_with_uuids_work_and_migrations_go_back_on_postgresql(host_project, empty_database):
    there_and_back(host_project(UUID_USERS, database_url=empty_database))
