"""What is there to tell? The counts, how each process stands, and what is known of limits and alerts."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import Error as DatabaseError

from ratelimit_app import alerts, conf, fallback, limiter, plan_cache, usage
from ratelimit_app.models import Episode
from ratelimit_app.usage import sharing


@dataclass(frozen=True, slots=True)
class Reading:
    """What this process, or all of the machine that share a file, can tell."""

    #: See `usage.Series`.
    counts: Mapping[usage.Series, float]
    #: How each process stands, by the names in `own_gauges`.
    processes: tuple[Mapping[str, float], ...]
    #: The plan of each limit, by its id as text.
    plan_slugs: Mapping[str, str]
    #: Open alerts by kind; None when the database does not answer.
    open_alerts: Mapping[str, int] | None
    #: When alerts were last evaluated; None when nobody knows, or they never were.
    evaluated_at: datetime | None


def read() -> Reading:
    """Tell what there is. Works without Redis and without the database, which then is not told of."""
    path = conf.current().metrics_file
    counts, processes = (usage.totals(), [own_gauges()]) if not path else _shared(path)
    try:
        kinds = Episode.objects.filter(ended_at=None).values_list("kind", flat=True)
        open_alerts, evaluated_at = Counter(kinds), alerts.evaluated_at()
    except DatabaseError:
        open_alerts, evaluated_at = None, None
    return Reading(counts, tuple(processes), _plan_slugs(), open_alerts, evaluated_at)


def own_gauges() -> dict[str, float]:
    """How this process stands. From memory."""
    state = usage.state()
    plans = plan_cache.version_and_age()
    gauges = {
        "breaker_open": float(limiter.breaker_is_open()),
        "records": state.records,
        "rows": state.rows,
        "batches": state.batches,
        "shipping_failing": float(state.failures > 0),
        "gateways": fallback.fleet_size(),
    }
    return gauges if plans is None else gauges | {"plan_version": plans[0], "plan_age_seconds": plans[1]}


def _shared(path: str) -> tuple[Mapping[usage.Series, float], list[dict[str, float]]]:
    try:
        return sharing.read(path)
    except sqlite3.Error:
        return {}, []  # said in the log by those who cannot write


def _plan_slugs() -> dict[str, str]:
    try:
        table = plan_cache.table()
    except DatabaseError:
        return {}
    slugs = {plan_id: slug for slug, plan_id in table.slugs.items()}
    named = {str(limit.id): slugs.get(plan_id, "") for plan_id, limits in table.limits.items() for limit in limits}
    return named | {str(limit.id): "" for limit in table.everyone}
