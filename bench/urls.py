"""Which views are asked over HTTP? The same answer behind different doors."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, path
from rest_framework.authentication import TokenAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import UserRateThrottle
from rest_framework.views import APIView

from ratelimit_app.authentication import APIKeyAuthentication
from ratelimit_app.decorators import ratelimited
from ratelimit_app.permissions import HasAPIKey
from ratelimit_app.throttling import PlanThrottle

ANSWER = {"answer": 42}


class Bare(APIView):
    """Who asks does not matter."""

    authentication_classes: list[type] = []
    permission_classes: list[type] = []

    def get(self, request: Request) -> Response:
        return Response(ANSWER)


class PerMinute(UserRateThrottle):
    rate = "1000/min"


class FewPerDay(UserRateThrottle):
    rate = "5/day"
    scope = "few"


class DRFs(Bare):
    authentication_classes = [TokenAuthentication]
    permission_classes = [IsAuthenticated]
    throttle_classes = [PerMinute]


class DRFsFew(DRFs):
    throttle_classes = [FewPerDay]


class Ours(Bare):
    authentication_classes = [APIKeyAuthentication]
    permission_classes = [HasAPIKey]
    throttle_classes = [PlanThrottle]


def plain(request: HttpRequest) -> JsonResponse:
    return JsonResponse(ANSWER)


async def coroutine(request: HttpRequest) -> JsonResponse:
    return JsonResponse(ANSWER)


urlpatterns: list[URLPattern] = [
    path("bare/", Bare.as_view()),
    path("drf/", DRFs.as_view()),
    path("drf-few/", DRFsFew.as_view()),
    path("ours/", Ours.as_view()),
    path("plain/", plain),
    path("plain-ours/", ratelimited()(plain)),
    path("async/", coroutine),
    path("async-ours/", ratelimited()(coroutine)),
]
