"""How do staff hand out and withdraw keys? A key's text is shown once, on the page that answers its creation."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.actions import delete_selected
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_variables

from ratelimit_app import conf, keys
from ratelimit_app.admin import new_key, pasted_keys
from ratelimit_app.admin.key_forms import APIKeyForm, NewAPIKeyForm
from ratelimit_app.admin.key_list import ExpiryFilter, KeyColumns, KeyList, StateFilter
from ratelimit_app.admin.key_pages import KeyPages
from ratelimit_app.models import APIKey, Plan, Version
from ratelimit_app.pages.key import with_use
from ratelimit_app.pages.text import grouped, shown_as

_LISTED = 20
_MOST_DELETED_AT_ONCE = 100
_LONGEST_REASON = 200


class _CreatedBeforeError(Exception):
    """This form was sent before."""

    def __init__(self, key: APIKey) -> None:
        super().__init__()
        self.key = key


@admin.register(APIKey)
class APIKeyAdmin(KeyColumns, KeyPages):
    form = APIKeyForm
    raw_id_fields = ["owner"]
    list_display = ["name", "public", "plan", "state", "day", "last_used", "expires", "created"]
    list_select_related = ["plan"]
    list_filter = [StateFilter, ExpiryFilter, "plan"]
    list_per_page = 50
    search_help_text = gettext_lazy("Public id, name, or username of the owner.")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each would count every key again
    ordering = ["-pk"]
    sortable_by = ["name", "created", "expires"]
    actions = ["revoke", "delete_selected"]

    class Media:
        css = {"all": ["ratelimit_app/stock.css", "ratelimit_app/keys.css"]}

    # --- The list ---

    def get_queryset(self, request: HttpRequest) -> QuerySet[APIKey]:
        rows: QuerySet[APIKey] = with_use(super().get_queryset(request))
        return rows

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeyList]:
        return KeyList

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
        names = ["name", "public", "state", "plan", "owner", "expires_at", "created", "last_used"]
        return [*names, "revoked", "revoked_reason"]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        # A plan is changed by an action: for all keys that share a bucket, or it would be two quotas.
        derived = ["public", "state", "created", "last_used", "revoked", "revoked_reason"]
        return [] if obj is None else [*derived, "plan"]

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
            return HttpResponseRedirect(self.url("change", again.key.pk))

    @sensitive_variables("text")
    def save_model(self, request: HttpRequest, obj: APIKey, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            if "owner" in form.changed_data:  # a limit per user would else count one caller as two
                APIKey.objects.sharing_bucket_with(obj).exclude(pk=obj.pk).update(owner=obj.owner)
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

    @sensitive_variables("text")
    def response_add(self, request: HttpRequest, obj: APIKey, post_url_continue: str | None = None) -> HttpResponse:
        text: str = request.ratelimit_app_new_key  # type: ignore[attr-defined]
        page = self.page_context(request, title=_("API key created"))
        return new_key.show(request, obj, text, key_url=self.url("page", obj.pk), page=page)

    # --- Ending ---

    @admin.action(permissions=["revoke"], description=gettext_lazy("Revoke selected API keys"))
    def revoke(self, request: HttpRequest, queryset: QuerySet[APIKey]) -> HttpResponse | None:
        chosen = APIKey.objects.filter(pk__in=queryset.order_by().values("pk"), revoked_at=None)
        if not request.POST.get("post"):
            number = chosen.count()
            context = {
                **self.page_context(request, title=_("Revoke API keys?")),
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
            reason = pasted_keys.without_secrets(request.POST.get("reason", "").replace("\0", ""))[:_LONGEST_REASON]
            APIKey.objects.filter(pk__in=chosen.order_by().values("pk")).revoke(reason=reason)
            logged = f"Revoked. Reason: {reason}" if reason else "Revoked."
            LogEntry.objects.log_actions(cast("int", request.user.pk), revoked, CHANGE, change_message=logged)
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
