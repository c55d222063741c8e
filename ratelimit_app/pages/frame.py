"""What do all pages of the people on call have in common? A head that says what is shown, as of when, and how fresh.

A page is a template that extends `rl_frame`, and fills the block `live` with parts that have an id
and the class `rl-live`. Asked for JSON, the same address answers with those parts alone, which is
how an open page stays fresh: {"html": the parts, "charts": what they draw}.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext_lazy

from ratelimit_app.models import Plan
from ratelimit_app.pages.freshness import freshness
from ratelimit_app.pages.selection import Selection
from ratelimit_app.pages.text import between

RANGE_LABELS = {
    "15m": gettext_lazy("15 min"),
    "1h": gettext_lazy("1 h"),
    "6h": gettext_lazy("6 h"),
    "24h": gettext_lazy("24 h"),
    "7d": gettext_lazy("7 d"),
    "30d": gettext_lazy("30 d"),
}


def frame(selection: Selection) -> dict[str, Any]:
    """The context that the frame needs, beside that of any page in the admin."""
    window, now = selection.window, selection.now
    return {
        "selection": selection,
        "ranges": [
            (selection.link_to_range(slug), label, slug == selection.range_slug) for slug, label in RANGE_LABELS.items()
        ],
        "span": "" if selection.range_slug else between(window.start, window.end, now=now),
        "plans": Plan.objects.order_by("name", "pk").values_list("slug", "name"),
        "pause_link": selection.link(paused=None if selection.paused else "1"),
        **freshness(now=now),
        "charts": {},
    }


def answer(request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
    """The page; or, for whoever prefers JSON, its live parts."""
    response: HttpResponse
    if request.get_preferred_type(["text/html", "application/json"]) == "application/json":
        html = render_to_string(template, {**context, "rl_frame": "admin/ratelimit_app/parts.html"}, request)
        response = JsonResponse({"html": html, "charts": context["charts"]})
    else:
        response = TemplateResponse(request, template, {**context, "rl_frame": "admin/ratelimit_app/page.html"})
    patch_vary_headers(response, ["Accept"])
    return response
