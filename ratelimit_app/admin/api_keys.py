"""How do staff hand out and withdraw keys? A key's text is shown once, on the page that answers its creation."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any, cast

import django
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.core import signing
from django.core.exceptions import ValidationError
from django.db import router, transaction
from django.db.models import Model, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_variables

from ratelimit_app import conf, keys
from ratelimit_app.admin import pasted_keys
from ratelimit_app.models import APIKey, KeyUse, Plan, Version
from ratelimit_app.pages.text import grouped, shown_as

_LISTED = 20
_MOST_DELETED_AT_ONCE = 100


def _signer() -> signing.Signer:
    return signing.Signer(salt="ratelimit_app.new_key")  # on use: importing needs no SECRET_KEY


class _CreatedBeforeError(Exception):
    """This form was sent before."""

    def __init__(self, key: APIKey) -> None:
        super().__init__()
        self.key = key


class APIKeyForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    class Meta:
        model = APIKey
        fields = ["name", "plan", "owner", "expires_at"]

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at and "expires_at" in self.changed_data and expires_at <= timezone.now():
            raise ValidationError(_("This moment is past. To end a key now, revoke it."))
        return expires_at


class NewAPIKeyForm(APIKeyForm):
    """Carries the bucket identity of the key to be: sent twice, it makes one key."""

    reserved = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reserved"].initial = lambda: _signer().sign(keys.new_bucket_identity())
        self.fields["expires_at"].initial = lambda: (timezone.now() + timedelta(days=365)).replace(microsecond=0)
        self.fields["expires_at"].help_text = _("A year from now, unless you say otherwise. Empty: never.")

    def clean_expires_at(self) -> Any:
        # Even the proposed moment may be past by the time the form is sent.
        expires_at = self.cleaned_data["expires_at"]
        if expires_at and expires_at <= timezone.now():
            raise ValidationError(_("This moment is past."))
        return expires_at

    def clean_reserved(self) -> str:
        signed = self.cleaned_data["reserved"]
        if not signed:
            return keys.new_bucket_identity()
        try:
            return _signer().unsign(signed)
        except signing.BadSignature:
            raise ValidationError(_("This form is not one of ours. Open it again."), code="reserved") from None


class StateFilter(admin.SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("active", _("active")), ("expired", _("expired")), ("revoked", _("revoked"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[APIKey]) -> QuerySet[APIKey]:
        past = Q(expires_at__lte=timezone.now())
        if self.value() == "active":
            return queryset.filter(~past | Q(expires_at=None), revoked_at=None)
        if self.value() == "expired":
            return queryset.filter(past, revoked_at=None)
        if self.value() == "revoked":
            return queryset.exclude(revoked_at=None)
        return queryset


@admin.register(APIKey)
class APIKeyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    form = APIKeyForm
    raw_id_fields = ["owner"]
    list_display = ["name", "public", "plan", "state", "created", "last_used", "expires_at"]
    list_select_related = ["plan"]
    list_filter = [StateFilter, "plan"]
    search_help_text = gettext_lazy("Public id, name, or username of the owner.")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each would count every key again
    ordering = ["-pk"]
    sortable_by = ["name", "created", "expires_at"]
    actions = ["revoke", "delete_selected"]

    # --- The list ---

    def get_queryset(self, request: HttpRequest) -> QuerySet[APIKey]:
        uses = KeyUse.objects.filter(key_id=OuterRef("pk"))
        rows: QuerySet[APIKey] = super().get_queryset(request)
        return rows.annotate(used_at=Subquery(uses.values("last_used_at")[:1]))

    @admin.display(description=gettext_lazy("public id"))
    def public(self, key: APIKey) -> str:
        return shown_as(key.public_id)

    @admin.display(description=gettext_lazy("state"))
    def state(self, key: APIKey) -> str:
        if key.revoked_at is not None:
            return _("revoked")
        return _("active") if key.usable else _("expired")

    @admin.display(description=gettext_lazy("created"), ordering="pk")
    def created(self, key: APIKey) -> Any:
        return key.created_at

    @admin.display(description=gettext_lazy("last used"))
    def last_used(self, key: Any) -> Any:
        return key.used_at or _("never")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return pasted_keys.to_safe_search(request) or super().changelist_view(request, extra_context)

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        return ["public_id__startswith", "name", f"owner__{get_user_model().USERNAME_FIELD}"]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        text = pasted_keys.without_secrets(search_term)
        found, may_have_duplicates = super().get_search_results(request, queryset, text)
        if public_id := pasted_keys.public_id_prefix(text):
            found = found | queryset.filter(public_id__startswith=public_id)
        return found, may_have_duplicates

    # --- The form ---

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            kwargs["form"] = NewAPIKeyForm
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        if obj is None:
            return ["name", "plan", "owner", "expires_at", "reserved"]
        return ["name", "public", "state", "plan", "owner", "expires_at", "created", "last_used", "revoked_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        return [] if obj is None else ["public", "state", "created", "last_used", "revoked_at"]

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "plan":
            kwargs["queryset"] = Plan.objects.filter(audience=Plan.Audience.KEYS)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "plan" and field is not None:
            field.widget.can_delete_related = False  # nobody deletes a plan from a key's form on purpose
        return field

    def has_change_permission(self, request: HttpRequest, obj: APIKey | None = None) -> bool:
        """A revoked key stays as it was: what happened under it must remain readable."""
        is_revoked = obj is not None and obj.revoked_at is not None
        return not is_revoked and super().has_change_permission(request, obj)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("ratelimit_app.revoke_apikey")

    # --- Creating ---

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        extra = {"show_save_and_add_another": False, "show_save_and_continue": False, **(extra_context or {})}
        try:
            return super().add_view(request, form_url, extra)
        except _CreatedBeforeError as again:
            messages.warning(request, _("This key was created before. Its text was shown once and is stored nowhere."))
            return HttpResponseRedirect(self._url("change", again.key.pk))

    @sensitive_variables("text")
    def save_model(self, request: HttpRequest, obj: APIKey, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        # The row lock of the version puts two sendings of one form in order.
        Version.bump("keys", using=router.db_for_write(APIKey))
        obj.bucket_identity = form.cleaned_data["reserved"]
        if before := APIKey.objects.filter(bucket_identity=obj.bucket_identity).first():
            raise _CreatedBeforeError(before)
        text, material = keys.generate(conf.current().key_prefix)
        obj.public_id, obj.digest = material.public_id, material.digest
        super().save_model(request, obj, form, change)
        request.ratelimit_app_new_key = text  # type: ignore[attr-defined]  # for response_add, in this request

    @sensitive_variables("text", "context")
    def response_add(self, request: HttpRequest, obj: APIKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key's text: in the answer itself, since a redirect would have to carry it somewhere."""
        text: str = request.ratelimit_app_new_key  # type: ignore[attr-defined]
        first_path = next(iter(conf.current().paths), "/")
        header, _colon, scheme = conf.current().key_headers[0].partition(":")
        sent = f"{header}: {scheme.strip()} {text}" if scheme else f"{header}: {text}"
        context = {
            **self._page_context(request, title=_("API key created")),
            "original": obj,
            "key": text,
            "curl": f"curl -i -H {shlex.quote(sent)} {shlex.quote(request.build_absolute_uri(first_path))}",
            "key_url": self._url("change", obj.pk),
        }
        response = TemplateResponse(request, "admin/ratelimit_app/apikey/new_key.html", context)
        response["Cache-Control"] = "no-store"
        return response

    # --- Ending ---

    @admin.action(permissions=["revoke"], description=gettext_lazy("Revoke selected API keys"))
    def revoke(self, request: HttpRequest, queryset: QuerySet[APIKey]) -> HttpResponse | None:
        chosen = APIKey.objects.filter(pk__in=queryset.order_by().values("pk"), revoked_at=None)
        if not request.POST.get("post"):
            number = chosen.count()
            context = {
                **self._page_context(request, title=_("Revoke API keys?")),
                "number": number,
                "count": grouped(number),
                "listed": [f"{key.name} ({shown_as(key.public_id)})" for key in chosen[:_LISTED]],
                "more": grouped(number - _LISTED) if number > _LISTED else "",
                "selected": request.POST.getlist(ACTION_CHECKBOX_NAME),
                "select_across": request.POST.get("select_across", "0"),
                "action_checkbox_name": ACTION_CHECKBOX_NAME,
            }
            return TemplateResponse(request, "admin/ratelimit_app/apikey/revoke_confirmation.html", context)
        with transaction.atomic(using=router.db_for_write(APIKey)):
            revoked = list(chosen.only("pk", "name", "public_id"))
            APIKey.objects.filter(pk__in=chosen.order_by().values("pk")).revoke()
            LogEntry.objects.log_actions(cast("int", request.user.pk), revoked, CHANGE, change_message="Revoked.")
        self.message_user(
            request,
            ngettext("%(count)s API key was revoked.", "%(count)s API keys were revoked.", len(revoked))
            % {"count": grouped(len(revoked))},
            messages.SUCCESS,
        )
        return None

    @admin.action(permissions=["delete"], description=gettext_lazy("Delete selected API keys"))
    def delete_selected(self, request: HttpRequest, queryset: QuerySet[APIKey]) -> HttpResponse | None:
        if queryset[: _MOST_DELETED_AT_ONCE + 1].count() > _MOST_DELETED_AT_ONCE:
            note = _("Delete at most %(count)s API keys at once. To stop more of them, revoke them.")
            self.message_user(request, note % {"count": _MOST_DELETED_AT_ONCE}, messages.ERROR)
            return None
        return delete_selected(self, request, queryset)

    def _url(self, page: str, *args: Any) -> str:
        return reverse(f"admin:ratelimit_app_apikey_{page}", args=args, current_app=self.admin_site.name)

    def _page_context(self, request: HttpRequest, *, title: str) -> dict[str, Any]:
        request.current_app = self.admin_site.name  # as ModelAdmin's own views do
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            "list_url": self._url("changelist"),
            "media": self.media,
        }
