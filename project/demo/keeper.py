"""Who ends the children when their parent is gone? This process does, whatever the parent died of.

Run as a script with standard input from a pipe that only the parent can write to. Each line is
"+PID" or "-PID": look after this process group, or no longer. When the pipe ends, so has the parent.
"""

from __future__ import annotations

import os
import signal
import sys
import time

PATIENCE_SECONDS = 5.0


def main() -> None:
    kept: set[int] = set()
    for line in sys.stdin:
        pid = int(line)
        if pid > 0:
            kept.add(pid)
        else:
            kept.discard(-pid)
    deadline = time.monotonic() + PATIENCE_SECONDS
    for pid in kept:
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)  # a stalled one hears nothing else
    while kept and time.monotonic() < deadline:
        time.sleep(0.05)
        kept = {pid for pid in kept if _signal(pid, 0)}
    for pid in kept:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> bool:
    """Signal a process group; whether there was one."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    main()
