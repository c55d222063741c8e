"""Which Celery app do the workers of the tests run? The project's, with a broker that is quick to deliver again."""

import os

from project.celery import app

if app.conf.broker_url.startswith("redis"):
    app.conf.broker_transport_options = {
        # After how long a killed worker's batches are given to another one: an hour, where nobody says otherwise.
        "visibility_timeout": int(os.environ.get("TEST_VISIBILITY_SECONDS", "2")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }
app.conf.worker_lost_wait = 1  # seconds until a killed child process is given up
