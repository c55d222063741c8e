"""What is the project that is measured? Our app and the others, on one Redis; `bench.place` says where that is."""

import os

REDIS_URL = os.environ["REDIS_URL"]

SECRET_KEY = "only for measurements"
USE_TZ = True
ROOT_URLCONF = "bench.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "rest_framework",
    "rest_framework.authtoken",
    "ratelimit_app",
]
MIDDLEWARE = ["ratelimit_app.middleware.RateLimitMiddleware"] if os.environ.get("BENCH_MIDDLEWARE") else []

if "DATABASE_URL" in os.environ:
    from project import environment

    DATABASES = {"default": environment.database(os.environ["DATABASE_URL"])}
    DATABASES["default"]["CONN_MAX_AGE"] = None  # or each token that DRF looks up would open a connection

CACHES = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL},
    "django": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL},
    "ratelimit": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"CONNECTION_FACTORY": "ratelimit_app.connections.ConnectionFactory"},
    },
}
RATELIMIT_APP = {
    "PREFIX": os.environ.get("BENCH_PREFIX", "bench"),
    # On a busy machine 5 ms would turn some decisions into others; `bench.outage` sets the real ones.
    "TIMEOUT_SECONDS": float(os.environ.get("BENCH_TIMEOUT_SECONDS", "1")),
    "CONNECT_TIMEOUT_SECONDS": float(os.environ.get("BENCH_TIMEOUT_SECONDS", "1")),
    # The heartbeat and the look for edits would be counted as round trips of whoever is measured.
    "POLL_SECONDS": float(os.environ.get("BENCH_POLL_SECONDS", "0")),
}
RATELIMIT_USE_CACHE = "default"  # django-ratelimit
RATELIMIT_BACKEND, RATELIMIT_REDIS = "redis", {"url": REDIS_URL}  # django-smart-ratelimit
RATELIMIT_PLUS = {"REDIS_URL": REDIS_URL}  # drf-ratelimit-plus
REST_FRAMEWORK = {"DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"]}
CELERY_BROKER_URL = os.environ.get("BROKER_URL", REDIS_URL)
CELERY_TASK_DEFAULT_QUEUE = "bench"
# What is broken here is broken on purpose, and writing about it costs time.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {name: {"level": "CRITICAL"} for name in ("django.request", "ratelimit_app")},
}
