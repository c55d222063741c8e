"""Which app is this, and what does it start? Checks and the listeners for changes; no thread, no I/O."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RatelimitAppConfig(AppConfig):
    name = "ratelimit_app"
    label = "ratelimit_app"
    verbose_name = _("Rate limiting")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ratelimit_app import changes, checks, metrics

        checks.register()
        changes.connect()
        metrics.connect()
