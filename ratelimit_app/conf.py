"""What is configured? One dict, `RATELIMIT_APP`, typed and with defaults.

The only module that reads Django settings. Read live: Django announces a changed setting, so
`override_settings` works inside its block and is gone after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast, get_args, get_type_hints

from django.conf import settings as django_settings
from django.core.signals import setting_changed


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings, one field each; the key in `RATELIMIT_APP` is the name in capitals."""

    #: The switch for everything: "enforce", "shadow" (weigh and count, never refuse) or "off".
    mode: str = "enforce"
    #: Alias in `CACHES` of the Redis or Valkey that holds the buckets.
    cache: str = "ratelimit"
    #: Begins every name in Redis. Never empty; one per project that shares a server.
    prefix: str = "rl"
    #: So many hashes per limit hold the buckets of keys and users; 0 makes every bucket a key of its own.
    bucket_hashes: int = 32_768
    #: Longest wait for a reply of Redis. 5 ms never fired falsely in measurements; 1 ms did.
    timeout_seconds: float = 0.005
    #: Longest wait for a new connection to Redis.
    connect_timeout_seconds: float = 0.020

    #: What a new key's text begins with.
    key_prefix: str = "rl_live"
    #: Where a request carries its key: "Header" or "Header: Scheme", tried in this order.
    key_headers: tuple[str, ...] = ("Authorization: Bearer", "Authorization: Api-Key", "X-API-Key")
    #: The realm named by the `WWW-Authenticate` of a 401.
    realm: str = "api"

    #: How many keys (and as many unknown ids) a process remembers.
    key_cache_size: int = 100_000
    #: How long a process trusts what it read of keys and plans without reading it again.
    cache_ttl_seconds: float = 30.0
    #: How often a process asks the database whether plans or keys changed; 0 never asks.
    poll_seconds: float = 1.0

    #: The number of gateway processes, for each one's share while Redis is down; 0 counts them in Redis.
    fleet_size: int = 0
    #: Networks whose `X-Forwarded-For` is believed; "unix" stands for a peer without an address.
    trusted_proxies: tuple[str, ...] = ()
    #: How many of our proxies append to `X-Forwarded-For`; the caller is that entry from the right.
    proxy_count: int = 0
    #: IPv6 addresses are counted by network of this length.
    ipv6_prefix: int = 64

    #: Paths that are never limited, by whole segments: "/healthz" covers "/healthz/db".
    exempt_paths: tuple[str, ...] = ()
    #: Path prefixes that the middleware limits, each with "required" or "optional" for the key.
    paths: Mapping[str, str] = field(default_factory=dict)
    #: How long an async view's request may be held for its turn in a leaky bucket; sync workers never wait.
    longest_hold_seconds: float = 1.0
    #: Which rate headers are sent: "legacy" (X-RateLimit-*), "ietf" (drafts 08 to 11), or both.
    headers: tuple[str, ...] = ("legacy", "ietf")

    #: How often refusals leave the process for the queue.
    flush_seconds: float = 0.25
    #: How often counts of allowed requests leave the process for the queue.
    counts_flush_seconds: float = 10.0
    #: Bound on what a process keeps for the queue: distinct rows, and recent refusals in full.
    buffer_size: int = 5_000
    #: The Celery queue that batches go to; "" is the default queue.
    queue: str = ""
    #: How long refusals in full are kept.
    retention_days: int = 30
    #: How long counts per minute are kept; those per hour and per day hold the same.
    minute_retention_days: int = 3
    #: How long counts per hour are kept.
    hour_retention_days: int = 35
    #: How long counts per day are kept.
    day_retention_days: int = 400

    #: Where people reach this site, for the links in messages, such as "https://ops.example.com"; "" sends no links.
    site_url: str = ""
    #: Above this share of blocked requests, in percent over five minutes, an alert opens; 0 never does.
    alert_blocked_percent: float = 5.0
    #: The same for each key by itself.
    alert_key_blocked_percent: float = 5.0
    #: With fewer requests in five minutes, shares and times of decisions raise no alert.
    alert_min_requests: int = 500
    #: Above this p99 of the time that a decision takes, an alert opens; 0 never does.
    alert_p99_seconds: float = 0.002
    #: When statistics are later than this, or none arrive for so long, an alert opens; 0 never does.
    alert_late_seconds: float = 300.0
    #: Who gets alerts by e-mail.
    alert_emails: tuple[str, ...] = ()
    #: Where alerts are posted to as JSON; "" posts none.
    alert_webhook_url: str = ""
    #: Signs what is posted; "" signs nothing.
    alert_webhook_secret: str = ""

    #: Who has this token may read the metrics.
    metrics_token: str = ""
    #: Networks whose clients may read the metrics without it.
    metrics_networks: tuple[str, ...] = ()
    #: A file in which the processes of one machine add up their metrics; "" leaves each to itself.
    metrics_file: str = ""


#: What a setting may be, where its type does not say it.
CHOICES: dict[str, tuple[str, ...]] = {
    "MODE": ("enforce", "shadow", "off"),
    "HEADERS": ("legacy", "ietf"),
    "PATHS": ("required", "optional"),
}
_MAY_BE_ZERO = (
    *("BUCKET_HASHES", "FLEET_SIZE", "POLL_SECONDS", "PROXY_COUNT", "LONGEST_HOLD_SECONDS"),
    *("ALERT_BLOCKED_PERCENT", "ALERT_KEY_BLOCKED_PERCENT", "ALERT_P99_SECONDS", "ALERT_LATE_SECONDS"),
)
#: Beyond it, keys of their own are as small.
MOST_BUCKET_HASHES = 1_000_000
_TYPES: dict[str, Any] = get_type_hints(Settings)
NAMES: tuple[str, ...] = tuple(field.name.upper() for field in fields(Settings))

_current: Settings | None = None


def current() -> Settings:
    """The settings in force now. Costs nothing while they stay the same."""
    global _current
    settings = _current  # read once: another thread may see the settings change
    if settings is None:
        raw = getattr(django_settings, "RATELIMIT_APP", None) or {}
        given: dict[str, Any] = {name.lower(): value for name, value in raw.items() if name in NAMES}
        for name, value in given.items():
            given[name] = tuple(value) if isinstance(value, list) else value
        settings = _current = Settings(**given)
    return settings


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "RATELIMIT_APP":
        global _current
        _current = None


setting_changed.connect(_forget, dispatch_uid="ratelimit_app.conf")


def cache_options() -> dict[str, dict[str, Any]] | None:
    """`CACHES` as the project wrote it, for the system checks."""
    return cast("dict[str, dict[str, Any]]", getattr(django_settings, "CACHES", {}))


def place_of(dotted: str, *, setting: str) -> int | None:
    """The place of a class in a list setting such as `MIDDLEWARE`, or None."""
    listed = list(getattr(django_settings, setting, ()))
    return listed.index(dotted) if dotted in listed else None


def drf_default(name: str, dotted: str) -> bool:
    """Whether a class is listed in one of DRF's default settings."""
    return dotted in getattr(django_settings, "REST_FRAMEWORK", {}).get(name, ())


def problems() -> list[tuple[str, str]]:
    """(name, what is wrong with it) for each entry of `RATELIMIT_APP` that cannot be used."""
    raw = getattr(django_settings, "RATELIMIT_APP", None)
    if raw is None:
        return []
    if not isinstance(raw, Mapping):
        return [("RATELIMIT_APP", "must be a dict.")]
    found = []
    for name, value in raw.items():
        if name not in NAMES:
            found.append((str(name), "is not a setting of ratelimit_app."))
        elif wrong := _wrong(name, value):
            found.append((name, wrong))
    return found


def _wrong(name: str, value: Any) -> str:
    kind = _TYPES[name.lower()]
    allowed = CHOICES.get(name)
    if name in ("PATHS", "EXEMPT_PATHS") and not _begin_with_slash(value):
        return 'holds a path that does not begin with "/".'
    if name == "PATHS":
        if not isinstance(value, Mapping) or not set(value.values()) <= set(CHOICES[name]):
            return 'must map path prefixes to "required" or "optional".'
    elif get_args(kind):
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            return "must be a list of strings."
        if allowed and not set(value) <= set(allowed):
            return f"may hold {', '.join(allowed)}."
    elif kind is str:
        if not isinstance(value, str):
            return "must be a string."
        if allowed and value not in allowed:
            return f"must be one of {', '.join(allowed)}."
        if name in ("PREFIX", "CACHE", "KEY_PREFIX") and not value:
            return "must not be empty."
    elif isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
        return f"must be {'a whole number' if kind is int else 'a number'}."
    elif not math.isfinite(value) or value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        return "must be above zero."
    elif name == "BUCKET_HASHES" and value > MOST_BUCKET_HASHES:
        return f"must be at most {MOST_BUCKET_HASHES:,}: with more there is hardly one bucket in each."
    return ""


def _begin_with_slash(paths: Any) -> bool:
    return not isinstance(paths, Mapping | list | tuple) or all(str(path).startswith("/") for path in paths)
