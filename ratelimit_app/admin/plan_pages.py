"""What do the pages about plans share? Who may edit limits, and who is said to have changed them."""

from __future__ import annotations

from django.db import router
from django.http import HttpRequest

from ratelimit_app.admin.own_pages import OwnPages
from ratelimit_app.models import Plan, record_versions


class PlanPages(OwnPages):
    def may_edit_limits(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request) and request.user.has_perm("ratelimit_app.change_planlimit")

    def record(self, request: HttpRequest, plan: Plan, *, reason: str) -> None:
        """Write down what a plan says now, within the transaction that changed it."""
        who = request.user.get_username()[:150]
        record_versions(using=router.db_for_write(Plan), plan_id=plan.pk, who=who, reason=reason)
