"""What does a WSGI server such as gunicorn load? This application, which serves its static files too."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application
from whitenoise import WhiteNoise

# Around the application, not in its middleware: whitenoise's would cost async views a thread hop.
if settings.DEBUG:
    application = StaticFilesHandler(get_wsgi_application())
else:
    application = WhiteNoise(get_wsgi_application(), root=settings.STATIC_ROOT, prefix=settings.STATIC_URL)
