"""What does every test stand on? A real Redis, a prefix of its own in it, and plans and keys by one call."""

from __future__ import annotations

import atexit
import inspect
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from asgiref.sync import sync_to_async

from project import environment
from tests.servers import RedisServer

# --- Before Django reads its settings ----------------------------------------------------------

_scratch = Path(tempfile.mkdtemp(prefix="ratelimit_app_tests_"))
atexit.register(shutil.rmtree, _scratch, ignore_errors=True)

# Workers of pytest-xdist must not meet: each starts a server of its own, or takes databases of its own.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
if os.environ.get("REDIS_URL") in (None, "", os.environ.get("TEST_EMBEDDED_REDIS_URL")):
    _server = RedisServer(_scratch / "redis")
    atexit.register(_server.stop)
    os.environ["REDIS_URL"] = os.environ["TEST_EMBEDDED_REDIS_URL"] = _server.url
elif _worker:
    os.environ["REDIS_URL"] = environment.other_redis_database(os.environ["REDIS_URL"], number=2 * _worker)
if os.environ.get("DATABASE_URL") in (None, "", os.environ.get("TEST_DATABASE_URL")):
    os.environ["DATABASE_URL"] = os.environ["TEST_DATABASE_URL"] = f"sqlite:///{_scratch / 'db.sqlite3'}"
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"

import django  # noqa: E402  (the environment first)

django.setup()
# A worker of pytest-xdist that inherits it reads the settings before this file names its servers.
del os.environ["DJANGO_SETTINGS_MODULE"]

import redis  # noqa: E402
from django.conf import settings as django_settings  # noqa: E402
from django.db import connection, connections  # noqa: E402
from django.utils.text import slugify  # noqa: E402

from ratelimit_app.models import APIKey, Plan  # noqa: E402

# --- Which tests run, and what a skipped one means ---------------------------------------------

_skipped: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs another database: left out on purpose, so not a skip."""
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "function", None)):
            item.fixturenames.append("databases_closed")  # type: ignore[attr-defined]
    absent = [] if connection.vendor == "postgresql" else ["postgresql"]
    absent += [] if os.environ.get("RABBITMQ") else ["rabbitmq"]
    left_out = [item for item in items if any(map(item.get_closest_marker, absent))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skip is a failure: a test that did not run proves nothing."""
    if _skipped and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _skipped and os.environ.get("CI"):
        terminalreporter.write_line(f"CI is set, and {len(_skipped)} skipped: that counts as failed.", red=True)


# --- Isolation ---------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _nobody_else_in_the_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """A connection that some thread still holds at the end must not keep PostgreSQL from dropping the database."""
    yield
    if connection.vendor == "postgresql":
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_terminate_backend(pid) {others}")


@pytest.fixture(scope="session")
def _redis_connection() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(os.environ["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def redis_client(_redis_connection: redis.Redis) -> redis.Redis:
    """The Redis that the limiter under test uses."""
    return _redis_connection


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Change entries of `RATELIMIT_APP` for this test: `configure(MODE="shadow")`."""

    def change(**entries: Any) -> None:
        settings.RATELIMIT_APP = {**settings.RATELIMIT_APP, **entries}

    return change


@pytest.fixture
def every_request_counts(configure: Callable[..., None]) -> None:
    """A key that sent little is weighed as one that sent much."""
    configure(ALERT_MIN_REQUESTS=1)


@pytest.fixture(autouse=True)
def prefix(configure: Callable[..., None], _redis_connection: redis.Redis) -> Iterator[str]:
    """A prefix of its own for each test; afterwards every key under it must have had a TTL."""
    own = f"test-{uuid.uuid4().hex[:12]}"
    _reset_the_app()
    configure(PREFIX=own)

    yield own

    names = list(_redis_connection.scan_iter(match=f"*{own}*", count=1000))
    without_ttl = [name for name in names if _redis_connection.pttl(name) == -1]
    if names:
        _redis_connection.delete(*names)
    _reset_the_app()
    assert not without_ttl, f"left in Redis without a TTL: {without_ttl}"


def _reset_the_app() -> None:
    try:
        from ratelimit_app import testing
    except ImportError:
        return
    testing.reset()


@pytest_asyncio.fixture
async def databases_closed() -> AsyncIterator[None]:
    """Of every async test: the thread beside its event loop keeps no database connection open."""
    yield
    await sync_to_async(connections.close_all)()


# --- Plans, keys, servers, patience ------------------------------------------------------------


@pytest.fixture
def make_plan(db: None) -> Callable[..., Plan]:
    """`make_plan("Pro", 60, 60, 20, scope="login", audience="keys")`: a plan with one limit."""

    def make(
        name: str = "Plan",
        requests: int = 1,
        period_seconds: int = 3600,
        burst: int = 3,
        *,
        audience: str = "keys",
        **limit_fields: Any,
    ) -> Plan:
        plan = Plan.objects.create(name=name, slug=slugify(name), audience=audience)
        limit_fields.setdefault("name", plan.slug)
        plan.limits.create(requests=requests, period_seconds=period_seconds, burst=burst, **limit_fields)
        return plan

    return make


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    """Three at once, one more each hour."""
    return make_plan()


@pytest.fixture
def make_key() -> Callable[..., tuple[APIKey, str]]:
    """`make_key(plan)`: the row and the key's text."""

    def make(plan: Plan, **fields: Any) -> tuple[APIKey, str]:
        fields.setdefault("name", f"key {uuid.uuid4().hex[:6]}")
        return APIKey.objects.create_key(plan=plan, **fields)

    return make


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    """`redis_server("--maxmemory", "1mb")`: a private server to stall, kill and restart."""
    started: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        started.append(RedisServer(tmp_path / f"redis-{len(started)}", *options))
        return started[-1]

    yield start

    for server in started:
        server.stop()


@pytest.fixture
def process_environment(prefix: str) -> dict[str, str]:
    """What a child process needs to be part of this test: its Redis, its database, its prefix.

    The child sees rows only in a test with `transactional_db`.
    """
    database = django_settings.DATABASES["default"]
    url = os.environ["DATABASE_URL"]
    if connection.vendor == "sqlite":
        url = f"sqlite:///{database['NAME']}"
    else:
        url = url.rpartition("/")[0] + f"/{database['NAME']}"
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": url,
        "REDIS_URL": os.environ["REDIS_URL"],
        "TEST_PREFIX": prefix,
    }


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait for a condition instead of sleeping; fails when it does not come true in time."""

    def wait(condition: Callable[[], object], *, seconds: float = 10) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"did not come true within {seconds:g} s")
            time.sleep(0.01)

    return wait
