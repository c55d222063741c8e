"""Where are the page of a key and its actions? Beside its form in the admin, each behind a permission of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_safe

from ratelimit_app.admin import new_key, pasted_keys
from ratelimit_app.admin.key_actions import ACTIONS, Done, KeyAction, NotDone
from ratelimit_app.admin.own_pages import OwnPages
from ratelimit_app.models import APIKey, Plan
from ratelimit_app.pages.frame import answer, frame
from ratelimit_app.pages.key import page
from ratelimit_app.pages.selection import selection


class KeyPages(OwnPages):
    def get_urls(self) -> list[URLPattern]:
        name = "ratelimit_app_apikey"
        own = [path("<int:pk>/page/", self.admin_site.admin_view(self.key_page), name=f"{name}_page")]
        act = self.admin_site.admin_view(self.act)
        own += [path(f"<int:pk>/{it.slug}/", act, {"action": it}, f"{name}_{it.slug}") for it in ACTIONS]
        return own + super().get_urls()

    @method_decorator(require_safe)
    def key_page(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Who it is, what it may do right now, what it got, and why it was refused."""
        key = self._key(request, pk)
        if safe := pasted_keys.to_safe_search(request, parameter="receipt"):
            return safe
        shows_refusals = request.user.has_perm("ratelimit_app.view_refusal")
        chosen = selection(request.GET.dict(), now=datetime.now(UTC), keeps=("receipt",))
        context = {
            **self.page_context(request, title=key.name),
            **frame(chosen),
            **page(key, chosen, shows_refusals=shows_refusals),
            "links_plan": self.may_open(request, Plan),
            "change_url": self.url("change", key.pk),
            "history_url": self.url("history", key.pk),
            "actions": [
                (self.url(action.slug, key.pk), action.button, action.ends)
                for action in ACTIONS
                if request.user.has_perm(f"ratelimit_app.{action.permission}") and not action(key).obstacle
            ],
        }
        return answer(request, "admin/ratelimit_app/apikey/page.html", context)

    @method_decorator(sensitive_post_parameters())
    @sensitive_variables("done", "text")
    def act(self, request: HttpRequest, pk: int, action: type[KeyAction]) -> HttpResponse:
        """Ask, and when the answer is sent, do it: by POST alone."""
        if not request.user.has_perm(f"ratelimit_app.{action.permission}"):
            raise PermissionDenied
        key = self._key(request, pk)
        sent = request.POST if request.method == "POST" else None
        form = action(key, sent, may_edit=request.user.has_perm("ratelimit_app.change_apikey"))
        if sent is not None and form.obstacle:
            messages.error(request, form.obstacle)
            return HttpResponseRedirect(self.url("page", key.pk))
        if sent is None or not form.is_valid():
            context = {
                **self.page_context(request, title=action.title, parent=key.name, parent_url=self.url("page", key.pk)),
                "form": form,
                "key": key,
            }
            return TemplateResponse(request, "admin/ratelimit_app/apikey/action.html", context)
        try:
            with transaction.atomic(using=router.db_for_write(APIKey)):
                done = form.act()
                self._log(request, done)
        except NotDone as reason:
            messages.error(request, str(reason))
            return HttpResponseRedirect(self.url("page", key.pk))
        if done.new is not None:
            row, text = done.new
            return new_key.show(
                request,
                row,
                text,
                key_url=self.url("page", row.pk),
                page=self.page_context(request, title=action.title),
            )
        messages.success(request, done.shown)
        return HttpResponseRedirect(self.url("page", key.pk))

    def _key(self, request: HttpRequest, pk: int) -> APIKey:
        if not self.has_view_permission(request):
            raise PermissionDenied
        key: APIKey = get_object_or_404(APIKey.objects.select_related("plan", "owner"), pk=pk)
        return key

    def _log(self, request: HttpRequest, done: Done) -> None:
        user_pk = cast("int", request.user.pk)
        LogEntry.objects.log_actions(user_pk, list(done.changed), CHANGE, change_message=done.logged)
        if done.new is not None:
            self.log_addition(request, done.new[0], f"Replaces {done.changed[0].public_id}.")
