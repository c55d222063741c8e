"""What does a reader get who does exactly what a page says? A project in a directory of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests

from project.demo import processes
from tests.servers import RedisServer, running, wait_for_port

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(page: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    return (ROOT / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def fences(text: str, *languages: str) -> Iterator[tuple[str, str]]:
    """(language, code) of each code block, in order."""
    for language, code in FENCE.findall(text):
        if not languages or language in languages:
            yield language, code


class Project:
    """A project in a directory of its own, built by following a page."""

    def __init__(self, directory: Path, redis: RedisServer, stack: ExitStack) -> None:
        self.directory = directory
        self.redis = redis
        self.port = processes.free_port()
        self.key = ""
        #: Statuses of the requests that the page made.
        self.statuses: list[int] = []
        self.environment = {
            "DJANGO_SETTINGS_MODULE": "shop.settings",
            "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}",
            "DJANGO_SUPERUSER_USERNAME": "ann",
            "DJANGO_SUPERUSER_EMAIL": "ann@example.com",
            "DJANGO_SUPERUSER_PASSWORD": "a password of ann",
        }
        self._stack = stack
        self._server = stack.enter_context(ExitStack())
        self._is_served = False

    def run(self, *command: str) -> str:
        """Run a command in the project and return what it printed; fails when the command does."""
        done = subprocess.run(
            command, cwd=self.directory, env={**os.environ, **self.environment}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, text: str) -> None:
        """Do what a part of a page says: write its files, run its commands."""
        for language, code in fences(text, "python", "sh"):
            if language == "sh":
                for line in code.splitlines():
                    self._obey(line)
            elif code.startswith("# python manage.py shell\n"):
                self.run(sys.executable, "manage.py", "shell", "-c", code)
            else:
                path = re.match(r"# (\S+\.py)\n", code)
                assert path, f"it is not said where this belongs: {code}"
                self.append(path[1], code)

    def append(self, path: str, code: str) -> None:
        """Add code to the end of a file, with the address of this test's Redis in it."""
        with (self.directory / path).open("a") as file:
            file.write(code.replace("redis://127.0.0.1:6379", f"redis://127.0.0.1:{self.redis.port}"))

    def serve(self) -> None:
        """Start the server, or start it again."""
        self._server.close()
        log_path = self.directory / "server.log"
        command = [sys.executable, str(self.directory / "manage.py"), "runserver", "--noreload", str(self.port)]
        server = self._server.enter_context(running(command, log_path=log_path, environment=self.environment))
        wait_for_port(self.port, process=server, log_path=log_path)

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{self.port}{path}", timeout=10, **options)

    def call(self) -> requests.Response:
        """Make the request of the page's curl line."""
        return self.get("/api/hello/", headers={"Authorization": f"Bearer {self.key}"})

    def _obey(self, line: str) -> None:
        program, *words = line.split()
        if program == "pip":
            return  # the package is on the path
        if program == "django-admin":
            self.run(sys.executable, "-m", "django", *words)
        elif words[:2] == ["manage.py", "create_key"]:
            self.key = self.run("sh", "-c", f"'{sys.executable}'{line.removeprefix('python')}").strip()
        elif words[:2] == ["manage.py", "createsuperuser"]:
            self.run(sys.executable, *words, "--noinput")
        elif words[:2] == ["manage.py", "runserver"]:
            self.serve()
        elif program == "celery":
            command = [sys.executable, "-m", "celery", *words, "--concurrency", "1"]
            log_path = self.directory / "worker.log"
            self._stack.enter_context(running(command, log_path=log_path, environment=self.environment))
        elif program == "curl":
            assert ":8000/api/hello/" in line
            self.statuses.append(self.call().status_code)
        elif program == "for":
            self.statuses += [self.call().status_code for _ in range(25)]
        else:
            assert program == "python", f"nobody knows how to do this: {line}"
            self.run(sys.executable, *words)
