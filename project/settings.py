"""How is this deployment set up? One file, every value that differs between machines from the environment.

DEBUG         1 to look around; off (the default) refuses to start without the values marked *
SECRET_KEY  * signs sessions
REDIS_URL   * holds the buckets: an instance of its own, with maxmemory-policy noeviction
BROKER_URL    carries usage to the Celery worker; by default the same Redis, its next database
DATABASE_URL  postgresql://user:password@host:port/name; by default an SQLite file in DATA_DIR
DATA_DIR      where that file and what the demo leaves behind lie; by default .demo
ALLOWED_HOSTS, CSRF_TRUSTED_ORIGINS, CORS_ALLOWED_ORIGINS, TRUSTED_PROXIES   lists, separated by commas
PROXY_COUNT   how many of your own proxies append to X-Forwarded-For
REDIS_TIMEOUT_SECONDS   longest wait for a decision of Redis; by default 0.005
REDIS_CONNECT_TIMEOUT_SECONDS   longest wait for a connection to it; by default 0.02
SECURE_COOKIES          1 sends cookies over HTTPS only; by default 1 when DEBUG is off
"""

from pathlib import Path

from project import environment

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = environment.data_dir()

DEBUG = environment.flag("DEBUG", default=False)
if DEBUG:
    SECRET_KEY = environment.text("SECRET_KEY", "only for looking around")
    REDIS_URL = environment.text("REDIS_URL", "redis://127.0.0.1:6379/0")
else:
    SECRET_KEY = environment.required("SECRET_KEY", because="it signs sessions, and DEBUG is off")
    REDIS_URL = environment.required("REDIS_URL", because="it holds the buckets, and DEBUG is off")
BROKER_URL = environment.text("BROKER_URL", environment.next_redis_database(REDIS_URL))

ALLOWED_HOSTS = environment.words("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = environment.words("CSRF_TRUSTED_ORIGINS")

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
    "project",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "ratelimit_app.middleware.RateLimitMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
WSGI_APPLICATION = "project.wsgi.application"
ASGI_APPLICATION = "project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
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

if not environment.text("DATABASE_URL"):
    DATA_DIR.mkdir(parents=True, exist_ok=True)
DATABASES = {
    "default": environment.database(environment.text("DATABASE_URL", f"sqlite:///{DATA_DIR.resolve() / 'db.sqlite3'}"))
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "ratelimit": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"CONNECTION_FACTORY": "ratelimit_app.connections.ConnectionFactory"},
    },
}

# --- What this project is an example of --------------------------------------------------------

RATELIMIT_APP = {
    "PATHS": {"/plain/": "required", "/async/": "required"},
    "EXEMPT_PATHS": ["/healthz", "/admin/", "/static/"],
    "TIMEOUT_SECONDS": environment.seconds("REDIS_TIMEOUT_SECONDS", default=0.005),
    "CONNECT_TIMEOUT_SECONDS": environment.seconds("REDIS_CONNECT_TIMEOUT_SECONDS", default=0.02),
    "TRUSTED_PROXIES": environment.words("TRUSTED_PROXIES"),
    "PROXY_COUNT": environment.number("PROXY_COUNT", default=0),
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["ratelimit_app.authentication.APIKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["ratelimit_app.permissions.HasAPIKey"],
    "DEFAULT_THROTTLE_CLASSES": ["ratelimit_app.throttling.PlanThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}

CORS_ALLOWED_ORIGINS = environment.words("CORS_ALLOWED_ORIGINS")
CORS_EXPOSE_HEADERS = [
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
]

CELERY_BROKER_URL = BROKER_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_DEFAULT_QUEUE = "ratelimit_app"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "sum up the hours and days that are over": {
        "task": "ratelimit_app.tasks.roll_up",
        "schedule": 300.0,
        "options": {"expires": 300.0},
    },
    "prune what is older than it must be kept": {
        "task": "ratelimit_app.tasks.prune",
        "schedule": 3600.0,
        "options": {"expires": 3600.0},
    },
}

# --- The rest of Django ------------------------------------------------------------------------

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"

LOGIN_URL = "admin:login"
SECURE_CONTENT_TYPE_NOSNIFF = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = environment.flag("SECURE_COOKIES", default=not DEBUG)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name} {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "ratelimit_app": {"level": "INFO"},
        # A 429 or 401 of a caller is not an event of ours; a 500 still is.
        "django.request": {"level": "ERROR"},
    },
}
