"""Which connections does this process make? Python itself says so, whoever makes them; and which are still open?"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections import Counter
from typing import Any

#: Connections that threads of the limiter's own make, such as its probes, are nobody's request.
_OWN_THREADS = "ratelimit_app"

_watched: Counter[int] = Counter()
_is_hooked = False


def watch(port: int) -> None:
    """From now on count the connections to a port that requests make."""
    global _is_hooked
    _watched[port] = 0
    if not _is_hooked:  # a hook stays for ever
        _is_hooked = True
        sys.addaudithook(_hook)


def made_by_requests(port: int) -> int:
    """Attempts to connect to a watched port by threads that answer requests."""
    return _watched[port]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event != "socket.connect" or not isinstance(args[1], tuple) or args[1][1] not in _watched:
        return
    if not threading.current_thread().name.startswith(_OWN_THREADS):
        _watched[args[1][1]] += 1


def open_to(port: int) -> int:
    """Sockets of this process whose other end is this port."""
    count = 0
    for name in os.listdir("/dev/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                peer = copy.getpeername()
        except OSError:
            continue  # closed meanwhile, or not connected
        count += isinstance(peer, tuple) and peer[1] == port
    return count
