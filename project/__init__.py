"""What runs the app here? The example and operations project; importing it makes its Celery app the current one."""

from project.celery import app as celery_app

__all__ = ["celery_app"]
