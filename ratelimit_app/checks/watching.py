"""Will people learn what happened? Statistics, alerts, metrics."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.core import checks
from django.db import connections as databases
from django.db import router

from ratelimit_app import conf, shipping
from ratelimit_app.addresses import is_network


def look() -> Iterator[checks.CheckMessage]:
    """E010, E020 to E026, W005, W015, W020."""
    yield from _alerts()
    yield from _metrics()
    yield from _retention()
    yield from _database()
    yield from _broker()


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
        if not is_network(network):
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
