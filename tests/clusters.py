"""Where do the tests get a cluster from? Three masters and three replicas on this machine, stopped by pid."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from project.demo import processes
from tests.servers import RedisServer

#: After so long without a sign of life a master is replaced; a busy machine must not make it seem dead.
NODE_TIMEOUT_MS = 1_500
_SLOTS = 16_384


class Cluster:
    """Three masters that hold a third of the slots each, and a replica of each, where wanted."""

    def __init__(self, directory: Path, *options: str, masters: int = 3, has_replicas: bool = True) -> None:
        # fmt: off
        self.options = (
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS),
            "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
            "--repl-diskless-sync-delay", "0", *options,
        )
        # fmt: on
        self.directory = directory
        self.nodes: list[RedisServer] = []
        try:
            self.masters = [self.add() for _ in range(masters)]
            self.replicas = [self.add() for _ in range(masters)] if has_replicas else []
            if masters:
                self._share_the_slots()
                self._introduce()
            for master, replica in zip(self.masters, self.replicas, strict=False):
                self._follow(replica, master)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Two of the masters are enough to find the others."""
        seeds = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])
        return f"redis+cluster://{seeds}/0"

    def add(self) -> RedisServer:
        """Start a node that knows of nobody yet."""
        options = (*self.options, "--cluster-port", str(processes.free_port()))
        node = RedisServer(self.directory / f"node-{len(self.nodes)}", *options)
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def serving(self, name: bytes | str) -> RedisServer:
        """The node that holds a name, as a node that runs says."""
        slot = key_slot(name if isinstance(name, bytes) else name.encode())
        running = next(node for node in self.nodes if node.process is not None)
        for first, last, master, *_ in ask(running, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError(f"nobody holds slot {slot}")

    def move_slot(self, slot: int, *, to: RedisServer, half_way: Callable[[], None] = lambda: None) -> None:
        """Move a slot with its names, as resharding does; `half_way` runs while it is moving, no name moved yet."""
        source = next(node for node in self.masters if holds(node, slot))
        ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", identity(source))
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", identity(to))
        half_way()
        while names := ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            ask(source, "MIGRATE", "127.0.0.1", to.port, "", 0, 5_000, "KEYS", *names)
        for node in (to, source, *self.masters):
            ask(node, "CLUSTER", "SETSLOT", slot, "NODE", identity(to))

    def _share_the_slots(self) -> None:
        share = -(-_SLOTS // len(self.masters))
        for place, master in enumerate(self.masters):
            ask(master, "CLUSTER", "ADDSLOTSRANGE", place * share, min(_SLOTS, (place + 1) * share) - 1)
            ask(master, "CLUSTER", "SET-CONFIG-EPOCH", place + 1)

    def _introduce(self) -> None:
        first, *others = self.nodes
        bus = first.options[-1]
        for node in others:
            ask(node, "CLUSTER", "MEET", "127.0.0.1", first.port, bus)
        _until(lambda: all(state(node)["cluster_known_nodes"] == str(len(self.nodes)) for node in self.nodes))
        _until(lambda: all(state(node)["cluster_state"] == "ok" for node in self.nodes))

    def _follow(self, replica: RedisServer, master: RedisServer) -> None:
        ask(replica, "CLUSTER", "REPLICATE", identity(master))
        _until(lambda: link_is_up(replica))
        _until(lambda: b"state=online" in ask(master, "INFO", "replication"))  # only then is it sent what happens


def join_alone(node: RedisServer) -> None:
    """Make a node a cluster of its own."""
    ask(node, "CLUSTER", "ADDSLOTSRANGE", *_unassigned(node))
    _until(lambda: state(node)["cluster_state"] == "ok")


def _unassigned(node: RedisServer) -> list[int]:
    """First and last of each span of slots that nobody holds: a node takes those that it finds names of in its file."""
    held = sorted((first, last) for first, last, *_ in ask(node, "CLUSTER", "SLOTS"))
    spans, at = [], 0
    for first, last in [*held, (_SLOTS, _SLOTS)]:
        spans += [at, first - 1] if at < first else []
        at = last + 1
    return spans


def meet(node: RedisServer, newcomer: RedisServer) -> None:
    """Introduce a node to a cluster, and wait until each knows the other."""
    ask(newcomer, "CLUSTER", "MEET", "127.0.0.1", node.port, node.options[-1])
    _until(lambda: identity(newcomer).encode() in ask(node, "CLUSTER", "NODES"))
    _until(lambda: state(newcomer)["cluster_state"] == "ok")


def ask(node: RedisServer, *words: Any) -> Any:
    """One command to one node, its reply as it is."""
    with redis.Redis(port=node.port, socket_timeout=20) as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def identity(node: RedisServer) -> str:
    return str(ask(node, "CLUSTER", "MYID").decode())


def state(node: RedisServer) -> dict[str, str]:
    lines = ask(node, "CLUSTER", "INFO").decode().split()
    return dict(line.split(":", 1) for line in lines)


def holds(node: RedisServer, slot: int) -> bool:
    return any(
        first <= slot <= last and master[1] == node.port for first, last, master, *_ in ask(node, "CLUSTER", "SLOTS")
    )


def fail_over(replica: RedisServer) -> None:
    """Make a replica take over from its master, which helps; a busy machine may need more than one attempt."""
    deadline = time.monotonic() + 90
    while role(replica) != "master":
        assert time.monotonic() < deadline, "the master does not hand over"
        with contextlib.suppress(redis.ResponseError):  # it has just become the master
            ask(replica, "CLUSTER", "FAILOVER")
        given_up_at = time.monotonic() + 6  # the servers give up after five seconds
        while role(replica) != "master" and time.monotonic() < given_up_at:
            time.sleep(0.05)


def role(node: RedisServer) -> str:
    return str(ask(node, "ROLE")[0].decode())


def link_is_up(replica: RedisServer) -> bool:
    kind, *rest = ask(replica, "ROLE")
    return kind == b"slave" and rest[2] == b"connected"


def calls(node: RedisServer, command: str = "evalsha") -> int:
    """How often a node was called by this command."""
    with node.client() as client:
        return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for a module: `cluster = pytest.fixture(clusters.started, scope="module")`."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def _until(condition: Callable[[], object], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the cluster does not come together"
        time.sleep(0.05)
