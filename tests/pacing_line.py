"""What do the tests of pacing share? A plan to wait for, how turns must be spaced, and a worker's task.

crm = pytest.fixture(pacing_line.crm)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from celery import shared_task

from ratelimit_app.pacing import paced

#: Seconds; clocks of two kinds are compared, and sleeps end a little early on some machines.
_EARLY = 0.003


def crm(make_plan: Any) -> Any:
    """Twenty a second, one after the other: 50 ms from turn to turn."""
    return make_plan("crm", 20, 1, 100, algorithm="leaky_bucket")


def assert_spaced(turns: Iterable[float], *, since: float, seconds: float = 0.05) -> None:
    """The n-th turn comes no earlier than n times the spacing after the first was asked for."""
    for place, turn in enumerate(sorted(turns)):
        assert turn - since >= place * seconds - _EARLY


@shared_task(name="tests.paced", ignore_result=True)
@paced("crm", longest_wait_seconds=30)
def write_down(*, path: str) -> None:
    """Add a line: when its turn came."""
    with Path(path).open("a") as file:
        file.write(f"{time.monotonic()}\n")
