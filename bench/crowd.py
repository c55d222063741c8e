"""How full are the tables that pages are measured on? So many keys and minutes, as traffic would have left them.

In the last hour every key sends in every minute; before, back to two midnights ago, some do, others
every ten minutes. Hours and days before that are written as the roll-up would have left them; what is
younger, the real roll-up sums up. PostgreSQL reckons the rows itself, so that nothing is sent to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

PLANS = ("Free", "Pro", "Business")
#: Redis was gone for four minutes; so many processes told of it, as often as this within the last days.
_OUTAGE_MINUTES_AGO, _GATEWAYS, _OUTAGES = 30, 40, 50
_VERSIONS = 200
_TURN_SECONDS = 600
_LARGE = tuple(f"{fact}{span}" for fact in ("usage", "refusal") for span in ("minute", "hour", "day"))
_HOURS_KEPT, _DAYS_SHOWN = timedelta(days=35), timedelta(days=60)
_COUNTS = "allowed, refused, would_refuse, unchecked, failed_closed, local"
#: A fiftieth of the keys is refused a sixth of what it sends; a limit on trial would refuse a twentieth of one plan's.
_COUNTED = f"""
    50, CASE WHEN k %% 50 = 0 THEN 10 ELSE 0 END,
    CASE WHEN k %% 60 = 0 THEN 3 ELSE 0 END,
    CASE WHEN at > now() - interval '{_OUTAGE_MINUTES_AGO} min'
          AND at < now() - interval '{_OUTAGE_MINUTES_AGO - 4} min' THEN 7 ELSE 0 END, 0, 0"""


def fill(*, keys: int, minutes: int) -> None:
    """Write so many keys and about so many of the rows that count a key's minute, and all that belongs to them."""
    now = timezone.now()
    since = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    with _without_indexes():
        _write_keys(keys)
        _write_usage(keys, minutes, since=since, now=now)
        for span in ("minute", "hour", "day"):
            _write_limits_and_totals(span)
            _write_times(span, since=since, now=now)
        _write_the_rest(now=now)
    _run("VACUUM ANALYZE")
    _roll_up(since=since)
    _run("VACUUM ANALYZE")


def _write_keys(keys: int) -> None:
    from ratelimit_app.models import Plan

    for name in PLANS:
        plan = Plan.objects.create(name=name, slug=name.lower())
        plan.limits.create(name=plan.slug, requests=60, period_seconds=60, burst=20)
        plan.limits.create(name=f"{plan.slug}-trial", requests=30, period_seconds=60, burst=20, mode="shadow")
    _run(
        "INSERT INTO ratelimit_app_apikey (plan_id, name, public_id, digest, bucket_identity, created_at,"
        " revoked_reason, boost_factor, boost_reason, expires_at)"
        " SELECT 1 + k %% 3, 'key ' || k, 'pub' || lpad(k::text, 9, '0'), decode(lpad(to_hex(k), 64, '0'), 'hex'),"
        " 'id' || lpad(k::text, 10, '0'), now(), '', 1, '',"
        " CASE WHEN k %% 10 = 0 THEN now() + interval '7 days' END FROM generate_series(0, %s) k",
        [keys - 1],
    )
    _run("INSERT INTO ratelimit_app_keyuse (key_id, last_used_at) SELECT id, now() FROM ratelimit_app_apikey")


def _write_usage(keys: int, minutes: int, *, since: datetime, now: datetime) -> None:
    busy_since = now.replace(second=0, microsecond=0) - timedelta(minutes=59)
    each_minute = max(1, (minutes - 60 * keys) // int((busy_since - since).total_seconds() // 60))
    each_hour = min(keys, 3600 // _TURN_SECONDS * each_minute)
    _use("minute", busy_since, now, senders=keys, of=keys)
    _use("minute", since, busy_since, senders=each_minute, of=keys)
    _use("hour", since - _HOURS_KEPT, since, senders=each_hour, of=keys, turn_seconds=3600)
    _use("day", since - _DAYS_SHOWN, since, senders=min(keys, 24 * each_hour), of=keys, turn_seconds=86_400)


def _use(
    span: str, start: datetime, end: datetime, *, senders: int, of: int, turn_seconds: int = _TURN_SECONDS
) -> None:
    """So many keys send in each minute, hour or day, and others at the next turn."""
    _run(
        f"INSERT INTO ratelimit_app_usage{span} ({span}, identity, plan_id, {_COUNTS})"
        f" SELECT at, 'id' || lpad(k::text, 10, '0'), 1 + k %% 3, {_COUNTED}"
        " FROM (SELECT at, (extract(epoch FROM at)::bigint / %s * %s + n) %% %s AS k"
        f" FROM generate_series(%s, %s - interval '1 second', interval '1 {span}') at, generate_series(0, %s) n) sent",
        [turn_seconds, senders, of, start, end, senders - 1],
    )


def _write_limits_and_totals(span: str) -> None:
    """What the limits did, by key and all together, follows from what the keys got. Ids are those of `_write_keys`."""
    for limit, columns, condition in (
        ("2 * plan_id - 1", "refused, 0, unchecked, 0, 0", "refused > 0 OR unchecked > 0"),
        ("2 * plan_id", "0, would_refuse, 0, 0, 0", "would_refuse > 0"),
    ):
        _run(
            f"INSERT INTO ratelimit_app_refusal{span} ({span}, identity, limit_id, route,"
            f" refused, would_refuse, unchecked, failed_closed, local) SELECT {span}, identity, {limit},"
            f" CASE WHEN unchecked > 0 THEN '' ELSE 'api-' || right(identity, 1) END, {columns}"
            f" FROM ratelimit_app_usage{span} WHERE {condition}"
        )
    for total, source, key, counts in (
        ("plan", "usage", "plan_id", _COUNTS),
        ("limit", "refusal", "limit_id, route", "refused, would_refuse, unchecked, failed_closed, local"),
    ):
        added_up = ", ".join(f"sum({column})" for column in counts.split(", "))
        _run(
            f"INSERT INTO ratelimit_app_{total}{span} ({span}, {key}, {counts})"
            f" SELECT {span}, {key}, {added_up} FROM ratelimit_app_{source}{span} GROUP BY {span}, {key}"
        )


def _write_times(span: str, *, since: datetime, now: datetime) -> None:
    start, end = {
        "minute": (since, now),
        "hour": (since - _HOURS_KEPT, since),
        "day": (since - _DAYS_SHOWN, since),
    }[span]
    _run(
        f"INSERT INTO ratelimit_app_decision{span} ({span}, at_most_microseconds, decisions)"
        f" SELECT at, most, 1000 FROM generate_series(%s, %s, interval '1 {span}') at,"
        " unnest(ARRAY[100, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000]) most",
        [start, end - timedelta(seconds=1)],
    )


def _write_the_rest(*, now: datetime) -> None:
    """Refusals in full, batches, outages, alerts and versions of plans."""
    from ratelimit_app.models import PlanVersion

    _run(
        "INSERT INTO ratelimit_app_refusal (receipt, at, identity, key_id, plan_id, limit_id, limit_name, route,"
        " method, address, cost, retry_after_seconds) SELECT gen_random_uuid(), now() - n * interval '10 seconds',"
        " bucket_identity, id, plan_id, 2 * plan_id - 1, 'free', 'api-1', 'GET', '203.0.113.9', 1, 7"
        " FROM (SELECT *, row_number() OVER () AS n FROM ratelimit_app_apikey WHERE id %% 50 = 1) refused,"
        " generate_series(1, 100)"
    )
    _run(
        "INSERT INTO ratelimit_app_batch (id, received_at)"
        " SELECT gen_random_uuid(), now() - n * interval '5 seconds' FROM generate_series(0, 100000) n"
    )
    _run(
        "INSERT INTO ratelimit_app_outagespan (gateway, server, started_at, error, last_seen_at, ended)"
        " SELECT 'gateway ' || gateway, '', at + gateway * interval '20 ms', 'timeout', at + interval '4 min', 1"
        " FROM (SELECT %s - n * interval '11 hours' AS at FROM generate_series(0, %s) n) began,"
        " generate_series(1, %s) gateway",
        [now - timedelta(minutes=_OUTAGE_MINUTES_AGO), _OUTAGES - 1, _GATEWAYS],
    )
    _run(
        "INSERT INTO ratelimit_app_episode (kind, subject, started_at, ended_at, bad_until, worst, threshold, note,"
        " acknowledged_by) SELECT 'key_blocked', bucket_identity, now() - n * interval '1 min',"
        " CASE WHEN n > 20 THEN now() - (n - 1) * interval '1 min' END, now(), 17, 5, '', ''"
        " FROM (SELECT *, row_number() OVER () AS n FROM ratelimit_app_apikey) k WHERE n <= 5000"
    )
    versions = [
        PlanVersion(plan_id=first.plan_id, number=100 + n, at=now, who="ann", limits=first.limits)
        for first in PlanVersion.objects.filter(number=1)
        for n in range(_VERSIONS)
    ]
    PlanVersion.objects.bulk_create(versions)


def _roll_up(*, since: datetime) -> None:
    """Let the real one sum up what is younger than the hours and days that were written."""
    from ratelimit_app import recording
    from ratelimit_app.models import Frontier

    kept_since = since - _HOURS_KEPT
    for resolution, purged_until in (("hour", since), ("day", kept_since)):
        Frontier.objects.create(
            resolution=resolution, rolled_until=int(since.timestamp()), purged_until=int(purged_until.timestamp())
        )
    recording.roll_up()


@contextmanager
def _without_indexes() -> Iterator[None]:
    """Indexes of the large tables are not kept up while rows are written, but made anew at the end: far sooner."""
    tables = [f"ratelimit_app_{table}" for table in _LARGE]
    _run(
        "UPDATE pg_index SET indisready = false, indisvalid = false"
        " WHERE indrelid = ANY (SELECT oid FROM pg_class WHERE relname = ANY (%s))",
        [tables],
    )
    yield
    for table in tables:
        _run(f"REINDEX TABLE {table}")


def _run(statement: str, parameters: Sequence[Any] = ()) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
