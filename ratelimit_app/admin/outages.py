"""When could Redis not be asked? A list of outages and a page of each, behind the permission to view them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ratelimit_app.admin.only_read import OnlyRead
from ratelimit_app.admin.own_pages import OwnPages
from ratelimit_app.models import APIKey, OutageSpan, Overview, Plan
from ratelimit_app.pages import outages
from ratelimit_app.pages.frame import answer, frame
from ratelimit_app.pages.selection import selection


@admin.register(OutageSpan)
class OutageSpanAdmin(OnlyRead, OwnPages):
    """Spans are written by the pipeline, one per process; the pages put those of an outage together."""

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        chosen = selection(request.GET.dict(), now=datetime.now(UTC), default=outages.DEFAULT_RANGE)
        context = {
            **self.page_context(request, title=_("Outages")),
            **frame(chosen),
            "parent_url": "",
            **outages.listed(chosen),
        }
        return answer(request, "admin/ratelimit_app/outage/list.html", context)

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The outage that this span is part of."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        span = self.get_object(request, unquote(object_id))
        if span is None:
            raise Http404
        chosen = selection({"paused": request.GET.get("paused", "")}, now=datetime.now(UTC))
        found, parts, window = outages.outage_of(span, now=chosen.now)
        chosen = replace(chosen, window=window, range_slug="")
        context = {
            **self.page_context(request, title=_("Outage")),
            **frame(chosen),
            **outages.page(found, parts, chosen),
            "links_keys": self.may_open(request, APIKey),
            "links_plans": self.may_open(request, Plan),
            "links_overview": self.may_open(request, Overview),
        }
        return answer(request, "admin/ratelimit_app/outage/page.html", context)
