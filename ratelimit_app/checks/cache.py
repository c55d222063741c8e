"""Does the cache alias name a place where buckets can live?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ratelimit_app import conf
from ratelimit_app.connections import ClusterURL, ConnectionFactory, SentinelConnectionFactory

_FACTORY = "ratelimit_app.connections.ConnectionFactory"
_SENTINEL_FACTORY = "ratelimit_app.connections.SentinelConnectionFactory"


def look() -> Iterator[checks.CheckMessage]:
    """E002 to E004, E011 to E015, W001, W002."""
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
    yield from _shards(alias, ours)
    for name in ("SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT"):
        if name in options:
            yield checks.Warning(
                f"CACHES[{alias!r}] sets {name}, which is not read.",
                hint='Use RATELIMIT_APP["TIMEOUT_SECONDS"] and ["CONNECT_TIMEOUT_SECONDS"].',
                id="ratelimit_app.W001",
            )
    here = _instances(ours.get("LOCATION"))
    sharing = [name for name, other in caches.items() if name != alias and here & _instances(other.get("LOCATION"))]
    if sharing:
        yield checks.Warning(
            f"The buckets share a Redis instance with {', '.join(map(repr, sharing))}: `clear()` or an eviction there "
            "hands every caller a full bucket.",
            hint="Give the limiter an instance of its own, with maxmemory-policy noeviction.",
            id="ratelimit_app.W002",
        )


def _shards(alias: str, ours: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    """What is wrong with a cluster's URL, or with sentinels."""
    options, url = ours.get("OPTIONS", {}), _first(ours.get("LOCATION"))
    by_sentinels = _is_ours(options.get("CONNECTION_FACTORY", ""), SentinelConnectionFactory)
    try:
        cluster = ClusterURL.parse(url)
    except ImproperlyConfigured as wrong:
        yield checks.Error(
            f"CACHES[{alias!r}]: {wrong}",
            hint='LOCATION is "redis+cluster://host:port,host:port/0".',
            id="ratelimit_app.E011",
        )
        return
    if cluster is not None and by_sentinels:
        yield checks.Error(
            f"CACHES[{alias!r}] names a cluster and sentinels.",
            hint=f'A cluster looks after its masters by itself: set CONNECTION_FACTORY to "{_FACTORY}".',
            id="ratelimit_app.E012",
        )
    if options.get("SENTINELS") and not by_sentinels:
        yield checks.Error(
            f"CACHES[{alias!r}] lists SENTINELS, which nobody asks: its connection factory is not the one for them.",
            hint=f'Set OPTIONS["CONNECTION_FACTORY"] to "{_SENTINEL_FACTORY}".',
            id="ratelimit_app.E013",
        )
    if by_sentinels and not _are_addresses(options.get("SENTINELS")):
        yield checks.Error(
            f"CACHES[{alias!r}] is to be found by sentinels, but does not list them.",
            hint='Set OPTIONS["SENTINELS"] to a list of (host, port), three of them at least.',
            id="ratelimit_app.E014",
        )
    elif by_sentinels and cluster is None and not re.match(r"rediss?://(?:[^@/]*@)?[^:/,]+(?:/|$)", url):
        yield checks.Error(
            f"CACHES[{alias!r}] is to be found by sentinels, but LOCATION is an address.",
            hint='LOCATION holds the name by which the sentinels know the master: "redis://mymaster/0".',
            id="ratelimit_app.E015",
        )


def _are_addresses(listed: Any) -> bool:
    return isinstance(listed, list | tuple) and bool(listed) and all(_is_address(each) for each in listed)


def _is_address(pair: Any) -> bool:
    return isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) and str(pair[1]).isdecimal()


def _is_ours(factory: str, kind: type[ConnectionFactory] = ConnectionFactory) -> bool:
    try:
        return issubclass(import_string(factory), kind)
    except (ImportError, TypeError):
        return False


def _first(location: Any) -> str:
    return str(location if isinstance(location, str) else next(iter(location or ()), ""))


def _instances(location: Any) -> set[str]:
    """The servers of a cache URL, without credentials, database number and parameters; none when not Redis."""
    match = re.match(r"(?:rediss?|unix|valkeys?)(?:\+cluster)?://(?:[^@/]*@)?([^/?]+|/[^?]*)", _first(location))
    if not match:
        return set()
    places = [place.replace("localhost", "127.0.0.1") for place in match[1].split(",")]
    return {place if place.startswith("/") or ":" in place else f"{place}:6379" for place in places}
