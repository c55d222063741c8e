"""What do the other gateways of a fleet do? Processes that send themselves requests when a test tells them to.

A line of JSON in is an order, a line of JSON out its answer. `python -m tests.gateway` is the child's side.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Gateway:
    """One process, seen from the test."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.gateway"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def tell(self, do: str, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the gateway died"
        return json.loads(line)

    def ask(self, do: str, **order: Any) -> Any:
        self.tell(do, **order)
        return self.hear()

    def send(self, key: str, path: str = "/plain/ping/") -> int:
        """One request; the status of the answer."""
        return int(self.ask("request", path=path, key=key)["status"])

    def stop(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()  # it ends with its orders
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def gateways(count: int, environment: dict[str, str], **entries: Any) -> Iterator[list[Gateway]]:
    """So many of them, with these entries of `RATELIMIT_APP`, ready for orders."""
    with contextlib.ExitStack() as stack:
        fleet = []
        for _ in range(count):
            fleet.append(Gateway(environment))
            stack.callback(fleet[-1].stop)
        for gateway in fleet:
            gateway.tell("configure", entries=entries)
        for gateway in fleet:
            gateway.hear()
        yield fleet


# --- The child's side --------------------------------------------------------------------------


def _configure(entries: dict[str, Any]) -> None:
    from django.conf import settings

    settings.RATELIMIT_APP = {**settings.RATELIMIT_APP, **entries}


def _request(path: str, key: str = "", data: Any = None, user_id: int | None = None) -> dict[str, Any]:
    """One request, with a key or as a user who is signed in; a POST when there is data."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"} if key else {})
    if user_id is not None:
        client.force_login(get_user_model()._default_manager.get(pk=user_id))
    answer = client.get(path) if data is None else client.post(path, data)
    return {"status": answer.status_code, "remaining": answer.get("X-RateLimit-Remaining")}


def _burst(path: str, key: str, threads: int, start_at: float) -> list[list[Any]]:
    """One request from each of so many threads, at one moment of the machine's monotonic clock."""
    from django.db import connections
    from django.test import Client

    answers = []

    def one() -> None:
        client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})
        time.sleep(max(0.0, start_at - time.monotonic()))
        answer = client.get(path)
        answers.append([answer.status_code, answer.get("X-RateLimit-Remaining")])
        connections.close_all()

    started = [threading.Thread(target=one) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return answers


def _flood(path: str, key: str, seconds: float, start_at: float) -> dict[str, Any]:
    """Request after request for so long. Says when the first was sent and the last was answered."""
    from django.test import Client

    client = Client(raise_request_exception=False, headers={"Authorization": f"Bearer {key}"})
    statuses: dict[int, int] = {}
    time.sleep(max(0.0, start_at - time.monotonic()))
    first_at = time.monotonic()
    while (now := time.monotonic()) < start_at + seconds:
        status = client.get(path).status_code
        statuses[status] = statuses.get(status, 0) + 1
    return {"statuses": statuses, "first_at": first_at, "last_at": now}


def _main() -> None:
    import django

    django.setup()
    from ratelimit_app import changes, usage

    orders: dict[str, Callable[..., Any]] = {
        "configure": _configure,
        "request": _request,
        "burst": _burst,
        "flood": _flood,
    }
    for line in sys.stdin:
        order = json.loads(line)
        answer = orders[order.pop("do")](**order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    changes.stop()
    usage.reset()  # nobody waits for these counts


if __name__ == "__main__":
    _main()
