"""What is set up wrong? System checks, each with an id and a hint; none contacts a server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections as databases
from django.db import router
from django.utils.module_loading import import_string

from ratelimit_app import conf
from ratelimit_app.connections import ConnectionFactory

TAG = "ratelimit"
_FACTORY = "ratelimit_app.connections.ConnectionFactory"
_MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"
_THROTTLE = "ratelimit_app.throttling.PlanThrottle"
_CORS = "corsheaders.middleware.CorsMiddleware"


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_setup, TAG)


def check_setup(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """All findings. When a setting itself is unusable, only that is said."""
    unusable = [
        checks.Error(f"RATELIMIT_APP[{name!r}] {wrong}", hint=_nearest(name), id="ratelimit_app.E001")
        for name, wrong in conf.problems()
    ]
    if unusable:
        return list(unusable)
    found: list[checks.CheckMessage] = []
    for check in (_cache, _proxies, _doors, _key_prefix, _retention, _database):
        found.extend(check())
    return found


def _nearest(name: str) -> str:
    return "See the settings reference." if name in conf.NAMES else f"The settings are {', '.join(conf.NAMES)}."


def _cache() -> Iterator[checks.CheckMessage]:
    alias, caches = conf.current().cache, conf.cache_options() or {}
    ours = caches.get(alias)
    if ours is None:
        yield checks.Error(
            f"CACHES has no {alias!r}, where the buckets are to live.",
            hint=f"Add CACHES[{alias!r}], or name another alias in RATELIMIT_APP['CACHE'].",
            id="ratelimit_app.E002",
        )
        return
    options = ours.get("OPTIONS", {})
    if not str(ours.get("BACKEND", "")).startswith("django_redis."):
        yield checks.Error(
            f"CACHES[{alias!r}] is not a django-redis cache.",
            hint='Set BACKEND to "django_redis.cache.RedisCache".',
            id="ratelimit_app.E003",
        )
    elif not _is_ours(options.get("CONNECTION_FACTORY", "")):
        yield checks.Error(
            f"CACHES[{alias!r}] does not use the limiter's connection factory: its timeouts would be those of "
            "whatever cache with the same URL was opened first.",
            hint=f'Set OPTIONS["CONNECTION_FACTORY"] to "{_FACTORY}".',
            id="ratelimit_app.E004",
        )
    for name in ("SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT"):
        if name in options:
            yield checks.Warning(
                f"CACHES[{alias!r}] sets {name}, which is not read.",
                hint='Use RATELIMIT_APP["TIMEOUT_SECONDS"] and ["CONNECT_TIMEOUT_SECONDS"].',
                id="ratelimit_app.W001",
            )
    here = _instance(ours.get("LOCATION"))
    sharing = [name for name, other in caches.items() if name != alias and _instance(other.get("LOCATION")) == here]
    if here and sharing:
        yield checks.Warning(
            f"The buckets share a Redis instance with {', '.join(map(repr, sharing))}: `clear()` or an eviction there "
            "hands every caller a full bucket.",
            hint="Give the limiter an instance of its own, with maxmemory-policy noeviction.",
            id="ratelimit_app.W002",
        )


def _is_ours(factory: str) -> bool:
    try:
        return issubclass(import_string(factory), ConnectionFactory)
    except (ImportError, TypeError):
        return False


def _instance(location: Any) -> str:
    """The server of a cache URL, without credentials, database number and parameters; "" when not Redis."""
    url = location if isinstance(location, str) else next(iter(location or ()), "")
    match = re.match(r"(?:rediss?|unix|valkeys?)://(?:[^@/]*@)?([^/?]+|/[^?]*)", str(url))
    if not match:
        return ""
    place = match[1].replace("localhost", "127.0.0.1")
    return place if place.startswith("/") or ":" in place else f"{place}:6379"


def _proxies() -> Iterator[checks.CheckMessage]:
    settings = conf.current()
    if settings.trusted_proxies and not settings.proxy_count:
        yield checks.Error(
            "Forwarded addresses are trusted, but not how many proxies write them: a caller could forge the rest.",
            hint='Set RATELIMIT_APP["PROXY_COUNT"] to the number of your proxies that append to X-Forwarded-For.',
            id="ratelimit_app.E005",
        )
    if settings.proxy_count and not settings.trusted_proxies:
        yield checks.Error(
            "PROXY_COUNT is set, but no proxy is trusted: X-Forwarded-For is not read.",
            hint='List your proxies\' networks in RATELIMIT_APP["TRUSTED_PROXIES"]; "unix" for a unix socket.',
            id="ratelimit_app.E006",
        )
    for network in settings.trusted_proxies:
        if network != "unix" and not _is_network(network):
            yield checks.Error(
                f"TRUSTED_PROXIES holds {network!r}, which is not a network.",
                hint='Write addresses or networks such as "10.0.0.0/8", or "unix".',
                id="ratelimit_app.E007",
            )
    if not 1 <= settings.ipv6_prefix <= 128:
        yield checks.Error("IPV6_PREFIX must be from 1 to 128.", hint="64 is usual.", id="ratelimit_app.E008")


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _doors() -> Iterator[checks.CheckMessage]:
    ours = conf.place_of(_MIDDLEWARE, setting="MIDDLEWARE")
    if ours is None:
        if conf.drf_default("DEFAULT_THROTTLE_CLASSES", _THROTTLE) or conf.current().paths:
            yield checks.Warning(
                "PlanThrottle or PATHS is in use, but the middleware is not installed: answers of 200 carry no rate "
                "headers, refusals no problem body, and PATHS are not limited.",
                hint=f'Add "{_MIDDLEWARE}" to MIDDLEWARE.',
                id="ratelimit_app.W003",
            )
        return
    cors = conf.place_of(_CORS, setting="MIDDLEWARE")
    if cors is not None and cors > ours:
        yield checks.Warning(
            "CorsMiddleware stands below RateLimitMiddleware: browsers cannot read a refusal.",
            hint="Put CorsMiddleware above it, best first of all.",
            id="ratelimit_app.W004",
        )


def _key_prefix() -> Iterator[checks.CheckMessage]:
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,32}", conf.current().key_prefix):
        yield checks.Error(
            "KEY_PREFIX holds more than letters, digits, hyphens and underscores, or is longer than 32.",
            hint='Something like "acme_live".',
            id="ratelimit_app.E009",
        )


def _retention() -> Iterator[checks.CheckMessage]:
    settings = conf.current()
    if not settings.minute_retention_days <= settings.hour_retention_days <= settings.day_retention_days:
        yield checks.Error(
            "Finer statistics are to be kept longer than the coarser ones that replace them.",
            hint="MINUTE_RETENTION_DAYS must not exceed HOUR_RETENTION_DAYS, nor that DAY_RETENTION_DAYS.",
            id="ratelimit_app.E010",
        )


def _database() -> Iterator[checks.CheckMessage]:
    from ratelimit_app.models import UsageMinute

    vendor = databases[router.db_for_write(UsageMinute)].vendor
    if vendor not in ("postgresql", "sqlite"):
        yield checks.Warning(
            f"Usage statistics cannot be written to {vendor}.",
            hint="Route the models of ratelimit_app to PostgreSQL or SQLite. Limiting itself works on any database.",
            id="ratelimit_app.W005",
        )
