"""Where are the tests' views?"""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import DefaultRouter

from ratelimit_app.metrics.views import metrics
from tests import views

router = DefaultRouter()
router.register("notes", views.ApiNotes, basename="notes")

api: list[URLPattern | URLResolver] = [
    path("ping/", views.api_ping, name="api-ping"),
    path("items/", views.ApiItems.as_view(), name="api-items"),
    path("costly/", views.ApiCostly.as_view(), name="api-costly"),
    path("search/", views.ApiSearch.as_view(), name="api-search"),
    path("login/", views.ApiLogin.as_view(), name="api-login"),
    path("outcome/<int:status>/", views.ApiOutcome.as_view(), name="api-outcome"),
    path("late/ping/", views.ApiLate.as_view(), name="api-late-ping"),
    path("late/outcome/<int:status>/", views.ApiLateOutcome.as_view(), name="api-late-outcome"),
    path("v1/", include([path("nested/", include(router.urls))])),
]

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include(api)),
    path("plain/ping/", views.plain_ping, name="plain-ping"),
    path("plain/outcome/<int:status>/", views.plain_outcome, name="plain-outcome"),
    path("plain/exempt/", views.plain_exempt, name="plain-exempt"),
    path("decorated/", views.decorated, name="decorated"),
    path("decorated/async/", views.async_decorated, name="async-decorated"),
    path("open/ping/", views.plain_ping, name="open-ping"),
    path("free/ping/", views.plain_ping, name="free-ping"),
    path("async/ping/", views.async_ping, name="async-ping"),
    path("async/outcome/<int:status>/", views.async_outcome, name="async-outcome"),
    path("healthz", views.healthz, name="healthz"),
    path("metrics", metrics, name="metrics"),
]
