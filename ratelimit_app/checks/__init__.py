"""What is set up wrong? System checks, each with an id and a hint; none contacts a server.

cache       the alias that names Redis, a cluster or sentinels
doors       proxies, middleware, keys
watching    statistics, alerts, metrics
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks

from ratelimit_app import conf
from ratelimit_app.checks import cache, doors, watching

TAG = "ratelimit"


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_setup, TAG)


def check_setup(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """All findings. When a setting itself is unusable, only that is said."""
    unusable = [
        checks.Error(f"RATELIMIT_APP[{name!r}] {wrong}", hint=_nearest(name), id="ratelimit_app.E001")
        for name, wrong in conf.problems()
    ]
    return list(unusable) or [*cache.look(), *doors.look(), *watching.look()]


def _nearest(name: str) -> str:
    return "See the settings reference." if name in conf.NAMES else f"The settings are {', '.join(conf.NAMES)}."
