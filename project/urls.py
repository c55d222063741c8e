"""Where is what? The admin with its dashboard, a DRF API, two plain views, the health checks, and metrics."""

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from project import views
from ratelimit_app.metrics.views import metrics

urlpatterns = [
    path("", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
    path("api/ping/", views.APIPing.as_view(), name="api-ping"),
    path("api/items/", views.APIItems.as_view(), name="api-items"),
    path("api/login/", views.APILogin.as_view(), name="api-login"),
    path("plain/ping/", views.plain_ping, name="plain-ping"),
    path("async/ping/", views.async_ping, name="async-ping"),
    path("healthz", views.healthz, name="healthz"),
    path("healthz/alerts", views.healthz_alerts, name="healthz-alerts"),
    path("metrics", metrics, name="metrics"),
]
