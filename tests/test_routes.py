"""What does a view ask of the limiter? Read from decorators, DRF classes, `@action` and paths."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import ResolverMatch, URLPattern, path, resolve
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework import viewsets
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import AnonRateThrottle
from rest_framework.views import APIView

from ratelimit_app import routes
from ratelimit_app.authentication import APIKeyAuthentication
from ratelimit_app.decorators import exempt, ratelimited
from ratelimit_app.routes import Rule
from ratelimit_app.throttling import PlanThrottle


def rule_of(view: Any, url: str = "/somewhere/") -> Rule | None:
    return routes.rule_for(RequestFactory().get(url), view)


# --- Plain views -------------------------------------------------------------------------------------------


def plain(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse("plain")


def test_a_plain_view_asks_for_nothing_outside_of_the_paths():
    assert rule_of(plain) is None


@pytest.mark.parametrize(
    ("paths", "url", "key"),
    [
        ({"/api/": "required"}, "/api/x", "required"),
        ({"/api": "required"}, "/api", "required"),
        ({"/api/": "required"}, "/apiary/", None),
        ({"/api": "required"}, "/apiary/", None),
        ({"/api/": "required"}, "//api/x", None),
        ({"/api/": "required", "/api/open/": "optional"}, "/api/open/x", "optional"),
        ({"/api/open/": "optional", "/api/": "required"}, "/api/open/x", "optional"),
        ({"/api/": "required", "/api/open/": "optional"}, "/api/opened", "required"),
        ({"/": "optional"}, "/anything", "optional"),
        ({}, "/anything", None),
    ],
)
def test_paths_are_matched_by_whole_segments_and_the_longest_wins(paths, url, key, configure):
    configure(PATHS=paths)
    rule = rule_of(plain, url)
    assert (rule.key if rule else None) == key


def test_a_decorator_says_scope_cost_and_key():
    assert rule_of(ratelimited(plain)) == Rule()
    decorated = ratelimited(scope="export", cost=5, key="optional")(plain)
    assert rule_of(decorated) == Rule(scope="export", cost=5, key="optional")
    assert rule_of(decorated, "/plain/") == Rule(scope="export", cost=5, key="optional")  # before the path's


@pytest.mark.parametrize("wrong", [{"cost": -1}, {"cost": 1.5}, {"cost": True}, {"key": "maybe"}])
def test_a_decorator_that_makes_no_sense_is_refused_where_it_is_written(wrong):
    with pytest.raises(ValueError):
        ratelimited(**wrong)


def test_a_decorated_dispatch_of_a_class_is_read_too():
    @method_decorator(ratelimited(scope="export", cost=2), name="dispatch")
    class Export(View):
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    assert rule_of(Export.as_view()) == Rule(scope="export", cost=2)


# --- DRF -----------------------------------------------------------------------------------------------------


class Searched(APIView):
    throttle_scope = "search"
    throttle_cost = 3


@api_view(["GET"])
def function(request: Request) -> Response:
    return Response()


@api_view(["GET"])
@throttle_classes([])
def unthrottled(request: Request) -> Response:
    return Response()


def test_a_drf_view_says_scope_and_cost_by_its_class():
    assert rule_of(Searched.as_view()) == Rule(scope="search", cost=3, is_drf=True)
    assert rule_of(Searched.as_view(throttle_scope="other")) == Rule(scope="other", cost=3, is_drf=True)
    assert rule_of(function) == Rule(is_drf=True)


def test_a_drf_view_without_our_throttle_asks_for_nothing():
    assert rule_of(unthrottled) is None
    assert rule_of(Searched.as_view(throttle_classes=[AnonRateThrottle])) is None


class Notes(viewsets.ViewSet):
    throttle_scope = ""
    throttle_cost = 1

    def list(self, request: Request) -> Response:
        return Response()

    @action(detail=False, throttle_scope="search", throttle_cost=7)
    def search(self, request: Request) -> Response:
        return Response()

    @action(detail=False, throttle_classes=[])
    def free(self, request: Request) -> Response:
        return Response()


def test_an_action_says_its_own_scope_and_cost():
    router = SimpleRouter()
    router.register("notes", Notes, basename="notes")
    views: dict[str, Any] = {url.name: url.callback for url in router.urls if isinstance(url, URLPattern) and url.name}
    assert rule_of(views["notes-list"]) == Rule(is_drf=True)
    assert rule_of(views["notes-search"]) == Rule(scope="search", cost=7, is_drf=True)
    assert rule_of(views["notes-free"]) is None


class Chosen(PlanThrottle):
    """A throttle of the project's own."""


class Late:
    """What DRF may only know once it has started."""

    class Throttles(APIView):
        def get_throttles(self) -> list[Any]:
            return [PlanThrottle()]

    class Authenticators(APIView):
        def get_authenticators(self) -> list[Any]:
            return [APIKeyAuthentication()]

    class Initial(APIView):
        def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
            super().initial(request, *args, **kwargs)

    class Dispatch(APIView):
        def dispatch(self, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(*args, **kwargs)

    class Cost(APIView):
        @property
        def throttle_cost(self) -> int:
            return 2

    class Subclass(APIView):
        throttle_classes = [Chosen]

    class Several(APIView):
        throttle_classes = [PlanThrottle, AnonRateThrottle]

    class OtherFirst(APIView):
        authentication_classes = [SessionAuthentication, APIKeyAuthentication]

    class Nobody(APIView):
        authentication_classes: list[type] = []


LATE = [Late.Throttles, Late.Authenticators, Late.Initial, Late.Dispatch, Late.Cost]
LATE += [Late.Subclass, Late.Several, Late.OtherFirst, Late.Nobody]


@pytest.mark.parametrize("view", LATE, ids=lambda view: view.__name__)
def test_what_only_drf_can_know_is_left_to_the_throttle(view):
    rule = rule_of(view.as_view())
    assert rule is not None
    assert (rule.is_drf, rule.is_early) == (True, False)


def test_api_keys_first_and_others_behind_them_are_decided_early():
    view = Searched.as_view(authentication_classes=[APIKeyAuthentication, SessionAuthentication])
    rule = rule_of(view)
    assert rule is not None
    assert rule.is_early


# --- Free of charge ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "is_free"),
    [
        ("/healthz", True),
        ("/healthz/", True),
        ("/healthz/db", True),
        ("/healthzz", False),
        ("/healthz.php", False),
        ("/HEALTHZ", False),
        ("//healthz", False),
        ("/x/healthz", False),
    ],
)
def test_exempt_paths_are_matched_by_whole_segments(url, is_free, configure):
    configure(EXEMPT_PATHS=["/healthz"])
    request = RequestFactory().get("/")
    request.path_info = url
    assert routes.is_exempt(request) == is_free


def test_only_a_real_preflight_is_free():
    factory = RequestFactory()
    asks = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert routes.is_exempt(factory.options("/", headers=asks))
    assert not routes.is_exempt(factory.get("/", headers=asks))
    for missing in asks:
        assert not routes.is_exempt(factory.options("/", headers={k: v for k, v in asks.items() if k != missing}))


def test_an_exempt_view_is_free_whatever_kind_it_is():
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    @method_decorator(exempt, name="dispatch")
    class Free(View):
        pass

    def is_free(view: Any) -> bool:
        request = RequestFactory().get("/somewhere/")
        request.resolver_match = ResolverMatch(view, (), {})
        return routes.is_exempt(request)

    assert not is_free(plain)
    assert is_free(exempt(view))
    assert is_free(Free.as_view())
    assert is_free(exempt(Searched.as_view()))


# --- What a route is called ------------------------------------------------------------------------------------

urlpatterns = [path("items/<int:pk>/", plain)]


@pytest.mark.urls(__name__)
def test_a_route_is_named_by_its_pattern_and_not_by_its_path():
    request = RequestFactory().get("/items/5/")
    assert routes.route_of(request) == ""
    request.resolver_match = resolve("/items/5/")
    assert routes.route_of(request) == "items/<int:pk>/"
