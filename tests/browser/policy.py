"""What would a strict site say about our pages? A middleware that sends a policy which forbids everything inline."""

from __future__ import annotations

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@sync_and_async_middleware
def strict_policy(get_response: Any) -> Any:
    """Stands in the tests' MIDDLEWARE, since a live server reads that once. Async too, or nothing would be."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return _with_policy(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        return _with_policy(request, get_response(request))

    return answer


def _with_policy(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if request.path.startswith("/admin/"):
        response.headers["Content-Security-Policy"] = POLICY
    return response
