"""What do many processes make of one caller's limit? They ask as fast as told, and say what came of it.

`python -m tests.lease_fleet` is the other side: one process that imports everything and then forks,
for each line of JSON that it is sent, as many as the line says.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all processes did together."""

    decisions: int
    admitted: int
    #: From before the first request to after the last.
    seconds: float
    #: What the server counted: scripts that were run.
    redis_calls: int

    @property
    def calls_per_1000(self) -> float:
        return 1_000 * self.redis_calls / self.decisions

    def share_of(self, allowance: float) -> float:
        """What was admitted, in parts of what may be."""
        return self.admitted / allowance


class Fleet:
    """The processes, seen from the test."""

    def __init__(self, process: subprocess.Popen[str], server: redis.Redis) -> None:
        self._process = process
        self._server = server

    def run(self, *, processes: int, seconds: float, pause_seconds: float = 0.0, **caller: Any) -> Outcome:
        """Let so many ask for one caller for so long, each pausing between its requests."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._scripts_run()
        order = {"processes": processes, "seconds": seconds, "pause_seconds": pause_seconds, "caller": caller}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answers = json.loads(self._process.stdout.readline())
        return Outcome(
            decisions=sum(answer["decisions"] for answer in answers),
            admitted=sum(answer["admitted"] for answer in answers),
            seconds=max(answer["last_at"] for answer in answers) - min(answer["first_at"] for answer in answers),
            redis_calls=self._scripts_run() - before,
        )

    def _scripts_run(self) -> int:
        stats: dict[str, Any] = self._server.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


@contextlib.contextmanager
def fleet(environment: dict[str, str]) -> Iterator[Fleet]:
    """Processes that use the Redis and the database of this environment."""
    command = [sys.executable, "-m", "tests.lease_fleet"]
    with (
        redis.Redis.from_url(environment["REDIS_URL"]) as server,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as process,
    ):
        yield Fleet(process, server)  # it ends with its orders


# --- The other side ----------------------------------------------------------------------------


def _ask(seconds: float, pause_seconds: float, start_at: float, caller: dict[str, Any]) -> dict[str, Any]:
    from ratelimit_app import denials, limiter
    from ratelimit_app.limits import Caller

    denials.LONGEST_SECONDS = 0.0  # calls saved by remembering refusals are not saved by leases
    who = Caller(**caller)
    decisions = admitted = 0
    time.sleep(max(0.0, start_at - time.monotonic()))
    first_at = time.monotonic()
    while time.monotonic() < start_at + seconds:
        decision = limiter.check(who)
        assert decision.source in ("redis", "lease"), decision
        decisions += 1
        admitted += decision.allowed
        if pause_seconds:
            time.sleep(pause_seconds)
    return {"decisions": decisions, "admitted": admitted, "first_at": first_at, "last_at": time.monotonic()}


def _fork(processes: int, **order: Any) -> list[dict[str, Any]]:
    from ratelimit_app import plan_cache

    plan_cache.clear()
    plan_cache.table()
    start_at = time.monotonic() + 0.3
    readers, children = [], []
    for _ in range(processes):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, json.dumps(_ask(start_at=start_at, **order)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        readers.append(reader)
        children.append(child)
    answers = []
    for reader, child in zip(readers, children, strict=True):
        with os.fdopen(reader) as answer:
            answers.append(json.loads(answer.read()))
        os.waitpid(child, 0)
    return answers


def _main() -> None:
    import django

    django.setup()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_fork(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
