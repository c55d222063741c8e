"""How are child processes started so that none outlives us? In groups of their own, under a keeper.

A child leads a process group, so Ctrl+C reaches us alone and we end the children in order. Should
we die without the chance to (SIGKILL, os._exit), the keeper sees its pipe end and ends them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

Process = subprocess.Popen[bytes]

_keeper: Process | None = None
_keeper_owner = 0


def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    log_path: Path,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    input_text: str = "",
    user: str | None = None,
) -> Process:
    """Start a child that reads `input_text` and writes to a log file; `environment` is added to ours."""
    with log_path.open("ab") as log, tempfile.TemporaryFile() as given:
        given.write(input_text.encode())
        given.seek(0)
        process = subprocess.Popen(
            command,
            stdin=given,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
    _tell_keeper(process.pid)
    return process


def stop(process: Process, *, patience_seconds: float = 10.0) -> int:
    """End a child, politely first, and then whatever is left of its group. Returns its exit status."""
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)  # a stalled one hears nothing else
    try:
        process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        pass
    signal_group(process, signal.SIGKILL)
    status = process.wait()
    _tell_keeper(-process.pid)
    return status


def signal_group(process: Process, number: signal.Signals) -> None:
    """Signal a child and all that it started; nothing happens when they are gone."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # macOS answers the latter for zombies
        pass


def free_port() -> int:
    """A port that nobody listens on, below the ranges that systems take client ports from.

    It stays ours until this process ends: another that asks here meanwhile is given another one.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 500):
        if _claim(port):
            return port
    raise OSError("no free port between 20000 and 32000")


def _claim(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / f"ratelimit_app_ports_{os.getuid()}"
    folder.mkdir(exist_ok=True)
    claim = os.open(folder / str(port), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(claim)
        return False
    if not port_is_free(port):
        os.close(claim)
        return False
    return True  # the system takes the lock away when this process ends


def port_is_free(port: int, *, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _tell_keeper(pid: int) -> None:
    global _keeper, _keeper_owner
    if _keeper is None or _keeper_owner != os.getpid():
        _keeper = subprocess.Popen(
            [sys.executable, "-I", Path(__file__).with_name("keeper.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        _keeper_owner = os.getpid()
        atexit.register(_dismiss, _keeper)
    assert _keeper.stdin is not None
    try:
        _keeper.stdin.write(f"{pid}\n".encode())
        _keeper.stdin.flush()
    except BrokenPipeError:
        _keeper = None


def _dismiss(keeper: Process) -> None:
    if _keeper_owner == os.getpid():  # a forked child inherits this call, and the keeper is not its own
        keeper.communicate()
