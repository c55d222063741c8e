"""What do many gateways, cut off from Redis, let through together? Real processes that all ask for one caller.

`python -m tests.faults.fleet` is the other side: it forks as many as the order says, has them count
each other while Redis is up, says "ready", and sends once it is told that Redis is gone.
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

_PAUSE_SECONDS = 0.02
_HANG_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """What all processes did together."""

    admitted: int
    #: From before the first request of any to after the last of any.
    seconds: float
    #: By process, from before its first request to after its last.
    seconds_each: tuple[float, ...]


class Fleet:
    """The processes, seen from the test. Once it is there, they have counted each other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, *, seconds: float) -> Outcome:
        """Let every process send for so long, at an even pace."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(seconds) + "\n")
        self._process.stdin.flush()
        answers = json.loads(self.heard())
        return Outcome(
            admitted=sum(answer["admitted"] for answer in answers),
            seconds=max(answer["last_at"] for answer in answers) - min(answer["first_at"] for answer in answers),
            seconds_each=tuple(answer["last_at"] - answer["first_at"] for answer in answers),
        )

    def heard(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the fleet died"
        return line


@contextlib.contextmanager
def fleet(environment: dict[str, str], *, processes: int, caller: dict[str, Any], **entries: Any) -> Iterator[Fleet]:
    """So many processes, with these entries of `RATELIMIT_APP`; they end with the block."""
    order = json.dumps({"processes": processes, "caller": caller, "entries": entries})
    command = [sys.executable, "-m", "tests.faults.fleet", order]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        started = Fleet(process)
        assert started.heard() == "ready\n"
        yield started


# --- The other side ----------------------------------------------------------------------------


def _ask(seconds: float, caller: dict[str, Any]) -> dict[str, Any]:
    from ratelimit_app import limiter
    from ratelimit_app.limits import Caller

    who, admitted, first_at = Caller(**caller), 0, time.monotonic()
    while time.monotonic() < first_at + seconds:
        decision = limiter.check(who)
        assert decision.source == "local", decision
        admitted += decision.allowed
        time.sleep(_PAUSE_SECONDS)
    return {"admitted": admitted, "first_at": first_at, "last_at": time.monotonic()}


def _child(start: int, ready: int, answer: int, *, processes: int, caller: dict[str, Any]) -> None:
    from ratelimit_app import changes, fallback

    changes.watch()
    deadline = time.monotonic() + _HANG_SECONDS
    while fallback.fleet_size() != processes:
        assert time.monotonic() < deadline, f"{fallback.fleet_size()} of {processes} are counted"
        time.sleep(0.01)
    os.write(ready, b".")
    seconds = json.loads(os.read(start, 100))
    os.write(answer, json.dumps(_ask(seconds, caller)).encode())


def _main() -> None:
    order = json.loads(sys.argv[1])
    import django

    django.setup()
    from django.conf import settings
    from django.db import connections

    from ratelimit_app import plan_cache

    settings.RATELIMIT_APP = {**settings.RATELIMIT_APP, **order.pop("entries")}
    plan_cache.table()
    connections.close_all()
    ready, says_ready = os.pipe()
    starts, answers, children = [], [], []
    for _ in range(order["processes"]):
        start, says_start = os.pipe()
        answer, says = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _child(start, says_ready, says, **order)
            finally:
                os._exit(0)
        os.close(says)
        starts.append(says_start)
        answers.append(answer)
        children.append(child)
    os.close(says_ready)
    heard = 0
    while heard < len(children):
        more = os.read(ready, 100)
        assert more, "a process of the fleet died"
        heard += len(more)
    print("ready", flush=True)  # noqa: T201 - to the test
    seconds = sys.stdin.readline().strip().encode()
    for start in starts if seconds else ():
        os.write(start, seconds)
    said = []
    for answer, start, child in zip(answers, starts, children, strict=True):
        if not seconds:
            os.close(start)
        with os.fdopen(answer) as text:
            said.append(text.read())
        os.waitpid(child, 0)
    if seconds:
        print(json.dumps([json.loads(text) for text in said]), flush=True)  # noqa: T201


if __name__ == "__main__":
    _main()
