"""How do many processes ask at once? Forked, begun at one moment, each at its pace; they report what they saw."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Waits until all processes are ready; returns the monotonic second at which they begin.
Begin = Callable[[], float]


def run(count: int, work: Callable[[int, Begin], Any]) -> list[Any]:
    """Let so many processes work at once. `work` gets the process's number, warms up, and calls `begin`.

    What it returns must be JSON. A process that fails prints why, and everything ends.
    """
    from django.db import connections

    connections.close_all()  # nobody inherits a connection
    children = [_fork(number, work) for number in range(count)]
    try:
        for child in children:
            if child.reports.readline() != b"ready\n":
                raise RuntimeError(f"process {child.pid} failed")
        begin_at = time.monotonic() + 0.1
        for child in children:
            child.orders.write(f"{begin_at}\n".encode())
            child.orders.flush()
        return [json.loads(child.reports.read()) for child in children]
    finally:
        for child in children:
            os.kill(child.pid, signal.SIGKILL)  # those that reported have ended, and wait for us
            os.waitpid(child.pid, 0)
            child.reports.close()
            child.orders.close()


def paced(begin_at: float, seconds: float, per_second: float, ask: Callable[[int], object]) -> int:
    """Ask at an even pace for so long, or flat out when it is 0; returns how often. A late one does not catch up."""
    asked = 0
    _sleep_until(begin_at)
    until = begin_at + seconds
    next_at = begin_at
    while time.monotonic() < until:
        ask(asked)
        asked += 1
        if per_second:
            next_at = max(next_at + 1 / per_second, time.monotonic() - 1 / per_second)
            _sleep_until(min(next_at, until))
    return asked


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))  # the gateways of a fleet begin together


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    orders: Any
    reports: Any


def _fork(number: int, work: Callable[[int, Begin], Any]) -> _Child:
    (order_reader, order_writer), (report_reader, report_writer) = os.pipe(), os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(order_reader)
        os.close(report_writer)
        return _Child(pid, os.fdopen(order_writer, "wb"), os.fdopen(report_reader, "rb"))
    try:
        with os.fdopen(order_reader, "rb") as orders, os.fdopen(report_writer, "wb") as reports:

            def begin() -> float:
                reports.write(b"ready\n")
                reports.flush()
                return float(orders.readline())

            reports.write(json.dumps(work(number, begin)).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
