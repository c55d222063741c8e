"""When could which process not ask Redis? The spans as they were told, only to be read."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ratelimit_app.models import OutageSpan


@admin.register(OutageSpan)
class OutageSpanAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    """Written by the pipeline; the overview puts the spans of all processes together."""

    list_display = ["started_at", "last_seen_at", "is_over", "error", "server", "gateway"]
    fields = ["started_at", "last_seen_at", "is_over", "error", "server", "gateway"]
    readonly_fields = ["started_at", "last_seen_at", "is_over", "error", "server", "gateway"]
    list_filter = ["error"]
    ordering = ["-last_seen_at"]
    sortable_by = ["last_seen_at"]
    show_full_result_count = False

    class Media:
        css = {"all": ["ratelimit_app/stock.css"]}

    @admin.display(description=_("over"), boolean=True)
    def is_over(self, span: OutageSpan) -> bool:
        return bool(span.ended)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutageSpan | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: OutageSpan | None = None) -> bool:
        return False
