"""Does somebody want the demo to end? Signals, the key q, or the time that was given."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType


class Stop:
    """Set once by whatever comes first."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        return self.requested

    def request(self, signal_number: int = 0, frame: FrameType | None = None) -> None:
        self.requested = True


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Ctrl+C, SIGTERM and a closed terminal only set the flag: children are ended in order, not in mid-air."""
    stop = Stop()
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, stop.request) for number in caught}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def single_keys() -> Iterator[None]:
    """Read keys without Enter, where there is a terminal that we are in the foreground of."""
    if not _is_terminal():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def wait(stop: Stop, *, seconds: float) -> None:
    """Wait a little; pressing q requests the stop."""
    if not _is_terminal():
        deadline = time.monotonic() + seconds
        while not stop.requested and time.monotonic() < deadline:
            time.sleep(0.05)
        return
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    if readable and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
        stop.request()


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty() and os.getpgrp() == os.tcgetpgrp(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return False
