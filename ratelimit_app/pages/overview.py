"""What do the people on call see? The overview: figures, a chart, the callers that are hurt.

Times are UTC throughout, since the rows are and on-call people compare servers. Numbers that
machines read (coordinates, attributes, links) are left as they are; those for people are grouped
the way their language does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import django
from django.contrib.admin import AdminSite
from django.db.models import Model
from django.db.models.options import Options
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ratelimit_app import conf, stats
from ratelimit_app.models import APIKey, Plan
from ratelimit_app.pages.chart import chart
from ratelimit_app.pages.text import grouped, percent, shown_as
from ratelimit_app.usage import LATENCY_BOUNDS

DEFAULT_RANGE = "1h"
RANGE_LABELS = {
    "15m": gettext_lazy("15 min"),
    "1h": gettext_lazy("1 h"),
    "6h": gettext_lazy("6 h"),
    "24h": gettext_lazy("24 h"),
    "7d": gettext_lazy("7 d"),
    "30d": gettext_lazy("30 d"),
}
#: A key that is blocked for more than this share of its requests is worth a look.
PERCENT_BLOCKED = 5
#: Counts leave each process every ten seconds: no news for this long means no traffic, or a fault.
LATE_AFTER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Figure:
    """One number at the top of the page."""

    label: str
    #: As people read it.
    text: str
    #: As machines read it.
    value: float
    detail: str
    #: "good", "bad" or "quiet": only the colour of an edge, never the only sign.
    tone: str = "quiet"


@dataclass(frozen=True, slots=True)
class CallerRow:
    """One line of the table of callers."""

    name: str
    #: How the key is known, as `rl_live_7Kq2mB0xTn4e…`; "" when it is no key.
    shown_as: str
    plan: str
    #: For the link to the key, or None where there is nothing to see.
    key_pk: int | None
    traffic: stats.Traffic
    allowed: str
    blocked: str
    unchecked: str
    share: str
    is_over: bool
    last_blocked_at: datetime | None


@dataclass(frozen=True, slots=True)
class ShadowRow:
    """One line of the table of limits in shadow."""

    name: str
    plan: str
    plan_pk: int | None
    #: Whether it still is in shadow.
    mode: str
    would_block: str


@dataclass(frozen=True, slots=True)
class OutageRow:
    """One line of the table of outages."""

    outage: stats.Outage
    errors: str
    #: "" where there is one server.
    servers: str
    gateways: str
    unchecked: str
    failed_closed: str
    local: str


def overview(request: HttpRequest, *, admin_site: AdminSite, opts: Options[Model]) -> TemplateResponse:
    """The page. Costs the same few queries however many keys there are."""
    chosen = stats.RANGES.get(request.GET.get("range", ""), stats.RANGES[DEFAULT_RANGE])
    now = datetime.now(UTC)
    window = stats.window(chosen, now=now)
    buckets = stats.traffic(window)
    sums = stats.total(buckets, at=window.start)
    newest = stats.newest_data_at()
    context: dict[str, Any] = {
        **admin_site.each_context(request),
        "opts": opts,
        "title": _("Rate limit overview"),
        "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
        "ranges": [(slug, label, slug == chosen.slug) for slug, label in RANGE_LABELS.items()],
        "range_label": RANGE_LABELS[chosen.slug],
        "longest_range": list(RANGE_LABELS)[-1],
        "mode": conf.current().mode,
        "newest": newest and newest.astimezone(UTC),
        "late": newest is not None and (now - newest).total_seconds() > LATE_AFTER_SECONDS,
        "as_of": now,
        "is_empty": not (sums.checked or sums.unchecked or sums.failed_closed),
        "dropped": [(kind, grouped(count)) for kind, count in stats.dropped(window)],
        "figures": _figures(window, sums),
        "chart": chart(window, buckets, sums),
        "callers": [_caller_row(caller) for caller in stats.top_callers(window)],
        "percent_blocked": PERCENT_BLOCKED,
        "shadow_limits": [_shadow_row(limit) for limit in stats.shadow_limits(window)],
        "outages": [_outage_row(outage) for outage in stats.outages(window, now=now, limit=5)],
        "links_keys": _can_open(request, admin_site, APIKey),
        "links_plans": _can_open(request, admin_site, Plan),
    }
    request.current_app = admin_site.name  # as ModelAdmin's own views do
    return TemplateResponse(request, "admin/ratelimit_app/overview.html", context)


def _can_open(request: HttpRequest, admin_site: AdminSite, model: type[Model]) -> bool:
    return admin_site.is_registered(model) and admin_site.get_model_admin(model).has_view_permission(request)


def _caller_row(caller: stats.CallerTraffic) -> CallerRow:
    traffic, key = caller.traffic, caller.key
    if key is not None:
        name = key.name
    elif caller.identity == stats.NO_KEY:
        name = _("no key")
    elif caller.identity == stats.OTHERS:
        name = _("other (overflow)")
    else:
        name = _("a deleted key")
    return CallerRow(
        name=name,
        shown_as=shown_as(key.public_id) if key else "",
        plan=key.plan.name if key else "",
        key_pk=key.pk if key else None,
        traffic=traffic,
        allowed=grouped(traffic.allowed),
        blocked=grouped(traffic.blocked),
        unchecked=grouped(traffic.unchecked),
        share=percent(traffic.blocked_share),
        is_over=traffic.blocked * 100 > traffic.checked * PERCENT_BLOCKED,
        last_blocked_at=caller.last_blocked_at,
    )


def _outage_row(outage: stats.Outage) -> OutageRow:
    return OutageRow(
        outage=outage,
        errors=", ".join(outage.errors),
        servers=", ".join(filter(None, outage.servers)),
        gateways=grouped(outage.gateways),
        unchecked=grouped(outage.unchecked),
        failed_closed=grouped(outage.failed_closed),
        local=grouped(outage.local),
    )


def _shadow_row(row: stats.ShadowLimit) -> ShadowRow:
    limit = row.limit
    return ShadowRow(
        name=limit.name if limit else _("a deleted limit"),
        plan=limit.plan.name if limit else "",
        plan_pk=limit.plan_id if limit else None,
        mode=limit.mode if limit else "",
        would_block=grouped(row.would_block),
    )


def _figures(window: stats.Window, sums: stats.Traffic) -> tuple[Figure, ...]:
    times = stats.decision_times(window)
    keys = stats.keys_over(window, percent=PERCENT_BLOCKED)
    undecided = sums.unchecked + sums.failed_closed + sums.local
    return (
        Figure(_("Requests checked"), grouped(sums.checked), sums.checked, _("allowed and blocked")),
        Figure(
            _("Blocked"),
            percent(sums.blocked_share),
            round(sums.blocked_share * 100, 4),
            ngettext("%(count)s request", "%(count)s requests", sums.blocked) % {"count": grouped(sums.blocked)},
        ),
        Figure(
            _("p99 decision time"),
            _milliseconds(times.p99_microseconds),
            (times.p99_microseconds or 0) / 1000,
            _("p50 %(p50)s") % {"p50": _milliseconds(times.p50_microseconds)},
        ),
        Figure(
            _("Unchecked"),
            grouped(sums.unchecked),
            sums.unchecked,
            _("let through undecided; %(closed)s answered 503, %(local)s decided without Redis")
            % {"closed": grouped(sums.failed_closed), "local": grouped(sums.local)},
            "bad" if undecided else "good",
        ),
        Figure(
            _("Keys over %(percent)s %% blocked") % {"percent": PERCENT_BLOCKED},
            grouped(keys.over),
            keys.over,
            _("of %(count)s active") % {"count": grouped(keys.active)},
            "bad" if keys.over else "good",
        ),
    )


def _milliseconds(microseconds: int | None) -> str:
    if microseconds is None:
        return _("none yet")
    slowest = LATENCY_BOUNDS[-2]
    if microseconds > slowest:
        return _("over %(time)s ms") % {"time": grouped(slowest / 1000)}
    return _("≤ %(time)s ms") % {"time": grouped(microseconds / 1000, decimals=2 if microseconds < 1_000 else 1)}
