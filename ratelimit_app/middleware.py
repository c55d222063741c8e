"""The door in front of all views: decides before DRF starts, and writes the headers on the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ratelimit_app import admission, callers, routes


class RateLimitMiddleware:
    """Limits DRF views with `PlanThrottle`, decorated views, and views below `RATELIMIT_APP["PATHS"]`.

    Every other request meets the limits per address of plans for everyone. Put it right
    below CORS middleware, so that browsers can read a refusal and every answer gets its headers.
    The decision stays on `request.ratelimit`.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)
            self.process_view = self._aprocess_view  # type: ignore[method-assign, assignment]

    def __call__(self, request: HttpRequest) -> Any:
        request.ratelimit = None  # type: ignore[attr-defined]  # there to be read on exempt requests too
        if self.is_async:
            return self._acall(request)
        response = self.get_response(request)
        if _met_no_view(request):
            response = admission.admit(request, None) or response
        return admission.finish(request, response)

    async def _acall(self, request: HttpRequest) -> HttpResponseBase:
        response = await cast("Awaitable[HttpResponseBase]", self.get_response(request))
        if _met_no_view(request):
            response = await admission.aadmit(request, None) or response
        return admission.finish(request, response)

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        if routes.is_exempt(request):
            return None
        return admission.admit(request, routes.rule_for(request, view))

    async def _aprocess_view(
        self, request: HttpRequest, view: Callable[..., Any], args: Any, kwargs: Any
    ) -> HttpResponse | None:
        if routes.is_exempt(request):
            return None
        return await admission.aadmit(request, routes.rule_for(request, view))


def _met_no_view(request: HttpRequest) -> bool:
    """Whether the path led nowhere, and nobody decided yet."""
    return request.resolver_match is None and callers.decision_on(request) is None and not routes.is_exempt(request)
