"""What do the pages about plans share? Their addresses, their context, and who is said to have changed a plan."""

from __future__ import annotations

from typing import Any

import django
from django.contrib import admin
from django.db import router
from django.http import HttpRequest
from django.urls import reverse

from ratelimit_app.models import Plan, record_versions


class PlanPages(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    def url(self, name: str, *args: Any) -> str:
        return reverse(f"admin:ratelimit_app_plan_{name}", args=args, current_app=self.admin_site.name)

    def page_context(self, request: HttpRequest, *, title: Any) -> dict[str, Any]:
        request.current_app = self.admin_site.name  # as ModelAdmin's own views do
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            "list_url": self.url("changelist"),
            "media": self.media,
        }

    def may_edit_limits(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request) and request.user.has_perm("ratelimit_app.change_planlimit")

    def record(self, request: HttpRequest, plan: Plan, *, reason: str) -> None:
        """Write down what a plan says now, within the transaction that changed it."""
        who = request.user.get_username()[:150]
        record_versions(using=router.db_for_write(Plan), plan_id=plan.pk, who=who, reason=reason)
