"""Where do the tests get a RabbitMQ from? They start a private node of the installed one, and stop it by pid."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from pathlib import Path

from project.demo import processes
from tests.servers import wait_for_port

#: Debian's program of this name in /usr/sbin changes the user and reads /etc; this is the one behind it.
_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"


def program() -> str | None:
    """The installed server, or None."""
    return _PROGRAM if os.access(_PROGRAM, os.X_OK) else None


class RabbitServer:
    """A node of its own, with its own data, ports, cookie and port mapper; survives a restart with its messages."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.port, self._mapper_port, between_nodes = (processes.free_port() for _ in range(3))
        #: Root may become anybody, and a broker need not be root.
        self._user = "rabbitmq" if os.geteuid() == 0 else None
        (directory / "enabled_plugins").write_text("[].")
        if self._user:
            for path in (directory, directory / "enabled_plugins"):
                shutil.chown(path, self._user)
        self._environment = {
            "HOME": str(directory),  # the cookie lies there
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(between_nodes),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
        }
        self.process: processes.Process | None = None
        self._mapper = self._run("epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1")
        try:
            wait_for_port(self._mapper_port, process=self._mapper, log_path=self.log_path)
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    def start(self) -> None:
        """Start the node on the same port, with what it kept."""
        assert self.process is None, "the server is running"
        self.process = self._run(_PROGRAM)
        wait_for_port(self.port, process=self.process, log_path=self.log_path, seconds=120)
        deadline = time.monotonic() + 120
        while not self._greets():
            assert time.monotonic() < deadline, self.log_path.read_text(errors="replace")[-3000:]
            time.sleep(0.1)

    def stop(self) -> None:
        """End the node, and its port mapper."""
        if self.process is not None:
            processes.stop(self.process)
            self.process = None
        processes.stop(self._mapper)

    def restart(self) -> None:
        """Kill the node as a power cut would, and start it again."""
        assert self.process is not None, "the server is not running"
        processes.signal_group(self.process, signal.SIGKILL)
        processes.stop(self.process)
        self.process = None
        self.start()

    def pause(self) -> None:
        """Stall it: connections stay open, nothing answers."""
        assert self.process is not None, "the server is not running"
        processes.signal_group(self.process, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None, "the server is not running"
        processes.signal_group(self.process, signal.SIGCONT)

    def _run(self, *command: str) -> processes.Process:
        return processes.start(
            command,
            log_path=self.log_path,
            environment=self._environment,
            directory=self.directory,
            user=self._user,
        )

    def _greets(self) -> bool:
        """Whether it speaks AMQP already: it listens a little earlier."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(connection.recv(1))
        except OSError:
            return False
