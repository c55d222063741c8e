"""What does a page of our own in the admin need? Its address by name, and the context of Django's pages."""

from __future__ import annotations

from typing import Any

import django
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse


class OwnPages(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    def url(self, name: str, *args: Any) -> str:
        named = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(named, args=args, current_app=self.admin_site.name)

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
