"""What is going on with one key? Who it is, its buckets right now, what it got over time, and why it was refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _

from ratelimit_app import conf, connections, limiter, stats
from ratelimit_app.limits import Weighed
from ratelimit_app.models import APIKey, KeyUse
from ratelimit_app.pages import drawings, key_state, receipt, tables, thresholds
from ratelimit_app.pages.chart import chart
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import grouped, percent, shown_as
from ratelimit_app.stats import keys as key_stats

_REFUSALS = 50
_MATES = 20


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One bucket of the key, right now."""

    name: str
    scope: str
    mode: str
    tokens: int
    capacity: int
    #: As people read it: "17 of 20".
    text: str
    #: When one more token is there: "3 s", or that it is full.
    next_token: str
    full_in: str
    is_out: bool


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One of the keys that share a bucket."""

    pk: int
    name: str
    shown_as: str
    state: str
    notes: list[str]
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    is_this: bool


def with_use(keys: Any) -> Any:
    """Keys with `used_at`, when each was last used."""
    uses = KeyUse.objects.filter(key_id=OuterRef("pk"))
    return keys.annotate(used_at=Subquery(uses.values("last_used_at")[:1]))


@stats.one_look()
def page(key: APIKey, chosen: Selection, *, shows_refusals: bool) -> dict[str, Any]:
    """What the page of a key shows. The same few queries however busy it is.

    The parameter `receipt` of the URL is the receipt of a refusal to explain.
    """
    window, now = chosen.window, chosen.now
    buckets = stats.traffic(window, identity=key.bucket_identity)
    sums = stats.total(buckets, at=window.start)
    mates = list(with_use(APIKey.objects.sharing_bucket_with(key)).order_by("-pk")[:_MATES])[::-1]
    levels, problem = _levels(key)
    wanted = chosen.parameters.get("receipt", "")
    refusals = key_stats.recent_refusals(key.bucket_identity, limit=_REFUSALS) if shows_refusals else ()
    return {
        "key": key,
        "shown_as": shown_as(key.public_id),
        "state": key_state.state(key),
        "notes": key_state.notes(key, mates),
        "used_at": key.last_used_at,
        "mates": [_key_row(mate, mates, this=key) for mate in reversed(mates)] if len(mates) > 1 else [],
        "levels": levels,
        "levels_problem": problem,
        "mode": conf.current().mode,
        "charts": {
            "requests": drawings.requests_chart(window, buckets, (), now=now),
            "share": drawings.share_chart(window, buckets, percent=thresholds.key_blocked_percent(), now=now),
        },
        "drawing": chart(window, buckets, sums),
        "spans": tables.span_rows(chosen, buckets),
        "figures": _figures(sums),
        "routes": [
            (row, row.limit_name or _("a deleted limit"), grouped(row.blocked), grouped(row.would_block))
            for row in key_stats.refusals_by_route(key.bucket_identity, window)
        ],
        "shows_refusals": shows_refusals,
        "refusals": [
            (refusal, receipt.waiting(refusal), chosen.link(receipt=str(refusal.receipt)) + "#rl-receipt-title")
            for refusal in refusals
        ],
        "explanation": receipt.explain(wanted, key=key) if wanted.strip() and shows_refusals else None,
    }


def _levels(key: APIKey) -> tuple[list[BucketRow], str]:
    if not key.usable:
        return [], ""
    try:
        return [_bucket_row(weighed) for weighed in limiter.levels(key.as_caller())], ""
    except connections.Unavailable as failure:
        return [], failure.reason


def _bucket_row(weighed: Weighed) -> BucketRow:
    limit, level = weighed.limit, weighed.level
    full_seconds = -(-level.full_ticks // 10_000_000)
    return BucketRow(
        name=limit.name,
        scope=limit.scope,
        mode=limit.mode,
        tokens=level.remaining,
        capacity=limit.capacity,
        text=_("%(tokens)s of %(capacity)s")
        % {"tokens": grouped(level.remaining), "capacity": grouped(limit.capacity)},
        next_token=_seconds(weighed.next_token_seconds) if level.next_ticks else _("it is full"),
        full_in=_seconds(full_seconds) if full_seconds else _("it is full"),
        is_out=level.remaining == 0,
    )


def _seconds(seconds: int) -> str:
    return _("%(seconds)s s") % {"seconds": grouped(seconds)}


def _key_row(mate: Any, mates: list[Any], *, this: APIKey) -> KeyRow:
    return KeyRow(
        pk=mate.pk,
        name=mate.name,
        shown_as=shown_as(mate.public_id),
        state=key_state.state(mate),
        notes=key_state.notes(mate, mates),
        created_at=mate.created_at,
        expires_at=mate.expires_at,
        used_at=mate.used_at,
        is_this=mate.pk == this.pk,
    )


def _figures(sums: stats.Traffic) -> list[tuple[str, int, str, str]]:
    """(label, as machines read it, as people read it, detail) of each."""
    undecided = sums.unchecked + sums.failed_closed + sums.local
    return [
        (_("Allowed"), sums.allowed, grouped(sums.allowed), _("requests")),
        (_("Blocked"), sums.blocked, grouped(sums.blocked), percent(sums.blocked_share)),
        (_("Would have been blocked"), sums.would_block, grouped(sums.would_block), _("by limits in shadow")),
        (
            _("Decided without Redis"),
            undecided,
            grouped(undecided),
            _("%(unchecked)s unchecked, %(closed)s answered 503, %(local)s from memory")
            % {
                "unchecked": grouped(sums.unchecked),
                "closed": grouped(sums.failed_closed),
                "local": grouped(sums.local),
            },
        ),
    ]
