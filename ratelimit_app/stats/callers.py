"""Who was hurt most, and how many keys were?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, QuerySet

from ratelimit_app import resolutions
from ratelimit_app.models import APIKey, KeyUse, UsageMinute
from ratelimit_app.models.usage import OVERFLOW
from ratelimit_app.resolutions import USAGE
from ratelimit_app.stats.rows import LAST, Selection, sums
from ratelimit_app.stats.traffic import Traffic, outcomes
from ratelimit_app.stats.windows import Window

#: The identity of callers without a key.
NO_KEY = ""
#: The identity of all that no longer fitted into a buffer.
OTHERS = OVERFLOW
#: So many keys over a share are counted; those that were blocked most, so more than this are a few thousand at least.
MOST_OVER = 5_000
#: When fewer were blocked than a page shows, the rest of its callers are looked for in so many recent rows.
_RECENT_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class CallerTraffic:
    """What one caller got in a window."""

    #: The key's bucket identity, "" for callers without a key, "*" for what overflowed a buffer.
    identity: str
    traffic: Traffic
    #: What it got in the span of the same length before.
    before: Traffic
    #: When the minute, hour or day of the last refusal began, or None when nothing was refused.
    last_blocked_at: datetime | None
    #: The newest key with this identity, or None: no key, the overflow, or a deleted key.
    key: APIKey | None


def top_callers(within: Window, *, limit: int = 20, plan_id: int | None = None) -> tuple[CallerTraffic, ...]:
    """The callers that were blocked most; when they are few, also some that were not, those that sent most first."""
    filters = {} if plan_id is None else {"plan_id": plan_id}
    identities = sample(within, limit=limit, plan_id=plan_id)
    now = _by_caller(within, identities, filters)
    before = _by_caller(within.before, identities, filters)
    keys = newest_keys(identities)
    found = [
        CallerTraffic(
            identity=identity,
            traffic=now[identity].as_traffic(within),
            before=before[identity].as_traffic(within.before),
            last_blocked_at=now[identity].last_blocked_at,
            key=keys.get(identity),
        )
        for identity in identities
    ]
    found.sort(key=lambda row: (-row.traffic.blocked, -row.traffic.allowed, row.identity))
    return tuple(found[:limit])


def sample(within: Window, *, limit: int, plan_id: int | None = None) -> list[str]:
    """Some callers: those blocked most, and when they are few, also those that sent most of late."""
    filters = {} if plan_id is None else {"plan_id": plan_id}
    blocked = _most_blocked(within, limit=limit, filters=filters)
    return blocked + _recently_active(within, limit=limit, besides=blocked, filters=filters)


def newest_keys(identities: Iterable[str]) -> dict[str, APIKey]:
    """The newest key of each identity that has one, with its plan."""
    known = [identity for identity in identities if identity not in (NO_KEY, OTHERS)]
    keys = APIKey.objects.filter(bucket_identity__in=known).select_related("plan").order_by("pk")
    return {key.bucket_identity: key for key in keys}


def keys_over(within: Window, *, percent: float, least_requests: int = 1, plan_id: int | None = None) -> int:
    """How many keys that sent so much were blocked more than `percent` of it; counted up to `MOST_OVER`.

    A key sent what was checked of it: what was let through without Redis does not count.
    """
    where = {} if plan_id is None else {"plan_id": plan_id}
    selection = Selection(USAGE, within)
    blocked, blocked_parameters = selection.table("identity", "allowed", "refused", where=where, only=["refused"])
    everything, parameters = selection.table("allowed", where=where, same="identity = suspect.identity")
    # Whole numbers on both sides: a share in floats would depend on the database.
    over = round(percent * 100)
    # Who was not over the share where it was blocked was not over it altogether; of the others each is looked up,
    # once: the second LIMIT keeps PostgreSQL from looking up for each comparison.
    [(keys,)] = selection.fetch(
        "SELECT COUNT(*) FROM (SELECT suspect.refused AS refused, "  # noqa: S608 (names are the models' own)
        f"(SELECT SUM(allowed) FROM {everything} AS everything) AS allowed FROM "
        "(SELECT identity, SUM(refused) AS refused "
        f"FROM {blocked} AS blocked WHERE identity NOT IN (%s, %s) GROUP BY identity "
        "HAVING SUM(refused) * %s > SUM(allowed) * %s AND SUM(refused) * 10000 > %s "
        "ORDER BY SUM(refused) DESC LIMIT %s) AS suspect LIMIT %s) AS known "
        "WHERE refused * %s > allowed * %s AND refused + allowed >= %s",
        [
            *(*parameters, *blocked_parameters, NO_KEY, OTHERS),
            *(10_000 - over, over, over * least_requests, MOST_OVER, MOST_OVER),
            *(10_000 - over, over, least_requests),
        ],
    )
    return int(keys)


def keys_active(within: Window, *, plan_id: int | None = None) -> int:
    """How many keys sent anything."""
    if _ends_now(within):
        # The keys know when they were last used; counting them among all rows would take seconds.
        used = _used_since(within)
        if plan_id is not None:
            used = used.filter(key_id__in=APIKey.objects.filter(plan=plan_id).values("pk"))
        return used.count()
    selection = Selection(USAGE, within)
    rows, parameters = selection.table("identity", where={} if plan_id is None else {"plan_id": plan_id})
    [(active,)] = selection.fetch(
        # Not COUNT(DISTINCT identity), which PostgreSQL sorts all rows for.
        f"SELECT COUNT(*) FROM (SELECT identity FROM {rows} AS counted WHERE identity NOT IN (%s, %s) "  # noqa: S608 (names are the models' own)
        "GROUP BY identity) AS active",
        [*parameters, NO_KEY, OTHERS],
    )
    return int(active)


def keys_active_by_plan(within: Window) -> Counter[int]:
    """How many keys of each plan sent anything, by the plan's id."""
    if _ends_now(within):
        keys = APIKey.objects.filter(pk__in=_used_since(within).values("key_id")).order_by()
        return Counter(dict(keys.values_list("plan_id").annotate(Count("pk"))))
    selection = Selection(USAGE, within)
    rows, parameters = selection.table("plan_id", "identity")
    found = selection.fetch(
        f"SELECT plan_id, COUNT(*) FROM (SELECT plan_id, identity FROM {rows} AS counted "  # noqa: S608 (names are the models' own)
        "WHERE identity NOT IN (%s, %s) GROUP BY plan_id, identity) AS active GROUP BY plan_id",
        [*parameters, NO_KEY, OTHERS],
    )
    return Counter({int(plan_id): int(active) for plan_id, active in found})


def _ends_now(within: Window) -> bool:
    return within.end > datetime.now(UTC)


def _used_since(within: Window) -> QuerySet[KeyUse]:
    return KeyUse.objects.filter(last_used_at__gte=resolutions.moment(within.start.timestamp()))


@dataclass(slots=True)
class _Sum:
    """What one caller got, added up over pieces of time."""

    counts: Counter[str] = field(default_factory=Counter)
    last_blocked_at: datetime | None = None

    def as_traffic(self, within: Window) -> Traffic:
        return Traffic(at=within.start, **self.counts)


def _by_caller(within: Window, identities: list[str], filters: dict[str, Any]) -> dict[str, _Sum]:
    found = {identity: _Sum() for identity in identities}
    for row in sums(USAGE, within, by=["identity"], last="refused", identity__in=identities, **filters):
        caller = found[row["identity"]]
        caller.counts.update(outcomes(row))
        if row[LAST] and (caller.last_blocked_at is None or row[LAST] > caller.last_blocked_at):
            caller.last_blocked_at = row[LAST]
    return found


def _most_blocked(within: Window, *, limit: int, filters: dict[str, Any]) -> list[str]:
    selection = Selection(USAGE, within)
    rows, parameters = selection.table("identity", "refused", where=filters, only=["refused"])
    found = selection.fetch(
        f"SELECT identity, SUM(refused) AS total FROM {rows} AS blocked "  # noqa: S608 (names are the models' own)
        "GROUP BY identity ORDER BY total DESC, identity LIMIT %s",
        [*parameters, limit],
    )
    return [identity for identity, _total in found]


def _recently_active(within: Window, *, limit: int, besides: list[str], filters: dict[str, Any]) -> list[str]:
    """Not by all rows of the window, which may be millions: by the newest ones, as far as minutes are kept."""
    rows = (
        UsageMinute.objects.filter(minute__gte=within.start, minute__lt=within.end, **filters)
        .order_by("-minute", "-identity")
        .values_list("identity", "allowed")[:_RECENT_ROWS]
    )
    sent: Counter[str] = Counter()
    for identity, allowed in rows:
        sent[identity] += allowed
    ranked = sorted(sent, key=lambda identity: (-sent[identity], identity))
    return [identity for identity in ranked if identity not in besides][: limit - len(besides)]
