"""What does another process of the same project see? One child that answers questions about its memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

_CHILD = """
import json, sys
import django
django.setup()
from django.conf import settings
from django.test import override_settings
from ratelimit_app import changes, key_cache, plan_cache
entries = json.loads(sys.argv[1])
with override_settings(RATELIMIT_APP={**settings.RATELIMIT_APP, **entries}):
    changes.watch()
    print("ready", flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        if what == "bursts":
            table = plan_cache.table()
            answer = sorted(limit.burst for limits in table.limits.values() for limit in limits)
        else:
            answer = [key_cache.find(text) is not None for text in rest]
        print(json.dumps(answer), flush=True)
"""


class Peer:
    """A process that watches for changes, as a gateway does."""

    def __init__(self, environment: Mapping[str, str], **entries: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(entries)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=20)

    def bursts(self) -> list[int]:
        """The bursts of all limits that the peer knows."""
        return self._ask("bursts")

    def accepts(self, *keys: str) -> list[bool]:
        """Whether the peer takes each of these keys."""
        return self._ask("keys", *keys)

    def _ask(self, *question: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def becomes(look: Callable[[], Any], expected: Any, *, seconds: float) -> bool:
    """Whether what is seen becomes what is expected within so many seconds; asked for again and again."""
    deadline = time.monotonic() + seconds
    while look() != expected:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
