"""What can be looked at in the admin and by nobody be changed there? Whatever the pipeline writes."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest


class OnlyRead(admin.ModelAdmin):  # type: ignore[type-arg]  # generic in the stubs only
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
