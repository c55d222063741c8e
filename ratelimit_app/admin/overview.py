"""Where is the overview in the admin? Behind its own entry, and its own permission to view it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ratelimit_app.admin.only_read import OnlyRead
from ratelimit_app.admin.own_pages import OwnPages
from ratelimit_app.models import APIKey, OutageSpan, Overview, Plan
from ratelimit_app.pages.frame import answer, frame
from ratelimit_app.pages.overview import page
from ratelimit_app.pages.selection import selection


@admin.register(Overview)
class OverviewAdmin(OnlyRead, OwnPages):
    """The page stands where a list of rows would be; nothing can be added, changed or deleted."""

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.changelist_view)
        return [path("", page, name="ratelimit_app_overview_changelist")]

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        chosen = selection(request.GET.dict(), now=datetime.now(UTC), keeps=("callers",))
        context = {
            **self.page_context(request, title=_("Rate limit overview")),
            **frame(chosen),
            "parent_url": "",
            "links_keys": self.may_open(request, APIKey),
            "links_plans": self.may_open(request, Plan),
            "links_outages": self.may_open(request, OutageSpan),
        }
        newest = context["newest"] and context["newest"][0]
        context |= page(chosen, newest=newest, links_outages=context["links_outages"])
        return answer(request, "admin/ratelimit_app/overview.html", context)
