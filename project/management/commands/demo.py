"""How does it look when it runs? `manage.py demo` starts everything on this machine, and ends it again."""

from __future__ import annotations

import fcntl
import shutil
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from project import environment
from project.demo import processes, seed, terminal
from project.demo.servers import DemoError, Servers


class Command(BaseCommand):
    help = "Run the example project with plans, keys, a web server, a Celery worker and some traffic."
    requires_system_checks = []  # the children check; here nothing is set up yet

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seconds", type=float, help="End by itself after so many seconds.")
        parser.add_argument("--port", type=int, default=8000, help="Port of the web server (default: %(default)s).")
        parser.add_argument("--no-traffic", action="store_true", help="No invented callers: you make the requests.")
        parser.add_argument("--reset", action="store_true", help="Forget plans, keys and statistics first.")

    def handle(
        self, *args: Any, port: int, seconds: float | None, no_traffic: bool, reset: bool, **options: Any
    ) -> None:
        if not 0 < port < 65536 or not processes.port_is_free(port):
            raise CommandError(f"Port {port} cannot be used; --port names another: make demo ARGS='--port 8123'")
        data_dir = environment.data_dir().resolve()
        data_dir.mkdir(parents=True, exist_ok=True)
        with (data_dir / "lock").open("w") as lock, terminal.stop_on_signals() as stop:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandError(f"Another demo runs in {data_dir}; DATA_DIR names another place.") from None
            if reset:
                forget_files(data_dir)
            with Servers(data_dir, stopping=stop) as servers:
                try:
                    self.run(servers, stop, port=port, seconds=seconds, traffic=not no_traffic, reset=reset)
                except DemoError as failure:
                    raise CommandError(str(failure)) from failure
                self.say("Stopping", "…")
        self.say("Stopped", "Nothing of it runs any more.")

    def run(
        self,
        servers: Servers,
        stop: terminal.Stop,
        *,
        port: int,
        seconds: float | None,
        traffic: bool,
        reset: bool,
    ) -> None:
        self.say("Redis", servers.start_redis())
        self.say("Database", str(settings.DATABASES["default"]["NAME"]))
        seeded = servers.seed(reset=reset)
        if stop():
            return
        servers.start_worker()
        servers.start_web(port)
        if traffic:
            servers.start_traffic(port, seeded["keys"])
        servers.check()
        if stop():
            return
        self.describe(seeded, base=f"http://127.0.0.1:{port}", traffic=traffic, log_dir=servers.data_dir)
        deadline = time.monotonic() + (seconds if seconds is not None else float("inf"))
        with terminal.single_keys():
            while not stop() and (left := deadline - time.monotonic()) > 0:
                servers.check()
                terminal.wait(stop, seconds=min(left, 0.5))

    def describe(self, seeded: dict[str, Any], *, base: str, traffic: bool, log_dir: Path) -> None:
        """Say what there is to see: one line each, for people and for scripts."""
        key = next(key["key"] for key in seeded["keys"] if key["name"] == seed.TRY_IT)
        self.say("Dashboard", base + reverse("admin:ratelimit_app_overview_changelist"))
        self.say("Login", "ops / ops" if seeded["user"] else "yours: manage.py createsuperuser (DEBUG is off)")
        self.say("Try it", f'curl -i -H "Authorization: Bearer {key}" {base}/api/ping/')
        self.say("Watch", "X-RateLimit-Remaining counts down; the 21st call at once gets 429 with Retry-After, and")
        self.say("", "the dashboard shows it a second later. Edit a plan's limit there: the next call obeys.")
        if traffic:
            self.say("", "Some invented callers ask for more than they may: see who, and since when.")
        self.say("Metrics", base + reverse("metrics"))
        self.say("Logs", str(log_dir))
        self.say("Stop", "q or Ctrl+C")

    def say(self, label: str, text: str) -> None:
        self.stdout.write(f"{label:<11}{text}")
        self.stdout.flush()


def forget_files(data_dir: Path) -> None:
    """Delete what earlier runs left behind; a database that `DATABASE_URL` names is emptied by the seed instead."""
    for path in data_dir.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
