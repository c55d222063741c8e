"""What does the environment say? Each value read by name, typed, and refused in one clear line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured

_ENGINES = {
    "sqlite": "django.db.backends.sqlite3",
    "postgres": "django.db.backends.postgresql",
    "postgresql": "django.db.backends.postgresql",
}


def text(name: str, default: str = "") -> str:
    """A variable, or the default when it is missing or empty."""
    return os.environ.get(name, "").strip() or default


def required(name: str, *, because: str) -> str:
    """A variable that must be there."""
    if value := text(name):
        return value
    raise ImproperlyConfigured(f"Set {name} in the environment: {because}.")


def flag(name: str, *, default: bool) -> bool:
    """Whether a switch is on: 1, true, yes, on, or their opposites."""
    value = text(name).lower()
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    if value:
        raise ImproperlyConfigured(f"{name} must be 1 or 0, not {value!r}.")
    return default


def data_dir() -> Path:
    """Where the default database and what the demo leaves behind lie."""
    return Path(text("DATA_DIR", str(Path(__file__).resolve().parent.parent / ".demo")))


def number(name: str, *, default: int) -> int:
    """A whole number, zero or more."""
    value = text(name)
    if value and not value.isdecimal():
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}.")
    return int(value) if value else default


def seconds(name: str, *, default: float) -> float:
    """A time above zero, in seconds."""
    try:
        value = float(text(name, str(default)))
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise ImproperlyConfigured(f"{name} must be a number of seconds, not {text(name)!r}.")
    return value


def words(name: str, *, default: tuple[str, ...] = ()) -> list[str]:
    """A list, separated by commas."""
    return [word.strip() for word in text(name).split(",") if word.strip()] or list(default)


def database(url: str) -> dict[str, Any]:
    """One entry of `DATABASES`: `sqlite:///relative`, `sqlite:////absolute` or `postgresql://user:pass@host:port/name`.

    SQLite gets a write-ahead log and immediate transactions, so that readers never wait for the
    writer and writers queue instead of failing.
    """
    parts = urlsplit(url)
    if parts.scheme not in _ENGINES:
        raise ImproperlyConfigured("DATABASE_URL must begin with sqlite:// or postgresql://.")
    settings: dict[str, Any] = {"ENGINE": _ENGINES[parts.scheme], "NAME": unquote(parts.path[1:])}
    if parts.scheme == "sqlite":
        settings["OPTIONS"] = {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
        }
        return settings
    settings |= {
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": dict(parse_qsl(parts.query)),
    }
    return settings


def is_redis_cluster(url: str) -> bool:
    """Whether a URL names a cluster: `redis+cluster://host:port,host:port/0`."""
    return urlsplit(url).scheme.endswith("+cluster")


def other_redis_database(url: str, *, number: int) -> str:
    """The same Redis server, another of its databases."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"/{number}"))


def next_redis_database(url: str) -> str:
    """The same Redis server, the next one of its databases."""
    number_now = urlsplit(url).path.strip("/")
    return other_redis_database(url, number=int(number_now) + 1 if number_now.isdecimal() else 1)
