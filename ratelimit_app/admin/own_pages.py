"""What does a page of our own in the admin need? Its address by name, and the context of Django's pages."""

from __future__ import annotations

from typing import Any

import django
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst


class OwnPages(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    def url(self, name: str, *args: Any) -> str:
        named = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(named, args=args, current_app=self.admin_site.name)

    def may_open(self, request: HttpRequest, model: type[Model]) -> bool:
        """Whether a page may link to those of another model."""
        site = self.admin_site
        return site.is_registered(model) and site.get_model_admin(model).has_view_permission(request)

    def page_context(
        self, request: HttpRequest, *, title: Any, parent: str = "", parent_url: str = ""
    ) -> dict[str, Any]:
        """What plain.html needs; the way back is to the list, where no other page is named."""
        request.current_app = self.admin_site.name  # as ModelAdmin's own views do
        return {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "breadcrumbs_are_a_list": django.VERSION >= (6, 1),
            "parent": parent or capfirst(self.opts.verbose_name_plural),
            "parent_url": parent_url or self.url("changelist"),
            "media": self.media,
        }
