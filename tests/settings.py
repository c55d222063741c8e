"""What is the smallest project that runs the app? This one. tests/conftest.py says where its servers are."""

import os
from pathlib import Path

from project import environment

REDIS_URL = environment.text("REDIS_URL", "redis://127.0.0.1:6379/0")
BROKER_URL = environment.text("BROKER_URL", environment.next_redis_database(REDIS_URL))

SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["*"]
STATIC_URL = "/static/"
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}  # for Django 6.1
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "corsheaders",
    "rest_framework",
    "ratelimit_app",
]

MIDDLEWARE = [
    "corsheaders.middleware.CorsMiddleware",
    "ratelimit_app.middleware.RateLimitMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tests.browser.policy.strict_policy",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": environment.database(environment.text("DATABASE_URL", "sqlite:///tests.sqlite3"))}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not memory: threads and child processes of the tests open it too.
    DATABASES["default"]["TEST"] = {"NAME": str(Path(DATABASES["default"]["NAME"]).with_suffix(".test.sqlite3"))}

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "ratelimit": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"CONNECTION_FACTORY": "ratelimit_app.connections.ConnectionFactory"},
    },
}

RATELIMIT_APP = {
    # A busy machine must not fail a test; tests of faults set their own.
    "TIMEOUT_SECONDS": 1.0,
    "CONNECT_TIMEOUT_SECONDS": 1.0,
    # A poller would read the database behind a test's back; tests of polling set their own.
    "POLL_SECONDS": 0,
    # The `process_environment` fixture hands a test's own prefix to its child processes.
    "PREFIX": os.environ.get("TEST_PREFIX", "test"),
    "PATHS": {"/plain/": "required", "/async/": "required", "/open/": "optional"},
    "EXEMPT_PATHS": ["/healthz"],
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["ratelimit_app.authentication.APIKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["ratelimit_app.permissions.HasAPIKey"],
    "DEFAULT_THROTTLE_CLASSES": ["ratelimit_app.throttling.PlanThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "UNAUTHENTICATED_USER": None,
}

CORS_ALLOWED_ORIGINS = ["https://app.example.com"]
CORS_EXPOSE_HEADERS = [
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
]

CELERY_BROKER_URL = BROKER_URL
CELERY_TASK_DEFAULT_QUEUE = "tests"
