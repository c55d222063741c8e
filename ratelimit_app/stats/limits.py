"""Which limits refused, on which routes, and whom?"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from ratelimit_app.models import APIKey, PlanLimit
from ratelimit_app.resolutions import LIMITS, REFUSALS, Fact
from ratelimit_app.stats.callers import newest_keys
from ratelimit_app.stats.rows import Selection, sums
from ratelimit_app.stats.windows import Window


@dataclass(frozen=True, slots=True)
class LimitTraffic:
    """What one limit did in a window."""

    limit_id: int
    #: None when the limit was deleted since.
    limit: PlanLimit | None
    blocked: int
    would_block: int
    #: Requests let through that it could not weigh, because Redis could not be asked.
    unchecked: int
    #: Requests answered 503, because Redis could not be asked and this limit says "closed".
    failed_closed: int
    #: Requests that it weighed in memory, because Redis could not be asked.
    local: int


@dataclass(frozen=True, slots=True)
class RouteTraffic:
    """What limits refused on one route in a window."""

    route: str
    blocked: int
    would_block: int


@dataclass(frozen=True, slots=True)
class CallerOfLimit:
    """What one limit did to one caller in a window."""

    identity: str
    #: The newest key with this identity, or None.
    key: APIKey | None
    blocked: int
    would_block: int
    unchecked: int
    failed_closed: int
    local: int


def by_limit(within: Window, *, identity: str | None = None) -> tuple[LimitTraffic, ...]:
    """What each limit did to all callers, or to one; most blocked first."""
    counts = _added_up(within, "limit_id", identity=identity)
    limits = PlanLimit.objects.select_related("plan").in_bulk(list(counts))
    found = [
        LimitTraffic(limit_id=limit_id, limit=limits.get(limit_id), **_outcomes(count))
        for limit_id, count in counts.items()
    ]
    return tuple(sorted(found, key=lambda row: (-row.blocked, -row.would_block, row.limit_id)))


def by_route(
    within: Window, *, limit_id: int | None = None, identity: str | None = None, limit: int = 20
) -> tuple[RouteTraffic, ...]:
    """On which routes was refused, most first; of one limit, or one caller, when named."""
    of_limit: dict[str, Any] = {} if limit_id is None else {"limit_id": limit_id}
    counts = _added_up(within, "route", identity=identity, **of_limit)
    found = [
        RouteTraffic(route=route, blocked=count["refused"], would_block=count["would_refuse"])
        for route, count in counts.items()
        if count["refused"] or count["would_refuse"]
    ]
    return tuple(sorted(found, key=lambda row: (-row.blocked, -row.would_block, row.route))[:limit])


def callers_of_limit(
    within: Window,
    *,
    limit_id: int,
    by: Literal["refused", "would_refuse", "unchecked", "failed_closed", "local"] = "refused",
    limit: int = 20,
) -> tuple[CallerOfLimit, ...]:
    """To whom did one limit do something, those first to whom it did most. Raises ValueError for another column."""
    if by not in REFUSALS.values:  # it becomes part of a statement
        raise ValueError(f"{by!r} is not counted by limit.")
    selection = Selection(REFUSALS, within)
    rows, parameters = selection.table("identity", by, where={"limit_id": limit_id}, only=[by])
    ranked = selection.fetch(
        f"SELECT identity, SUM({by}) AS total FROM {rows} AS hit "  # noqa: S608 (names are the models' own)
        "GROUP BY identity ORDER BY total DESC, identity LIMIT %s",
        [*parameters, limit],
    )
    identities = [identity for identity, _total in ranked]
    counts = _added_up(within, "identity", fact=REFUSALS, limit_id=limit_id, identity__in=identities)
    keys = newest_keys(identities)
    return tuple(
        CallerOfLimit(identity=identity, key=keys.get(identity), **_outcomes(counts[identity]))
        for identity in identities
    )


def _added_up(
    within: Window, column: str, *, identity: str | None = None, fact: Fact = LIMITS, **filters: Any
) -> dict[Any, Counter[str]]:
    if identity is not None:
        fact, filters = REFUSALS, {**filters, "identity": identity}
    found: defaultdict[Any, Counter[str]] = defaultdict(Counter)
    for row in sums(fact, within, by=[column], **filters):
        found[row[column]].update({value: row[value] for value in fact.values})
    return found


def _outcomes(count: Counter[str]) -> dict[str, int]:
    return {
        "blocked": count["refused"],
        "would_block": count["would_refuse"],
        "unchecked": count["unchecked"],
        "failed_closed": count["failed_closed"],
        "local": count["local"],
    }
