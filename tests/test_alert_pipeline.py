"""Does beat have a worker look, and is somebody told? Real processes; and what can be asked when they are gone."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import RequestFactory
from django.utils import timezone

from project import views
from ratelimit_app import alerts
from ratelimit_app.models import AlertMessage, Evaluation
from tests import statistics
from tests.receivers import receiver
from tests.servers import running

SETTINGS = """
import os
from kombu import Queue
from tests.settings import *

RATELIMIT_APP = {**RATELIMIT_APP, "ALERT_WEBHOOK_URL": os.environ["TEST_HOOK"], "SITE_URL": "https://ops.example.com"}
CELERY_BEAT_SCHEDULE = {"look": {"task": "ratelimit_app.tasks.watch", "schedule": 1.0, "options": {"expires": 60.0}}}
CELERY_TASK_DEFAULT_QUEUE = "usage"
CELERY_TASK_QUEUES = [Queue("usage"), Queue("alerts")]
CELERY_TASK_ROUTES = {
    "ratelimit_app.tasks.watch": {"queue": "alerts"},
    "ratelimit_app.tasks.send_alert": {"queue": "alerts"},
}
"""


@pytest.mark.django_db(transaction=True)
def test_beat_and_a_worker_tell_it_once(redis_server, process_environment, tmp_path, wait_until):
    (tmp_path / "alerted_settings.py").write_text(SETTINGS)
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=2)
    statistics.used("", at=minute, allowed=500, refused=500)
    options = "--concurrency 1 --loglevel INFO --without-mingle --without-gossip --without-heartbeat"
    log_path = tmp_path / "worker.log"
    with receiver() as hook:
        environment = {
            **process_environment,
            "BROKER_URL": redis_server().url,
            "DJANGO_SETTINGS_MODULE": "alerted_settings",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            "TEST_HOOK": hook.url,
        }
        command = [sys.executable, "-m", "celery", "--app", "project.celery", "worker", "--beat", *options.split()]
        command += ["--schedule", str(tmp_path / "schedule")]
        root = Path(__file__).parent.parent
        with running(command, log_path=log_path, environment=environment, directory=root):
            wait_until(lambda: AlertMessage.objects.exclude(sent_at=None).exists(), seconds=60)
            sent_at = timezone.now()
            wait_until(lambda: (alerts.evaluated_at() or sent_at) > sent_at, seconds=30)
        assert [json.loads(body)["alert"]["kind"] for *_, body in hook.received] == ["blocked"]
    assert "Traceback" not in log_path.read_text()


@pytest.mark.django_db
@pytest.mark.parametrize(("evaluated_seconds_ago", "status"), [(None, 503), (20, 200), (200, 200), (400, 503)], ids=str)
def test_a_monitor_outside_can_see_that_nobody_looks_any_more(evaluated_seconds_ago, status):
    if evaluated_seconds_ago is not None:
        then = timezone.now() - timedelta(seconds=evaluated_seconds_ago)
        Evaluation.objects.create(pk=1, evaluated_at=then)
    answer = views.healthz_alerts(RequestFactory().get("/healthz/alerts"))
    assert answer.status_code == status
    assert json.loads(answer.content)["healthy"] is (status == 200)
