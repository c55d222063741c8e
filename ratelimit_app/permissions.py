"""The door that lets only callers with a key into a DRF view."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ratelimit_app import responses
from ratelimit_app.models import APIKey


class HasAPIKey(BasePermission):
    """Passes a request that `APIKeyAuthentication` found a usable key on."""

    message = responses.UNAUTHORIZED

    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, APIKey)
