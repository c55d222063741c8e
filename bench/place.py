"""Where is it measured? A server of its own, or the one that REDIS_URL names; a small project; callers on a plan."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from tests.servers import RedisServer

if TYPE_CHECKING:
    from ratelimit_app.limits import Caller

#: The default plan that everything is sized for.
REQUESTS, PERIOD_SECONDS = 1_000, 60


@dataclass(frozen=True, slots=True)
class Place:
    """What a measurement needs to know of its surroundings."""

    scratch: Path
    redis_url: str
    #: The server's process, when it is ours: it can be put on a core of our choice.
    server_pid: int | None

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis.from_url(self.redis_url, **options)


@contextlib.contextmanager
def server(*, options: tuple[str, ...] = (), django: bool = True) -> Iterator[Place]:
    """A server for the length of a block, and the project set up on it, with an empty database.

    `REDIS_SERVER=/path/to/redis-server` names another program to start, `REDIS_URL` a server that runs.
    """
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)  # PostgreSQL runs as another user, who has to find its data in there
        given = os.environ.get("REDIS_URL")
        own = None if given else RedisServer(scratch / "redis", *options)
        try:
            place = Place(scratch, given or (own.url if own else ""), own.pid if own else None)
            if django:
                set_up(place)
            yield place
        finally:
            if django:
                from ratelimit_app import changes, usage

                changes.stop()
                usage.reset()  # nobody waits for these counts
            if own is not None:
                own.stop()


def environment(place: Place, **more: str) -> dict[str, str]:
    """What a child process needs to join in."""
    return {
        "DJANGO_SETTINGS_MODULE": "bench.settings",
        "DATABASE_URL": os.environ.get("DATABASE_URL") or f"sqlite:///{place.scratch / 'db.sqlite3'}",
        "REDIS_URL": place.redis_url,
        **more,
    }


def set_up(place: Place) -> None:
    """Start Django in this process, once, with its tables made."""
    os.environ.update(environment(place))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def plan(name: str, *, requests: int = REQUESTS, limits: int = 1, **more: Any) -> int:
    """A plan with so many limits of the same numbers, a minute unless `more` says otherwise; its id."""
    from ratelimit_app.models import Plan

    row = Plan.objects.create(name=name, slug=name)
    for number in range(limits):
        numbers = {"requests": requests, "period_seconds": PERIOD_SECONDS, "burst": requests, **more}
        row.limits.create(name=f"{name}{number}", **numbers)
    return int(row.pk)


def callers(plan_id: int, count: int, *, name: str = "caller") -> list[Caller]:
    """Callers on that plan, each with a bucket of its own."""
    from ratelimit_app.limits import Caller

    return [Caller(key_id=1, plan_id=plan_id, bucket_identity=f"{name}{number}") for number in range(count)]


def words_of(message: bytes) -> tuple[bytes, ...]:
    """The words of a command that is packed for the wire."""
    return tuple(word for word in message.split(b"\r\n")[1:-1] if not word.startswith(b"$"))


@contextlib.contextmanager
def limiter_at(url: str, **entries: Any) -> Iterator[None]:
    """The limiter asks another server for the length of a block; `entries` go into `RATELIMIT_APP`."""
    from django.conf import settings
    from django.test import override_settings

    cache: dict[str, Any] = {**settings.CACHES["ratelimit"], "LOCATION": url}  # type: ignore[dict-item]
    changed = {**settings.CACHES, "ratelimit": cache}
    with override_settings(CACHES=changed, RATELIMIT_APP={**settings.RATELIMIT_APP, **entries}):
        yield
