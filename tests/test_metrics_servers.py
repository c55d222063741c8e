"""Do the metrics of a server with several processes add up, whichever of them is asked, and one of them killed?"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from project.demo import processes
from tests.servers import running, wait_for_port
from tests.test_metrics import parsed

TOKEN = "a token of ours"
SITE = """
import os
from tests.settings import *

RATELIMIT_APP = {
    **RATELIMIT_APP,
    "METRICS_TOKEN": "a token of ours",
    "METRICS_FILE": os.environ["TEST_METRICS_FILE"],
    "FLUSH_SECONDS": 0.05,
}
if __name__ == "metered":
    from django.core.wsgi import get_wsgi_application

    os.environ["DJANGO_SETTINGS_MODULE"] = "metered_settings"
    application = get_wsgi_application()
"""


def workers_of(pid: int) -> list[int]:
    """The processes that answer requests: the children of gunicorn's first."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the workers in /proc")
@pytest.mark.django_db(transaction=True)
def test_every_process_tells_of_all_of_them(make_plan, make_key, process_environment, tmp_path, wait_until):
    _, key = make_key(make_plan("Free", 1, 3600, 5))
    for name in ("metered_settings", "metered"):
        (tmp_path / f"{name}.py").write_text(SITE)
    port = processes.free_port()
    log_path = tmp_path / "web.log"
    environment = {
        **process_environment,
        "DJANGO_SETTINGS_MODULE": "metered_settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "TEST_METRICS_FILE": str(tmp_path / "metrics.sqlite3"),
        "BROKER_URL": "redis://127.0.0.1:1/0",  # nothing of this needs a queue
    }
    command = [sys.executable, "-m", "gunicorn", "metered", "--workers", "3", "--bind", f"127.0.0.1:{port}"]
    with running(command, log_path=log_path, environment=environment, directory=tmp_path) as server:
        wait_for_port(port, process=server, log_path=log_path)

        def call(count: int) -> list[int]:
            address, headers = f"http://127.0.0.1:{port}/plain/ping/", {"Authorization": f"Bearer {key}"}
            # A connection each: they meet different processes.
            return [requests.get(address, headers=headers, timeout=30).status_code for _ in range(count)]

        def told() -> dict[str, dict[tuple[str, ...], float]]:
            address, headers = f"http://127.0.0.1:{port}/metrics", {"Authorization": f"Bearer {TOKEN}"}
            return parsed(requests.get(address, headers=headers, timeout=30).text)

        def outcomes() -> tuple[float, float]:
            found = told().get("ratelimit_decisions_total", {})
            return tuple(  # type: ignore[return-value]
                sum(count for (outcome, _), count in found.items() if outcome == wanted)
                for wanted in ("allowed", "refused")
            )

        statuses = call(60)
        expected = (statuses.count(200), statuses.count(429))
        assert sum(expected) == 60
        wait_until(lambda: outcomes() == expected, seconds=60)
        for _ in range(10):
            assert outcomes() == expected
        assert 1 <= told()["ratelimit_processes"][()] <= 3

        for pid in workers_of(server.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: _answers(call), seconds=30)
        wait_until(lambda: sum(outcomes()) >= 61, seconds=60)  # what was counted before is still told
        assert outcomes()[0] == expected[0]


def _answers(call: Callable[[int], list[int]]) -> bool:
    try:
        return call(1) == [429]
    except requests.ConnectionError:
        return False
