"""Which views do the tests call? Small ones, of each kind that a door must handle."""

from __future__ import annotations

import asyncio

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions, viewsets
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ratelimit_app.decorators import exempt, ratelimited

# --- Plain Django: limited by the middleware, where PATHS names their prefix -------------------


def plain_ping(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ping": "plain"})


def plain_outcome(request: HttpRequest, status: int) -> HttpResponse:
    """Ends in this status, the way that views usually get there."""
    if status == 404:
        raise Http404("no such thing")
    if status == 403:
        raise PermissionDenied("not yours")
    if status == 400:
        raise SuspiciousOperation("odd")
    if status == 500:
        raise RuntimeError("broken on purpose")
    return JsonResponse({"status": status}, status=status)


async def async_ping(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return JsonResponse({"ping": "async"})


def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


# --- Django REST framework: key, permission and throttle come from the settings ----------------


@api_view(["GET", "POST"])
def api_ping(request: Request) -> Response:
    return Response({"ping": "api"})


class ApiItems(APIView):
    def get(self, request: Request) -> Response:
        return Response({"items": ["one", "two"]})


class ApiCostly(APIView):
    """One request costs five tokens."""

    throttle_cost = 5

    def get(self, request: Request) -> Response:
        return Response({"cost": 5})


class ApiSearch(APIView):
    """Limits with the scope "search" count here, and only here."""

    throttle_scope = "search"

    def get(self, request: Request) -> Response:
        return Response({"found": []})


class ApiLogin(APIView):
    """No key: whoever asks is counted by address."""

    authentication_classes: list[type] = []
    permission_classes: list[type] = []
    throttle_scope = "login"

    def post(self, request: Request) -> Response:
        return Response({"login": "refused"}, status=403)


class ApiOutcome(APIView):
    """Ends in this status, the way that DRF views usually get there."""

    def get(self, request: Request, status: int) -> Response:
        if status == 404:
            raise Http404("no such thing")
        if status == 403:
            raise exceptions.PermissionDenied("not yours")
        if status == 400:
            raise exceptions.ValidationError({"name": ["This field is required."]})
        if status == 500:
            raise RuntimeError("broken on purpose")
        return Response({"status": status}, status=status)


class ApiNotes(viewsets.ViewSet):
    throttle_scope = ""  # DRF wants the attribute on the class before an @action may set it
    """Reached through a router and a nested include."""

    def list(self, request: Request) -> Response:
        return Response({"notes": []})

    @action(detail=False, throttle_scope="search")
    def search(self, request: Request) -> Response:
        return Response({"notes": []})


# --- Plain Django with the decorator: limited with and without the middleware ------------------


@ratelimited(scope="search", cost=2)
def decorated(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ping": "decorated"})


@ratelimited(scope="search", cost=2)
async def async_decorated(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ping": "decorated"})


@exempt
def plain_exempt(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ping": "exempt"})


# --- DRF that the middleware cannot read ahead: throttles chosen at run time -------------------


class ApiLate(APIView):
    """`PlanThrottle` decides here; the middleware only writes the headers."""

    def get_throttles(self) -> list[BaseThrottle]:
        return super().get_throttles()

    def get(self, request: Request) -> Response:
        return Response({"ping": "late"})


class ApiLateOutcome(ApiOutcome):
    def get_throttles(self) -> list[BaseThrottle]:
        return super().get_throttles()


def bare_exception_handler(error: Exception, context: object) -> Response | None:
    """What some sites put into `EXCEPTION_HANDLER`: answers afresh, without the headers DRF would send."""
    status = 404 if isinstance(error, Http404) else getattr(error, "status_code", None)
    return Response({"error": type(error).__name__}, status=status) if status else None


# --- Plain async -------------------------------------------------------------------------------


async def async_outcome(request: HttpRequest, status: int) -> HttpResponse:
    return plain_outcome(request, status)
