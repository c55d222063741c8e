"""What does a view ask of the limiter? Its scope, its cost, and whether a key must be shown.

Read from the decorator, or from a DRF view's class and `@action` arguments, without importing DRF.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from django.http import HttpRequest

from ratelimit_app import conf

KeyPolicy = Literal["required", "optional"]

_PREFLIGHT_HEADERS = {"HTTP_ORIGIN", "HTTP_ACCESS_CONTROL_REQUEST_METHOD"}


@dataclass(frozen=True, slots=True)
class Rule:
    """What one view asks."""

    scope: str = ""
    #: Tokens that one request costs.
    cost: int = 1
    #: Whether a request without a key is turned away, or gets the plan of callers without one.
    key: KeyPolicy = "required"
    #: The view is DRF's: it turns callers away itself, and asks the limiter again for the rest.
    is_drf: bool = False
    #: Whether all that DRF will decide by is known before DRF starts.
    is_early: bool = True


def rule_for(request: HttpRequest, view: Callable[..., Any]) -> Rule | None:
    """The rule of a view, by its decorator, its DRF throttle or the path; None when it asks for nothing."""
    return _rule_of_view(view) or _rule_of_path(request.path_info, conf.current().paths)


def is_exempt(request: HttpRequest) -> bool:
    """Whether a request is free: an exempt path or view, or a CORS preflight."""
    if request.resolver_match is not None and getattr(request.resolver_match.func, "ratelimit_exempt", False):
        return True
    if request.method == "OPTIONS" and request.META.keys() >= _PREFLIGHT_HEADERS:
        return True
    return any(_is_below(request.path_info, prefix) for prefix in conf.current().exempt_paths)


def route_of(request: HttpRequest) -> str:
    """The pattern that a request's path matched, such as "api/items/<int:pk>/"; "" when it matched none."""
    return request.resolver_match.route if request.resolver_match else ""


def _rule_of_path(path: str, paths: Mapping[str, str]) -> Rule | None:
    matching = [prefix for prefix in paths if _is_below(path, prefix)]
    if not matching:
        return None
    return Rule(key="optional" if paths[max(matching, key=len)] == "optional" else "required")


def _is_below(path: str, prefix: str) -> bool:
    whole = prefix.rstrip("/")
    return path == whole or path.startswith(whole + "/")


@lru_cache(maxsize=4_096)
def _rule_of_view(view: Callable[..., Any]) -> Rule | None:
    decorated: Rule | None = getattr(view, "ratelimit_rule", None)
    if decorated is not None:
        return decorated
    cls = getattr(view, "cls", None)  # DRF's as_view() leaves its class and arguments on the function
    if cls is None:
        return None
    arguments: Mapping[str, Any] = getattr(view, "initkwargs", {})

    def asked(name: str, default: Any) -> Any:
        return arguments.get(name, getattr(cls, name, default))

    throttles: Iterable[type] = asked("throttle_classes", ())
    if not any(getattr(throttle, "asks_limiter", False) for throttle in throttles):
        return None
    scope, cost = asked("throttle_scope", ""), asked("throttle_cost", 1)
    return Rule(
        scope=scope or "",
        cost=cost if isinstance(cost, int) else 1,
        is_drf=True,
        is_early=(
            isinstance(cost, int)
            and [vars(throttle).get("asks_limiter") for throttle in throttles] == [True]
            and [vars(first).get("reads_api_keys") for first in list(asked("authentication_classes", ()))[:1]] == [True]
            and all(_is_drfs_own(cls, name) for name in ("get_throttles", "get_authenticators", "initial", "dispatch"))
        ),
    )


def _is_drfs_own(cls: type, method: str) -> bool:
    return getattr(getattr(cls, method, None), "__module__", "").startswith("rest_framework.")
