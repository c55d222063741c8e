"""Do processes and the tasks of a worker stand in one line? Real ones, by the real clock."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.celery import app
from tests import pacing_line, servers
from tests.pacing_line import assert_spaced

pytestmark = pytest.mark.django_db(transaction=True)
crm = pytest.fixture(pacing_line.crm)

CHILD = """
import json, sys, time
import django
django.setup()
from ratelimit_app import plan_cache, usage
from ratelimit_app.pacing import paced

plan_cache.table()
print("ready", flush=True)
sys.stdin.readline()
turns = []
for _ in range(int(sys.argv[1])):
    with paced("crm"):
        turns.append(time.monotonic())
print(json.dumps(turns), flush=True)
usage.reset()
"""


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    return child.stdout.readline()


def test_processes_share_one_line(crm, process_environment) -> None:
    command = [sys.executable, "-c", CHILD, "5"]
    children = [
        subprocess.Popen(command, env=process_environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        assert [line_of(child) for child in children] == ["ready\n"] * 3
        since = time.monotonic()
        for child in children:
            assert child.stdin
            child.stdin.write("go\n")
            child.stdin.flush()
        turns = [turn for child in children for turn in json.loads(line_of(child))]
    finally:
        for child in children:
            child.communicate(timeout=20)

    assert len(turns) == 15
    assert_spaced(turns, since=since)


@pytest.fixture
def queue(process_environment, redis_server, prefix, tmp_path) -> Iterator[str]:
    """Where to send tasks: a worker with two processes listens."""
    usual, name = app.conf.broker_url, f"{prefix}-paced"
    app.conf.update(broker_url=redis_server().url)
    command = [sys.executable, "-m", "celery", "--app", "tests.celery_app", "worker", "-I", "tests.pacing_line"]
    options = "--concurrency 2 --loglevel INFO --without-mingle --without-gossip --without-heartbeat"
    environment = {**process_environment, "BROKER_URL": app.conf.broker_url}
    with servers.running(
        [*command, "-Q", name, *options.split()],
        log_path=tmp_path / "worker.log",
        environment=environment,
        directory=Path(__file__).parent.parent,
    ):
        yield name
    app.conf.update(broker_url=usual)


def test_tasks_of_a_worker_keep_to_the_rate(crm, queue, wait_until, tmp_path) -> None:
    written = tmp_path / "turns"

    def written_down() -> list[float]:
        return [float(line) for line in written.read_text().splitlines()] if written.exists() else []

    with app.connection_for_write(app.conf.broker_url) as connection:

        def send() -> None:
            app.send_task("tests.paced", kwargs={"path": str(written)}, queue=queue, connection=connection)

        send()
        wait_until(lambda: len(written_down()) == 1, seconds=60)  # the worker is up
        since = time.monotonic()
        for _ in range(6):
            send()

    wait_until(lambda: len(written_down()) == 7, seconds=30)
    assert_spaced(written_down()[1:], since=since)
