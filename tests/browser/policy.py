"""What would a strict site say about our pages? A middleware that sends a policy which forbids everything inline."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class StrictPolicy:
    """Stands in the tests' MIDDLEWARE, since a live server reads that once."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if request.path.startswith("/admin/"):
            response.headers["Content-Security-Policy"] = POLICY
        return response
