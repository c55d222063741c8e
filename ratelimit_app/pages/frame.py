"""What do all pages of the people on call have in common? A head that says what is shown, as of when, and how fresh.

A page is a template that extends `rl_frame`, and fills the block `live` with parts that have an id
and the class `rl-live`. Asked for JSON, the same address answers with those parts alone, which is
how an open page stays fresh: {"html": the parts, "charts": what they draw}.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import django
from django.contrib.admin import AdminSite
from django.db.models import Model
from django.db.models.options import Options
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext_lazy

from ratelimit_app import stats
from ratelimit_app.models import Plan
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import between, clock, duration

RANGE_LABELS = {
    "15m": gettext_lazy("15 min"),
    "1h": gettext_lazy("1 h"),
    "6h": gettext_lazy("6 h"),
    "24h": gettext_lazy("24 h"),
    "7d": gettext_lazy("7 d"),
    "30d": gettext_lazy("30 d"),
}
#: Counts leave each process every ten seconds: no news for this long means no traffic, or a fault.
LATE_AFTER_SECONDS = 60


def frame(
    request: HttpRequest, selection: Selection, *, admin_site: AdminSite, opts: Options[Model], title: str
) -> dict[str, Any]:
    """The context that the frame of a page needs."""
    window, now = selection.window, selection.now
    newest = stats.newest_data_at()
    return {
        **admin_site.each_context(request),
        "opts": opts,
        "title": title,
        "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
        "selection": selection,
        "ranges": [
            (selection.link_to_range(slug), label, slug == selection.range_slug) for slug, label in RANGE_LABELS.items()
        ],
        "span": "" if selection.range_slug else between(window.start, window.end, now=now),
        "plans": Plan.objects.order_by("name", "pk").values_list("slug", "name"),
        "pause_link": selection.link(paused=None if selection.paused else "1"),
        "as_of": (now, clock(now, seconds=True)),
        "newest": newest and (newest.astimezone(UTC), clock(newest, seconds=True)),
        "age": newest and duration(max(0, (now - newest).total_seconds())),
        "late": is_late(newest, now=now),
        "charts": {},
    }


def is_late(newest: datetime | None, *, now: datetime) -> bool:
    """Whether the newest data is too old; when there never was any, nobody waits for it."""
    return newest is not None and (now - newest).total_seconds() > LATE_AFTER_SECONDS


def answer(request: HttpRequest, template: str, context: dict[str, Any], *, admin_site: AdminSite) -> HttpResponse:
    """The page; or, for whoever prefers JSON, its live parts."""
    request.current_app = admin_site.name  # as ModelAdmin's own views do
    response: HttpResponse
    if request.get_preferred_type(["text/html", "application/json"]) == "application/json":
        html = render_to_string(template, {**context, "rl_frame": "admin/ratelimit_app/parts.html"}, request)
        response = JsonResponse({"html": html, "charts": context["charts"]})
    else:
        response = TemplateResponse(request, template, {**context, "rl_frame": "admin/ratelimit_app/page.html"})
    patch_vary_headers(response, ["Accept"])
    return response
