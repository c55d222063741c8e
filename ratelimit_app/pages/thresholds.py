"""From where on is something wrong? From where on alerts are told, so that a page and a message never disagree."""

from __future__ import annotations

from ratelimit_app import conf, stats


def blocked_percent() -> float:
    """Which share of all requests may be blocked; 0 when there is no such threshold."""
    return conf.current().alert_blocked_percent


def key_blocked_percent() -> float:
    """The same for each key by itself."""
    return conf.current().alert_key_blocked_percent


def least_requests() -> int:
    """With fewer requests than this, what one key is refused is no matter for everybody."""
    return conf.current().alert_min_requests


def budget_microseconds() -> int:
    """What the limiter may add to a request, at the 99th percentile; 0 when there is no such threshold."""
    return round(conf.current().alert_p99_seconds * 1_000_000)


def key_is_over(traffic: stats.Traffic) -> bool:
    """Whether a key that got this is worth a look."""
    percent = key_blocked_percent()
    return bool(percent) and traffic.checked >= least_requests() and exceeds(traffic, percent=percent)


def exceeds(traffic: stats.Traffic, *, percent: float) -> bool:
    """Whether more than a share was blocked."""
    # Whole numbers on both sides, as where the database compares.
    return traffic.blocked * 10_000 > traffic.checked * round(percent * 100)
