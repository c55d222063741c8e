"""Will callers be told apart, and told what they must know? Proxies, middleware, the form of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.core import checks

from ratelimit_app import conf
from ratelimit_app.addresses import is_network

_MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"
_THROTTLE = "ratelimit_app.throttling.PlanThrottle"
_CORS = "corsheaders.middleware.CorsMiddleware"


def look() -> Iterator[checks.CheckMessage]:
    """E005 to E009, W003, W004."""
    yield from _proxies()
    yield from _middleware()
    yield from _key_prefix()


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
        if network != "unix" and not is_network(network):
            yield checks.Error(
                f"TRUSTED_PROXIES holds {network!r}, which is not a network.",
                hint='Write addresses or networks such as "10.0.0.0/8", or "unix".',
                id="ratelimit_app.E007",
            )
    if not 1 <= settings.ipv6_prefix <= 128:
        yield checks.Error("IPV6_PREFIX must be from 1 to 128.", hint="64 is usual.", id="ratelimit_app.E008")


def _middleware() -> Iterator[checks.CheckMessage]:
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
