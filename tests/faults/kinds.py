"""How can Redis fail? Each way in two steps, on a real server behind a real network: break it, mend it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import redis

from project.demo import processes
from tests.faults.proxy import Proxy
from tests.servers import RedisServer


class World:
    """A server, the network in front of it, and somebody who administers both."""

    def __init__(self, server: RedisServer, proxy: Proxy) -> None:
        self.server = server
        self.proxy = proxy

    def tell(self, *words: Any) -> Any:
        """A command from the administrator, who does not come through the proxy."""
        with self.server.client(socket_timeout=30) as client:
            return client.execute_command(*words)

    def info(self, section: str) -> Any:
        with self.server.client(socket_timeout=30) as client:
            return client.info(section)

    def is_busy(self) -> bool:
        """Whether some script has run for too long."""
        try:
            self.tell("PING")
        except redis.ResponseError as error:
            return str(error).startswith("BUSY")
        return False


@dataclass(frozen=True)
class Fault:
    """One way to fail."""

    name: str
    #: What requests may be told is the reason, in the words of docs/operations.md.
    reasons: frozenset[str]
    #: Breaks the world when it is entered, and mends it when it is left.
    _broken: Callable[[World], contextlib.AbstractContextManager[None]] = field(repr=False)

    def __str__(self) -> str:
        return self.name

    def broken(self, world: World) -> contextlib.AbstractContextManager[None]:
        return self._broken(world)


ALL: list[Fault] = []


def named(name: str) -> Fault:
    return next(fault for fault in ALL if fault.name == name)


def _fault(*reasons: str) -> Callable[[Callable[[World], Iterator[None]]], None]:
    def register(steps: Callable[[World], Iterator[None]]) -> None:
        name = steps.__name__.strip("_").replace("_", "-")
        ALL.append(Fault(name, frozenset(reasons), contextlib.contextmanager(steps)))

    return register


@_fault("connection", "refused")
def _stopped(world: World) -> Iterator[None]:
    world.server.kill()
    yield
    world.server.start()


@_fault("timeout")
def _stalled(world: World) -> Iterator[None]:
    world.server.pause()
    yield
    world.server.resume()


@_fault("timeout")
def _slow(world: World) -> Iterator[None]:
    world.proxy.delay_seconds = 0.5
    yield
    world.proxy.delay_seconds = 0.0


@_fault("refused", "connection")
def _refusing(world: World) -> Iterator[None]:
    world.proxy.refuse()
    yield
    world.proxy.listen()


@_fault("oom")
def _out_of_memory(world: World) -> Iterator[None]:
    world.tell("CONFIG", "SET", "maxmemory", 1)
    yield
    world.tell("CONFIG", "SET", "maxmemory", 0)


@_fault("readonly")
def _read_only(world: World) -> Iterator[None]:
    world.tell("REPLICAOF", "127.0.0.1", processes.free_port())  # a primary that it has lost
    yield
    world.tell("REPLICAOF", "NO", "ONE")


@_fault("masterdown")
def _without_its_primary(world: World) -> Iterator[None]:
    world.tell("CONFIG", "SET", "replica-serve-stale-data", "no")
    world.tell("REPLICAOF", "127.0.0.1", processes.free_port())
    yield
    world.tell("REPLICAOF", "NO", "ONE")


@_fault("timeout")
def _paused_for_a_failover(world: World) -> Iterator[None]:
    world.tell("CLIENT", "PAUSE", 600_000, "WRITE")
    yield
    world.tell("CLIENT", "UNPAUSE")


@_fault("noreplicas")
def _without_its_replicas(world: World) -> Iterator[None]:
    world.tell("CONFIG", "SET", "min-replicas-to-write", 1)
    yield
    world.tell("CONFIG", "SET", "min-replicas-to-write", 0)


@_fault("misconf")
def _unable_to_save(world: World) -> Iterator[None]:
    world.tell("CONFIG", "SET", "save", "3600 1")
    world.tell("CONFIG", "SET", "dir", "/proc")  # nobody can write there
    world.tell("BGSAVE")
    while world.info("persistence")["rdb_last_bgsave_status"] == "ok":
        time.sleep(0.01)
    yield
    world.tell("CONFIG", "SET", "save", "")


@_fault("busy")
def _running_a_long_script(world: World) -> Iterator[None]:
    world.tell("CONFIG", "SET", "busy-reply-threshold", 1)
    with world.server.client(socket_timeout=None) as somebody:
        connection = somebody.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        while not world.is_busy():
            time.sleep(0.01)
        yield
        world.tell("SCRIPT", "KILL")
        connection.disconnect()


@_fault("loading", "connection")
def _loading(world: World) -> Iterator[None]:
    world.tell("CONFIG", "SET", "rdbcompression", "no")
    world.tell("DEBUG", "POPULATE", 2_000, "ballast", 2_000)
    world.tell("SAVE")
    world.server.kill()
    usual = world.server.options
    # Reading takes minutes, with a pause for each key; between two of them it answers.
    world.server.options = (*usual, "--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024")
    world.server.start()
    yield
    world.server.options = usual
    world.tell("CONFIG", "SET", "key-load-delay", 0)
    while True:
        with contextlib.suppress(redis.BusyLoadingError):
            world.tell("PING")
            break
        time.sleep(0.01)


@_fault("noauth")
def _asking_for_a_password(world: World) -> Iterator[None]:
    with world.server.client() as administrator:
        administrator.config_set("requirepass", "secret")
        _hang_up(administrator)
        yield
        administrator.config_set("requirepass", "")


@_fault("maxclients", "connection")
def _out_of_connections(world: World) -> Iterator[None]:
    with world.server.client() as administrator:
        usual = administrator.config_get("maxclients")["maxclients"]
        administrator.config_set("maxclients", 1)
        _hang_up(administrator)
        yield
        administrator.config_set("maxclients", usual)


@_fault("connection")
def _cut_in_mid_reply(world: World) -> Iterator[None]:
    world.proxy.cut_after_bytes = 5
    yield
    world.proxy.cut_after_bytes = 0


@_fault("timeout")
def _black_hole(world: World) -> Iterator[None]:
    world.proxy.vanish()
    yield
    world.proxy.listen()


def _hang_up(administrator: Any) -> None:
    for kind in ("normal", "pubsub"):
        administrator.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
