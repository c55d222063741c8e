"""How are plans edited? With their limits inline; what changes a limit is shown before it is saved."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ratelimit_app.admin.plan_forms import PlanForm, PlanLimitForm
from ratelimit_app.admin.plan_history import PlanHistory
from ratelimit_app.admin.plan_preview import PlanPreview
from ratelimit_app.admin.plan_words import exceeded_by_shares, in_short, lowered_rate
from ratelimit_app.admin.shadow_report import ShadowReport
from ratelimit_app.models import APIKey, Plan, PlanLimit
from ratelimit_app.pages.text import grouped

#: More keys than this on a plan are counted on the page that refuses to delete it, not listed.
_LISTED_KEYS = 20


class PlanLimitInline(admin.StackedInline):  # type: ignore[type-arg]  # generic in the stubs only
    model = PlanLimit
    form = PlanLimitForm
    fields = [
        ("name", "scope", "methods"),
        ("algorithm", "requests", "period_seconds", "burst"),
        "rate_enforced",
        ("per", "mode", "on_failure"),
        "shards",
        "lease",
    ]
    readonly_fields = ["rate_enforced"]

    def get_extra(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        return 0 if obj else 1

    @admin.display(description=gettext_lazy("Rate enforced"))
    def rate_enforced(self, limit: PlanLimit) -> str:
        return (lowered_rate(limit) or _("as asked for")) if limit.pk else _("shown once it is saved")


@admin.register(Plan)
class PlanAdmin(PlanPreview, PlanHistory, ShadowReport):
    form = PlanForm
    inlines = [PlanLimitInline]
    list_display = ["name", "slug", "audience", "limits_in_short"]
    search_fields = ["name", "slug"]
    prepopulated_fields = {"slug": ["name"]}

    class Media:
        css = {"all": ["ratelimit_app/stock.css"]}

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        names = ["name", "slug", "description", "audience"]
        return [*names, "seen"] if obj is not None and self.has_change_permission(request, obj) else names

    def get_queryset(self, request: HttpRequest) -> QuerySet[Plan]:
        return super().get_queryset(request).prefetch_related("limits")

    @admin.display(description=gettext_lazy("limits"))
    def limits_in_short(self, plan: Plan) -> str:
        return "; ".join(
            in_short(limit) + ("" if limit.mode == PlanLimit.Mode.ENFORCE else f" ({limit.mode})")
            for limit in plan.limits.all()
        )

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        for limit in [*formset.new_objects, *(changed for changed, _fields in formset.changed_objects)]:
            for note in filter(None, (lowered_rate(limit), exceeded_by_shares(limit))):
                messages.warning(request, f"{limit.name}: {note}")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """As Django's, but a plan with many keys is refused with their number instead of all their names."""
        plan_ids = [plan.pk for plan in objs]
        count = APIKey.objects.filter(plan__in=plan_ids).count()
        if count <= _LISTED_KEYS:
            return super().get_deleted_objects(objs, request)
        named = ngettext("%(count)s API key", "%(count)s API keys", count) % {"count": grouped(count)}
        return [], {}, set(), [named]
