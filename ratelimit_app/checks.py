"""What is set up wrong? System checks, each with an id and a hint; none contacts a server."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections as databases
from django.db import router
from django.utils.module_loading import import_string

from ratelimit_app import conf, shipping
from ratelimit_app.connections import ClusterURL, ConnectionFactory, SentinelConnectionFactory

TAG = "ratelimit"
_FACTORY = "ratelimit_app.connections.ConnectionFactory"
_SENTINEL_FACTORY = "ratelimit_app.connections.SentinelConnectionFactory"
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
    for check in (_cache, _proxies, _doors, _key_prefix, _alerts, _metrics, _retention, _database, _broker):
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


def _alerts() -> Iterator[checks.CheckMessage]:
    settings = conf.current()
    for name in ("ALERT_WEBHOOK_URL", "SITE_URL"):
        if (url := getattr(settings, name.lower())) and not _is_web_address(url):
            yield checks.Error(
                f"{name} is not a web address.",  # not shown: the address of a webhook is a secret
                hint='Something like "https://ops.example.com".',
                id="ratelimit_app.E020",
            )
    for address in settings.alert_emails:
        if not re.fullmatch(r"[^@\s]+@[^@\s]+", address):
            yield checks.Error(
                f"ALERT_EMAILS holds {address!r}, which is no address.",
                hint='Write addresses such as "on-call@example.com", without names.',
                id="ratelimit_app.E021",
            )
    for name in ("ALERT_BLOCKED_PERCENT", "ALERT_KEY_BLOCKED_PERCENT"):
        if getattr(settings, name.lower()) > 100:
            yield checks.Error(f"{name} is above 100.", hint="5 is five percent.", id="ratelimit_app.E022")
    soonest = settings.counts_flush_seconds + 60
    if settings.alert_late_seconds and settings.alert_late_seconds < soonest:
        yield checks.Error(
            f"ALERT_LATE_SECONDS is below {soonest:g}: what is on its way as it should be would be called late.",
            hint="300 is usual; counts leave a process every COUNTS_FLUSH_SECONDS.",
            id="ratelimit_app.E023",
        )
    if not _is_secret(settings.alert_webhook_secret):
        yield checks.Error(
            'ALERT_WEBHOOK_SECRET begins with "whsec_", but the rest is not base64.',
            hint="Copy it whole, or take another text, which is then used as it is.",
            id="ratelimit_app.E024",
        )
    if (settings.alert_emails or settings.alert_webhook_url) and not settings.site_url:
        yield checks.Warning(
            "Alerts are sent without a link to the overview.",
            hint='Set RATELIMIT_APP["SITE_URL"] to where people reach the admin, without "/admin".',
            id="ratelimit_app.W020",
        )


def _metrics() -> Iterator[checks.CheckMessage]:
    for network in conf.current().metrics_networks:
        if not _is_network(network):
            yield checks.Error(
                f"METRICS_NETWORKS holds {network!r}, which is not a network.",
                hint='Write addresses or networks such as "10.0.0.0/8".',
                id="ratelimit_app.E025",
            )
    path = conf.current().metrics_file
    if path and not os.path.isabs(path):
        yield checks.Error(
            "METRICS_FILE is not an absolute path: processes with another working directory would not find it.",
            hint='Something like "/run/shop/ratelimit-metrics.sqlite3".',
            id="ratelimit_app.E026",
        )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname)


def _is_secret(secret: str) -> bool:
    if not secret.startswith("whsec_"):
        return True
    try:
        return bool(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    except binascii.Error:
        return False


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


def _broker() -> Iterator[checks.CheckMessage]:
    seconds = shipping.redelivers_after_seconds()
    if seconds is not None and seconds <= shipping.LONGEST_PAUSE_SECONDS:
        yield checks.Warning(
            f"The broker delivers a batch again after {seconds:g} s, while a worker may hold it for "
            f"{shipping.LONGEST_PAUSE_SECONDS} s to wait for the database: an outage of that would multiply batches.",
            hint='Set CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 600}, or leave it at the default.',
            id="ratelimit_app.W015",
        )
