"""The door that tells DRF whose key a request carries."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import Error as DatabaseError  # InterfaceError is one too
from rest_framework import exceptions, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from ratelimit_app import callers, changes, key_cache, responses
from ratelimit_app.models import APIKey


class Unavailable(exceptions.APIException):
    """The key cannot be looked up right now."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = "The key cannot be looked up right now."
    default_code = "unavailable"
    wait = responses.UNAVAILABLE_RETRY_AFTER_SECONDS


class APIKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the APIKey and `request.user` to its owner, or to an anonymous user.

    Put it first in the list: DRF takes the challenge of a 401 from the first. No query once the
    key is in memory.
    """

    reads_api_keys = True

    def authenticate(self, request: Request) -> tuple[Any, APIKey] | None:
        text = callers.credential(request._request)
        if text is None:
            return None
        changes.watch()
        try:
            known = key_cache.find(text)
        except DatabaseError as failure:
            raise Unavailable from failure
        if known is None:
            raise exceptions.AuthenticationFailed(responses.UNAUTHORIZED)
        return known.owner or AnonymousUser(), known.row

    def authenticate_header(self, request: Request) -> str:
        return responses.challenge()
