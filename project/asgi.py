"""What does an ASGI server such as uvicorn load? This application; with DEBUG off, a proxy serves STATIC_ROOT."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

from ratelimit_app.ending import with_lifespan

application = with_lifespan(
    ASGIStaticFilesHandler(get_asgi_application()) if settings.DEBUG else get_asgi_application()
)
