"""Where do the tests get sentinels from? A master, a replica and three sentinels on this machine, stopped by pid."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import redis

from project.demo import embedded_redis, processes
from tests.servers import RedisServer, wait_for_port

MASTER = "mymaster"
PASSWORD = "s3cret"
URL = f"redis://:{PASSWORD}@{MASTER}/0"
#: So long silent is down.
DOWN_AFTER_MS = 1_000


class Sentinel:
    """One sentinel: the server's program with a file that it rewrites as it learns."""

    def __init__(self, directory: Path, *lines: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = processes.free_port()
        file, log = directory / "sentinel.conf", directory / "sentinel.log"
        file.write_text("\n".join([f"port {self.port}", "bind 127.0.0.1", f"dir {directory}", *lines, ""]))
        self.process = processes.start([embedded_redis.binary(), str(file), "--sentinel"], log_path=log)
        wait_for_port(self.port, process=self.process, log_path=log)

    def ask(self, *words: Any) -> Any:
        with redis.Redis(port=self.port, socket_timeout=20) as client:
            client.response_callbacks.clear()
            return client.execute_command("SENTINEL", *words)

    def stop(self) -> None:
        processes.stop(self.process)


class Watched:
    """A master with a replica that ask for a password, watched by three sentinels."""

    def __init__(self, directory: Path) -> None:
        options = ("--requirepass", PASSWORD, "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0")
        self.master = RedisServer(directory / "master", *options)
        self.replica = RedisServer(directory / "replica", *options)
        self.sentinels: list[Sentinel] = []
        with self.replica.client(password=PASSWORD, socket_timeout=20) as client:
            client.response_callbacks.clear()
            client.execute_command("REPLICAOF", "127.0.0.1", self.master.port)
            _until(lambda: client.execute_command("ROLE")[3] in (b"connected", "connected"))
        lines = [
            f"sentinel monitor {MASTER} 127.0.0.1 {self.master.port} 2",
            f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {MASTER} 10000",
            f"sentinel auth-pass {MASTER} {PASSWORD}",
        ]
        self.sentinels += [Sentinel(directory / f"sentinel-{number}", *lines) for number in range(3)]
        for sentinel in self.sentinels:  # talk often, so that all is known soon
            periods = ("info-period", "ping-period", "ask-period", "publish-period")
            sentinel.ask("DEBUG", *(word for period in periods for word in (period, 200)))
        for sentinel in self.sentinels:  # each knows the two others, and the replica
            _until(lambda sentinel=sentinel: len(sentinel.ask("SENTINELS", MASTER)) == 2)
            _until(lambda sentinel=sentinel: len(sentinel.ask("REPLICAS", MASTER)) == 1)

    @property
    def options(self) -> dict[str, Any]:
        """OPTIONS of a cache that asks the sentinels."""
        return {
            "CLIENT_CLASS": "django_redis.client.SentinelClient",
            "CONNECTION_FACTORY": "ratelimit_app.connections.SentinelConnectionFactory",
            "SENTINELS": [("127.0.0.1", sentinel.port) for sentinel in self.sentinels],
        }

    def named_master(self) -> int:
        """The port of the master, as the sentinels say."""
        return int(self.sentinels[0].ask("GET-MASTER-ADDR-BY-NAME", MASTER)[1])

    def stop(self) -> None:
        for sentinel in self.sentinels:
            sentinel.stop()
        self.master.stop()
        self.replica.stop()


def _until(condition: Any, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the sentinels do not come together"
        time.sleep(0.05)
