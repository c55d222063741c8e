"""Why was this request refused? The recent refusals, found by the receipt that the caller was sent."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from ratelimit_app.admin import pasted_keys
from ratelimit_app.admin.only_read import OnlyRead
from ratelimit_app.models import APIKey, Plan, Refusal
from ratelimit_app.pages import receipt
from ratelimit_app.pages.text import NOTHING, shown_as, written


@admin.register(Refusal)
class RefusalAdmin(OnlyRead):
    """A bounded sample, written by the pipeline: only to be read."""

    list_display = ["moment", "receipt", "api_key", "plan", "limit_name", "method", "route", "address", "wait"]
    readonly_fields = (
        *("moment", "receipt", "api_key", "plan", "limit_name"),
        *("method", "route", "address", "cost", "wait"),
    )
    fields = readonly_fields
    search_fields = ["receipt"]  # shows the box; get_search_results() does the searching
    search_help_text = _('The receipt in the answer\'s "instance", or the public id of a key.')
    sortable_by = ["moment"]
    ordering = ["-at"]
    show_full_result_count = False

    class Media:
        css = {"all": ["ratelimit_app/stock.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Refusal]:
        keys = APIKey.objects.filter(pk=OuterRef("key_id"))
        plans = Plan.objects.filter(pk=OuterRef("plan_id"))
        rows: QuerySet[Refusal] = super().get_queryset(request)
        return rows.annotate(
            key_public_id=Subquery(keys.values("public_id")[:1]), plan_name=Subquery(plans.values("name")[:1])
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = pasted_keys.without_secrets(search_term)
        if not text:
            return queryset, False
        if wanted := receipt.parse(text):
            return queryset.filter(receipt=wanted), False
        public_id = pasted_keys.public_id_prefix(text) or text
        keys = APIKey.objects.filter(public_id__startswith=public_id)
        # By identity for its index; by key since a rotated key shares its identity with the old one.
        found = queryset.filter(identity__in=keys.values("bucket_identity"), key_id__in=keys.values("pk"))
        return found, False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return pasted_keys.to_safe_search(request) or super().changelist_view(request, extra_context)

    @admin.display(description=_("at"), ordering="at")
    def moment(self, refusal: Refusal) -> str:
        return written(refusal.at, "Y-m-d H:i:s")

    @admin.display(description=_("API key"))
    def api_key(self, refusal: Any) -> str:
        return shown_as(refusal.key_public_id) if refusal.key_public_id else NOTHING

    @admin.display(description=_("plan"))
    def plan(self, refusal: Any) -> str:
        return str(refusal.plan_name) if refusal.plan_name else NOTHING

    @admin.display(description=_("Retry-After"))
    def wait(self, refusal: Refusal) -> str:
        return receipt.waiting(refusal)
