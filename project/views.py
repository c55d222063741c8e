"""What does the example API answer? Each kind of view that the app can limit, as small as it gets."""

from __future__ import annotations

import asyncio

from django.contrib.auth import authenticate
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import alerts
from ratelimit_app.authentication import APIKeyAuthentication
from ratelimit_app.permissions import HasAPIKey
from ratelimit_app.throttling import PlanThrottle

#: Alerts are evaluated every minute: a silence of so long means that beat or the worker stand still.
ALERTS_STOPPED_AFTER_SECONDS = 300

ITEMS = [
    {"id": 1, "name": "Kettle", "price": "24.90"},
    {"id": 2, "name": "Teapot", "price": "31.50"},
    {"id": 3, "name": "Strainer", "price": "4.20"},
]


class APIPing(APIView):
    """Asks for a key and limits by its plan; the three lines are also the defaults in settings.py."""

    authentication_classes = [APIKeyAuthentication]
    permission_classes = [HasAPIKey]
    throttle_classes = [PlanThrottle]

    def get(self, request: Request) -> Response:
        return Response({"ping": "pong"})


class APIItems(APIView):
    """The same by the defaults; a limit of the plan with the scope "items" would count only here."""

    throttle_scope = "items"

    def get(self, request: Request) -> Response:
        return Response({"items": ITEMS})


class Credentials(serializers.Serializer[None]):
    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=128, trim_whitespace=False)


class APILogin(APIView):
    """No key: whoever tries is counted by address, and refused with 503 while nothing can count."""

    authentication_classes = []
    permission_classes = []
    throttle_classes = [PlanThrottle]
    throttle_scope = "login"

    def post(self, request: Request) -> Response:
        credentials = Credentials(data=request.data)
        credentials.is_valid(raise_exception=True)
        user = authenticate(request._request, **credentials.validated_data)
        if user is None:
            return Response({"detail": "Wrong user name or password."}, status=status.HTTP_403_FORBIDDEN)
        return Response({"user": user.get_username()})


def plain_ping(request: HttpRequest) -> HttpResponse:
    """A plain view: the middleware limits it, because settings.py lists /plain/ in PATHS."""
    return JsonResponse({"ping": "pong"})


async def async_ping(request: HttpRequest) -> HttpResponse:
    """An async view: under ASGI it is limited without leaving the event loop."""
    await asyncio.sleep(0)
    return JsonResponse({"ping": "pong"})


def healthz(request: HttpRequest) -> HttpResponse:
    """Says that this process answers; exempt, so a load balancer never runs into a limit."""
    return JsonResponse({"healthy": True})


def healthz_alerts(request: HttpRequest) -> HttpResponse:
    """Says whether somebody still looks for what is wrong: for a monitor outside, since a dead worker tells nobody."""
    try:
        at = alerts.evaluated_at()
    except DatabaseError:
        at = None
    age_seconds = None if at is None else round((timezone.now() - at).total_seconds())
    healthy = age_seconds is not None and age_seconds <= ALERTS_STOPPED_AFTER_SECONDS
    return JsonResponse({"healthy": healthy, "evaluated_seconds_ago": age_seconds}, status=200 if healthy else 503)
