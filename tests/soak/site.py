"""What runs during a soak? The example project as people run it, each part a process of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from project.demo import processes
from tests.servers import RedisServer, wait_for_port

ROOT = Path(__file__).resolve().parent.parent.parent
THREADS = 8
#: The plans of a soak: numbers of their one limit, and what happens while Redis is down.
PLANS = {
    "fast": {"requests": 60_000, "period_seconds": 60, "burst": 1_000, "on_failure": "local"},
    "slow": {"requests": 60, "period_seconds": 60, "burst": 10, "on_failure": "local"},
    "window": {"requests": 100, "period_seconds": 5, "algorithm": "sliding_window", "on_failure": "local"},
    "leased": {"requests": 60_000, "period_seconds": 60, "burst": 1_000, "lease": True, "on_failure": "local"},
    "open": {"requests": 300, "period_seconds": 60, "burst": 50, "on_failure": "open"},
    "closed": {"requests": 6_000, "period_seconds": 60, "burst": 100, "on_failure": "closed"},
}


@dataclass(frozen=True)
class Use:
    """What one process holds, as the kernel counts it."""

    threads: int
    files: int
    memory_mb: float


class Web:
    """A server with one process that answers requests."""

    def __init__(self, name: str, process: processes.Process, *, port: int) -> None:
        self.name = name
        self.process = process
        self.port = port

    @property
    def pid(self) -> int:
        """Of the process that answers: a child, where the server has any."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else self.process.pid

    def use(self) -> Use:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return Use(
            threads=int(status["Threads"]),
            files=len(os.listdir(f"/proc/{self.pid}/fd")),
            memory_mb=int(status["VmRSS"].split()[0]) / 1024,
        )


class Site:
    """All of it; leaving the block ends what still runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = contextlib.ExitStack()
        self.limiter_redis = self._redis("limiter")
        self._broker = self._redis("broker")
        self.keys: dict[str, str] = {}
        self.webs: list[Web] = []
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "DEBUG": "0",
            "SECRET_KEY": "only for a soak",
            "ALLOWED_HOSTS": "127.0.0.1",
            "REDIS_URL": self.limiter_redis.url,
            "BROKER_URL": self._broker.url,
            "DATA_DIR": str(directory),
            "PYTHONPATH": str(ROOT),
        }

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def prepare(self) -> None:
        """Make the database, the plans, and a key for each."""
        import django

        django.setup()
        from django.core.management import call_command

        from ratelimit_app.models import APIKey, Plan

        call_command("migrate", verbosity=0)
        for slug, limit in PLANS.items():
            plan = Plan.objects.create(name=slug.title(), slug=slug)
            plan.limits.create(name=slug, **{"burst": 1, **limit})
            self.keys[slug] = APIKey.objects.create_key(plan=plan, name=slug)[1]

    def start(self) -> None:
        """Start the servers and the worker, and wait until the servers listen."""
        # Callers that are kept waiting find their connection closed otherwise, in the moment they use it again.
        # fmt: off
        gunicorn = ["gunicorn", "project.wsgi", "--worker-class", "gthread", "--threads", str(THREADS),
                    "--keep-alive", "75", "--log-level", "warning", "--bind"]
        uvicorn = ["uvicorn", "project.asgi:application",
                   "--timeout-keep-alive", "75", "--log-level", "warning", "--port"]
        # fmt: on
        self._start_web("gunicorn", gunicorn, address="127.0.0.1:{port}")
        self._start_web("uvicorn", uvicorn, address="{port}")
        self._start("worker", ["celery", "--app", "project", "worker", "--concurrency", "1", "--loglevel", "WARNING"])

    def stop_webs(self) -> None:
        """As a deployment does: what they still hold has to leave them first."""
        for web in self.webs:
            processes.stop(web.process)

    def _redis(self, name: str) -> RedisServer:
        server = RedisServer(self.directory / name)
        self._stack.callback(server.stop)
        return server

    def _start_web(self, name: str, arguments: list[str], *, address: str) -> None:
        port = processes.free_port()
        process = self._start(name, [*arguments, address.format(port=port)])
        wait_for_port(port, process=process, log_path=self.directory / f"{name}.log", seconds=60)
        self.webs.append(Web(name, process, port=port))

    def _start(self, name: str, arguments: list[str]) -> processes.Process:
        process = processes.start(
            [sys.executable, "-m", *arguments], log_path=self.directory / f"{name}.log", directory=ROOT
        )
        self._stack.callback(processes.stop, process)
        return process
