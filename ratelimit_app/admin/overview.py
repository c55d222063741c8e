"""Where is the overview in the admin? Behind its own entry, and its own permission to view it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path

from ratelimit_app.models import Overview
from ratelimit_app.pages.overview import overview


@admin.register(Overview)
class OverviewAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    """The page stands where a list of rows would be; nothing can be added, changed or deleted."""

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.changelist_view)
        return [path("", page, name="ratelimit_app_overview_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        return overview(request, admin_site=self.admin_site, opts=self.opts)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Overview | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Overview | None = None) -> bool:
        return False
