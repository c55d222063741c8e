"""What runs during the demo? Redis, the web server, the worker, beat and traffic, started and ended in order."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from project.demo import embedded_redis, processes

ROOT = Path(__file__).resolve().parent.parent.parent
WEB_WORKERS = 3
#: Here callers, web server, worker and Redis share the cores of one machine, so Redis may be slow through no fault.
PATIENCE = {"REDIS_TIMEOUT_SECONDS": "0.1", "REDIS_CONNECT_TIMEOUT_SECONDS": "0.2"}


class DemoError(Exception):
    """Something that the demo needs did not come up."""


class Servers:
    """The demo's children; leaving the block ends them, the last one started first."""

    def __init__(self, data_dir: Path, *, stopping: Callable[[], bool]) -> None:
        #: Log files, SQLite and what else the demo leaves behind.
        self.data_dir = data_dir
        #: What the children find in their environment beside ours.
        metrics = {"METRICS_FILE": str(data_dir / "metrics.sqlite3"), "METRICS_NETWORKS": "127.0.0.0/8"}
        self.environment = PATIENCE | metrics | os.environ | {"DATA_DIR": str(data_dir), "PYTHONPATH": str(ROOT)}
        self._stopping = stopping
        self._children: list[tuple[str, processes.Process]] = []

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        while self._children:
            _name, process = self._children.pop()
            processes.stop(process)

    def start_redis(self) -> str:
        """Use the Redis of `REDIS_URL`, or start an embedded one. Returns what was done, for people."""
        if url := os.environ.get("REDIS_URL"):
            return f"REDIS_URL ({url.rpartition('@')[2]})"
        port = processes.free_port()
        process = embedded_redis.start(data_dir=self.data_dir / "redis", port=port)
        self._children.append(("redis", process))
        self.environment["REDIS_URL"] = f"redis://127.0.0.1:{port}/0"
        return f"embedded Valkey on 127.0.0.1:{port}; REDIS_URL would name another"

    def seed(self, *, reset: bool) -> dict[str, Any]:
        """Migrate and make plans and keys. Returns what `seed.main` printed."""
        output = self.data_dir / "seed.out"
        output.touch(mode=0o600)
        try:
            process = self._start("seed", ["-m", "project.demo.seed", *(["--reset"] if reset else [])], output=output)
            while process.poll() is None:
                if self._stopping():
                    return {}
                time.sleep(0.05)
            text = output.read_text(errors="replace")
            self._children.pop()
            if processes.stop(process):
                raise DemoError(f"The database could not be prepared:\n{text.strip()[-2000:]}")
            seeded: dict[str, Any] = json.loads(text.splitlines()[-1])
        finally:
            output.unlink()  # keys are stored nowhere
        return seeded

    def start_web(self, port: int) -> None:
        """Start gunicorn, and wait until it answers."""
        # fmt: off
        process = self._start("web", [
            "-m", "gunicorn", "project.wsgi", "--bind", f"127.0.0.1:{port}", "--workers", str(WEB_WORKERS),
            "--worker-class", "gthread", "--threads", "8", "--graceful-timeout", "5", "--log-level", "warning",
        ])
        # fmt: on
        deadline = time.monotonic() + 30
        while not _answers(f"http://127.0.0.1:{port}/healthz"):
            if self._stopping():
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"The web server did not come up:\n{self._log('web').read_text()[-2000:]}")
            time.sleep(0.05)

    def start_worker(self) -> None:
        """Start a Celery worker, and beat."""
        celery = ["-m", "celery", "--app", "project"]
        self._start("worker", [*celery, "worker", "--concurrency", "2", "--loglevel", "WARNING", "--without-mingle"])
        schedule = ["--schedule", str(self.data_dir / "beat-schedule"), "--pidfile", ""]
        self._start("beat", [*celery, "beat", *schedule, "--loglevel", "WARNING"])

    def start_traffic(self, port: int, keys: list[dict[str, str]]) -> None:
        """Start the invented callers."""
        given = json.dumps({"port": port, "keys": keys})
        self._start("traffic", ["-m", "project.demo.traffic"], input_text=given)

    def check(self) -> None:
        """Raise DemoError when a child has ended by itself."""
        for name, process in self._children:
            if process.poll() is not None:
                log = self._log(name)
                raise DemoError(f"{name} ended with status {process.returncode}; the end of {log}:\n{_tail(log)}")

    def _start(
        self, name: str, arguments: list[str], *, input_text: str = "", output: Path | None = None
    ) -> processes.Process:
        log = output or self._log(name)
        if output is None:
            log.write_bytes(b"")
        process = processes.start(
            [sys.executable, *arguments],
            log_path=log,
            environment=self.environment,
            directory=ROOT,
            input_text=input_text,
        )
        self._children.append((name, process))
        return process

    def _log(self, name: str) -> Path:
        return self.data_dir / f"{name}.log"


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)
    except OSError:
        return False


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:].strip() if path.exists() else ""
