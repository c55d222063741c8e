"""The door for DRF views: decides what the middleware could not, by the caller that DRF authenticated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rest_framework import exceptions, status
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ratelimit_app import callers, limiter, plan_cache, responses, routes
from ratelimit_app.addresses import client_address
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.models import APIKey


class CannotCheck(exceptions.APIException):
    """This request cannot be checked against its limit right now."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "This request cannot be checked against its limit right now."
    default_code = "unavailable"
    wait = responses.UNAVAILABLE_RETRY_AFTER_SECONDS


class KeyRequired(exceptions.APIException):
    """A valid API key is required."""

    status_code = status.HTTP_401_UNAUTHORIZED
    default_detail = responses.UNAUTHORIZED
    default_code = "not_authenticated"

    @property
    def auth_header(self) -> str:
        """DRF sends it as `WWW-Authenticate`, also for a view without authentication of its own."""
        return responses.challenge()


class PlanThrottle(BaseThrottle):
    """Limits a view by its caller's plan. Reads `throttle_scope` and `throttle_cost` of the view.

    A request that the middleware charged is not charged again. Without the middleware it decides
    alone, but then answers of 200 carry no rate headers.
    """

    asks_limiter = True

    _decision: Decision | None = None

    def allow_request(self, request: Request, view: Any) -> bool:
        http_request = request._request
        if routes.is_exempt(http_request):
            return True
        decision = callers.decision_on(http_request)
        if decision is None or decision.provisional:
            caller, scope = self._caller(request), getattr(view, "throttle_scope", None) or ""
            if not caller.key_id and not plan_cache.welcomes(caller, scope=scope):
                raise KeyRequired
            decision = limiter.check(
                caller,
                scope=scope,
                cost=getattr(view, "throttle_cost", 1),
                earlier=decision,
                route=routes.route_of(http_request),
                method=http_request.method or "",
            )
            callers.leave_decision(http_request, decision)
        self._decision = decision
        if not decision.allowed and responses.status_of(decision) == status.HTTP_503_SERVICE_UNAVAILABLE:
            raise CannotCheck
        return decision.allowed

    def wait(self) -> float | None:
        return self._decision.retry_after_seconds if self._decision else None

    def _caller(self, request: Request) -> Caller:
        if isinstance(request.auth, APIKey):
            return replace(request.auth.as_caller(), address=client_address(request._request.META))
        return callers.without_key(request._request, request.user)
