"""The door of a single plain view, with or without the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutine
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest

from ratelimit_app import admission, callers, routes
from ratelimit_app.routes import KeyPolicy, Rule


def ratelimited(
    view: Callable[..., Any] | None = None, *, scope: str = "", cost: int = 1, key: KeyPolicy = "required"
) -> Any:
    """Limit a plain view, sync or async: `@ratelimited` or `@ratelimited(scope="export", cost=5)`.

    `cost` is in tokens. With `key="optional"` a caller without a key gets the plan for callers
    without one, and 401 where there is none. On a class, decorate its `dispatch`.
    """
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise ValueError(f"A cost is a whole number of tokens, at least 0, not {cost!r}.")
    if key not in ("required", "optional"):
        raise ValueError(f'key is "required" or "optional", not {key!r}.')
    rule = Rule(scope=scope, cost=cost, key=key)
    return _limit(view, rule) if view is not None else lambda view: _limit(view, rule)


def exempt(view: Callable[..., Any]) -> Callable[..., Any]:
    """Take a view out of limiting altogether."""
    view.ratelimit_exempt = True  # type: ignore[attr-defined]
    return view


def _limit(view: Callable[..., Any], rule: Rule) -> Callable[..., Any]:
    if iscoroutinefunction(view):

        @wraps(view)
        async def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if _is_decided(request):
                return await view(request, *args, **kwargs)
            refusal = await admission.aadmit(request, rule)
            return admission.finish(request, refusal or await view(request, *args, **kwargs))

    else:

        @wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if _is_decided(request):
                return view(request, *args, **kwargs)
            if _is_called_in_a_loop():  # the `dispatch` of a class of async methods
                return _alimited(request, *args, **kwargs)
            refusal = admission.admit(request, rule)
            return admission.finish(request, refusal or view(request, *args, **kwargs))

        async def _alimited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            response = await admission.aadmit(request, rule) or view(request, *args, **kwargs)
            return admission.finish(request, await response if iscoroutine(response) else response)

    limited.ratelimit_rule = rule  # type: ignore[attr-defined]
    return limited


def _is_called_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_decided(request: HttpRequest) -> bool:
    decision = callers.decision_on(request)
    return (decision is not None and not decision.provisional) or routes.is_exempt(request)
