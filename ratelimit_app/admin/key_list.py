"""Which keys are there, in what state, and what did each do lately? The columns and filters of the list."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ratelimit_app.models import APIKey
from ratelimit_app.pages import key_state
from ratelimit_app.pages.key import with_use
from ratelimit_app.pages.sparkline import sparkline
from ratelimit_app.pages.text import NOTHING, shown_as, written
from ratelimit_app.stats import keys as key_stats


class StateFilter(admin.SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("active", _("active")),
            ("boosted", _("boosted")),
            ("expired", _("expired")),
            ("revoked", _("revoked")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[APIKey]) -> QuerySet[APIKey]:
        past = Q(expires_at__lte=timezone.now())
        if self.value() == "active":
            return queryset.filter(~past | Q(expires_at=None), revoked_at=None)
        if self.value() == "boosted":
            return queryset.filter(boost_factor__gt=1, boost_ends_at__gt=timezone.now(), revoked_at=None)
        if self.value() == "expired":
            return queryset.filter(past, revoked_at=None)
        if self.value() == "revoked":
            return queryset.exclude(revoked_at=None)
        return queryset


class ExpiryFilter(admin.SimpleListFilter):
    title = gettext_lazy("expiry")
    parameter_name = "expires"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("soon", _("within 14 days, and not replaced"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.expiring() if self.value() == "soon" else queryset


class KeyList(ChangeList):
    """Reads what the rows of one page need beside themselves, in two queries, and opens a key's page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        shown: list[Any] = list(self.result_list)
        identities = [key.bucket_identity for key in shown]
        days = key_stats.last_day(identities, now=timezone.now())
        mates: dict[str, list[Any]] = {}
        for mate in with_use(APIKey.objects.usable().filter(bucket_identity__in=identities)).order_by("pk"):
            mates.setdefault(mate.bucket_identity, []).append(mate)
        for key in shown:
            key.listed_day = days[key.bucket_identity]
            key.listed_notes = key_state.notes(key, mates.get(key.bucket_identity, ()))

    def url_for_result(self, result: Any) -> str:
        return reverse(
            "admin:ratelimit_app_apikey_page", args=[result.pk], current_app=self.model_admin.admin_site.name
        )


class KeyColumns:
    """The columns of the list; some are also read-only fields of the form."""

    @admin.display(description=gettext_lazy("public id"))
    def public(self, key: APIKey) -> str:
        return shown_as(key.public_id)

    @admin.display(description=gettext_lazy("state"))
    def state(self, key: APIKey) -> str:
        notes = " ".join(getattr(key, "listed_notes", ()))
        return format_html('{}<span class="rl-note">{}</span>', key_state.state(key), notes)

    @admin.display(description=gettext_lazy("last 24 hours"))
    def day(self, key: Any) -> SafeString:
        return render_to_string("admin/ratelimit_app/apikey/sparkline.html", {"drawn": sparkline(key.listed_day)})

    @admin.display(description=gettext_lazy("created"), ordering="pk")
    def created(self, key: APIKey) -> str:
        return written(key.created_at)

    @admin.display(description=gettext_lazy("last used"))
    def last_used(self, key: Any) -> str:
        return written(key.used_at) if key.used_at else _("never")

    @admin.display(description=gettext_lazy("expires"), ordering="expires_at")
    def expires(self, key: APIKey) -> str:
        return written(key.expires_at) if key.expires_at else _("never")

    @admin.display(description=gettext_lazy("revoked"))
    def revoked(self, key: APIKey) -> str:
        return written(key.revoked_at) if key.revoked_at else NOTHING
