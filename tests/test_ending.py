"""Does a server that is told to stop lose what it counted? Real ones of each kind, with traffic until the end."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
import redis
import requests

from project.demo import processes
from tests import decisions, servers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

REQUESTS = 30
SERVERS = {
    "uvicorn": "uvicorn project.asgi:application --log-level warning --port {port}",
    "gunicorn-uvicorn": "gunicorn project.asgi --worker-class uvicorn_worker.UvicornWorker --bind 127.0.0.1:{port}",
    "gunicorn-threads": "gunicorn project.wsgi --threads 4 --bind 127.0.0.1:{port}",
}


@pytest.mark.parametrize("command", SERVERS.values(), ids=SERVERS)
def test_a_server_that_is_told_to_stop_sends_what_it_counted(
    command, redis_server, process_environment, make_plan, make_key, tmp_path
):
    key = make_key(make_plan("Api", 1, 3_600, REQUESTS))[1]
    server, port = redis_server(), processes.free_port()
    environment = {
        **process_environment,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "SECRET_KEY": "only for this test",
        "ALLOWED_HOSTS": "127.0.0.1",
        "REDIS_URL": server.url,
        "BROKER_URL": server.url.replace("/0", "/1"),
        "DATA_DIR": str(tmp_path),
        "REDIS_TIMEOUT_SECONDS": "5",
        "REDIS_CONNECT_TIMEOUT_SECONDS": "5",
    }
    log_path = tmp_path / "server.log"
    arguments = [sys.executable, "-m", *command.format(port=port).split()]
    with servers.running(arguments, log_path=log_path, environment=environment) as web:
        servers.wait_for_port(port, process=web, log_path=log_path, seconds=60)
        url, headers = f"http://127.0.0.1:{port}/async/ping/", {"Authorization": f"Bearer {key}"}
        statuses = Counter(requests.get(url, headers=headers, timeout=30).status_code for _ in range(REQUESTS))
        processes.stop(web, patience_seconds=60)
    assert statuses == {200: REQUESTS}  # nothing that would leave before the rest
    with redis.Redis(port=server.port, db=1) as broker:
        assert decisions.totals(decisions.queued(broker, queue="ratelimit_app")) == {"allowed": REQUESTS}
