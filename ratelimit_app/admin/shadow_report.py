"""How does a limit get from shadow to enforced, and back? By a page that says what it would do, and one that asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from ratelimit_app import conf
from ratelimit_app.admin import pasted_keys
from ratelimit_app.admin.plan_pages import PlanPages
from ratelimit_app.admin.plan_words import in_words
from ratelimit_app.models import APIKey, Plan, PlanLimit
from ratelimit_app.pages.frame import answer, frame
from ratelimit_app.pages.selection import selection
from ratelimit_app.pages.shadows import DEFAULT_RANGE, page


class ModeForm(forms.Form):
    """Asks before a limit begins to refuse, or ceases to."""

    plan_name = forms.CharField(label=gettext_lazy("The plan's name"), max_length=80)
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        help_text=gettext_lazy("For those who read the history later."),
    )

    def __init__(self, limit: PlanLimit, *args: Any, mode: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limit = limit
        if mode == PlanLimit.Mode.SHADOW:  # whoever stops an emergency should not have to type names
            del self.fields["plan_name"]
        else:
            self.fields["plan_name"].help_text = _("Type it, to show that this is the plan you mean.")

    def clean_plan_name(self) -> str:
        name: str = self.cleaned_data["plan_name"]
        if name != self.limit.plan.name.strip():
            raise ValidationError(_("This is not the name of the plan."))
        return name

    def clean_reason(self) -> str:
        return pasted_keys.without_secrets(self.cleaned_data["reason"])


class ShadowReport(PlanPages):
    def get_urls(self) -> list[URLPattern]:
        name, view = "ratelimit_app_plan", self.admin_site.admin_view
        own = [path("shadow/", view(self.shadow_report), name=f"{name}_shadow")]
        own += [
            path(f"shadow/<int:pk>/{mode}/", view(self.set_mode), {"mode": mode}, f"{name}_to_{mode}")
            for mode in ("enforce", "shadow")
        ]
        return own + super().get_urls()

    @method_decorator(require_safe)
    def shadow_report(self, request: HttpRequest) -> HttpResponse:
        """By limit what it would have refused; with `limit` in the URL also whom."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        chosen = selection(request.GET.dict(), now=datetime.now(UTC), keeps=("limit",), default=DEFAULT_RANGE)
        context = {
            **self.page_context(request, title=_("Limits in shadow")),
            **frame(chosen),
            **page(chosen),
            "may_edit": self.may_edit_limits(request),
            "shows_keys": self.may_open(request, APIKey),
        }
        return answer(request, "admin/ratelimit_app/plan/shadow.html", context)

    def set_mode(self, request: HttpRequest, pk: int, mode: str) -> HttpResponse:
        """Ask, and when the answer is sent, let the limit refuse or only count: by POST alone."""
        if not self.may_edit_limits(request):
            raise PermissionDenied
        limit = get_object_or_404(PlanLimit.objects.select_related("plan"), pk=pk)
        form = ModeForm(limit, request.POST if request.method == "POST" else None, mode=mode)
        report = f"{self.url('shadow')}?limit={limit.pk}"
        if limit.mode in (mode, PlanLimit.Mode.OFF):
            messages.warning(request, _("%(limit)s is in this mode already, or off.") % {"limit": limit.name})
            return HttpResponseRedirect(report)
        if form.is_valid():
            with transaction.atomic(using=router.db_for_write(Plan)):
                self._switch(request, limit.pk, mode, reason=form.cleaned_data["reason"])
            return HttpResponseRedirect(report)
        context = {
            **self.page_context(
                request,
                title=_("Enforce this limit?") if mode == "enforce" else _("Back to shadow?"),
                parent=limit.plan.name,
                parent_url=report,
            ),
            "form": form,
            "limit": limit,
            "in_words": in_words(limit),
            "to_mode": mode,
            "settings_mode": conf.current().mode,
        }
        return TemplateResponse(request, "admin/ratelimit_app/plan/mode.html", context)

    def _switch(self, request: HttpRequest, pk: int, mode: str, *, reason: str) -> None:
        # Its numbers as they are by now: only the mode is written, and said.
        limit = PlanLimit.objects.select_for_update(of=("self",)).select_related("plan").get(pk=pk)
        before, limit.mode = in_words(limit), mode
        limit.save(update_fields=["mode"])
        self.record(request, limit.plan, reason=reason)
        self.log_change(request, limit.plan, f"{limit.name}: {before} → {in_words(limit)}. Reason: {reason}")
        said = _("%(limit)s of %(plan)s: %(words)s.")
        messages.success(request, said % {"limit": limit.name, "plan": limit.plan, "words": in_words(limit)})
