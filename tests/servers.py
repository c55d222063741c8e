"""Where do the tests get real servers from? They start them, on free ports, and stop them by pid."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from project.demo import embedded_redis, processes


class RedisServer:
    """A private Redis or Valkey that a test may stall, kill and start again on the same port."""

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        self.directory = directory
        self.options = options
        self.port = port or processes.free_port()
        self.process: processes.Process | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    def client(self, **options: object) -> redis.Redis:
        """A client of its own connection; the server's end closes it."""
        return redis.Redis.from_url(self.url, **options)

    def start(self) -> None:
        """Start, empty, on the same port as before."""
        assert self.process is None, "the server is running"
        self.process = embedded_redis.start(data_dir=self.directory, port=self.port, options=self.options)

    def stop(self) -> None:
        """End it politely; connections are refused from here on."""
        if self.process is not None:
            processes.stop(self.process)
            self.process = None

    def kill(self) -> None:
        """End it as a power cut would."""
        assert self.process is not None, "the server is not running"
        self.process.kill()
        self.process.wait()
        self.stop()

    def pause(self) -> None:
        """Stall it: connections stay open (and are accepted by the kernel), nothing answers."""
        assert self.process is not None, "the server is not running"
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None, "the server is not running"
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it and start it again: it has forgotten everything, its scripts too."""
        self.kill()
        self.start()


class PostgresServer:
    """A throwaway PostgreSQL cluster from the installed programs, that fears no power cut."""

    def __init__(self, directory: Path) -> None:
        # PostgreSQL refuses to run as root, and root may become anybody.
        user = "postgres" if os.geteuid() == 0 else None
        data = directory / "data"
        data.mkdir(parents=True)
        if user:
            shutil.chown(directory, user)
            shutil.chown(data, user)
        log_path = directory / "postgres.log"
        initdb = [_postgres_program("initdb"), "--pgdata", str(data), "--username=tests", "--auth=trust"]
        initdb += ["--encoding=UTF8", "--locale=C", "--no-sync"]
        made = processes.start(initdb, log_path=log_path, directory=directory, user=user)
        if made.wait() or processes.stop(made):
            raise RuntimeError(f"initdb failed:\n{log_path.read_text(errors='replace')}")
        self.port = processes.free_port()
        # fmt: off
        self.process = processes.start(
            [
                _postgres_program("postgres"), "-D", data, "-p", str(self.port), "-k", directory,
                "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=200",
            ],
            log_path=log_path,
            directory=directory,
            user=user,
        )
        # fmt: on
        wait_for_port(self.port, process=self.process, log_path=log_path)

    @property
    def url(self) -> str:
        return f"postgresql://tests@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # "fast": does not wait for clients to leave
        self.process.wait(30)
        processes.stop(self.process)


def _postgres_program(name: str) -> str:
    """A program of PostgreSQL: Debian keeps them off the PATH."""
    found = shutil.which(name) or max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)
    if found is None:
        raise RuntimeError(f"{name} is not installed; on Debian: apt install postgresql")
    return found


@contextlib.contextmanager
def running(
    command: list[str], *, log_path: Path, environment: dict[str, str] | None = None, directory: Path | None = None
) -> Iterator[processes.Process]:
    """A child process for the length of a block; its group is gone afterwards."""
    process = processes.start(command, log_path=log_path, environment=environment, directory=directory)
    try:
        yield process
    finally:
        processes.stop(process)


def wait_for_port(port: int, *, process: subprocess.Popen[bytes], log_path: Path, seconds: float = 20) -> None:
    """Wait until a child listens; fails with its log when it ends instead."""
    deadline = time.monotonic() + seconds
    while processes.port_is_free(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"nothing listens on port {port}:\n{log_path.read_text(errors='replace')[-3000:]}")
        time.sleep(0.02)
