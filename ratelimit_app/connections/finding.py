"""Who holds which slots? A cluster's nodes tell, or sentinels; in the terms of one table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured
from redis import exceptions

from ratelimit_app.connections.failures import FAILURES
from ratelimit_app.connections.server import Server

#: Every name belongs to one of these.
SLOTS = 16_384
#: Schemes of a cluster's URL, and those of its nodes.
CLUSTER_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
_DEFAULT_PORT = 6379

#: A host and a port.
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out."""

    #: First slot, last slot, and the address of the master that holds them.
    spans: tuple[tuple[int, int, Address], ...]
    #: Others who could tell: replicas.
    others: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterURL:
    """`redis+cluster://user:password@host:port,host:port/0?option=value`, taken apart."""

    parts: SplitResult
    #: The nodes that are asked first where everything is.
    seeds: tuple[Address, ...]

    @classmethod
    def parse(cls, url: str) -> ClusterURL | None:
        """None when it is not the URL of a cluster. Raises ImproperlyConfigured, which never shows a password."""
        scheme = url.partition("://")[0]
        if scheme not in CLUSTER_SCHEMES:
            return None
        parts = urlsplit(url)
        if parts.path.strip("/") not in ("", "0"):
            raise ImproperlyConfigured("A cluster has no database but 0: end its URL with /0.")
        hosts = parts.netloc.rpartition("@")[2].split(",")
        return cls(parts._replace(scheme=CLUSTER_SCHEMES[scheme]), tuple(_address(host) for host in hosts))

    def of_node(self, address: Address) -> str:
        """The URL of one node: the same credentials and options."""
        return url_at(self.parts, address)


def url_at(parts: SplitResult, address: Address) -> str:
    """A URL with another host and port."""
    credentials = "".join(parts.netloc.rpartition("@")[:2])
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return urlunsplit(parts._replace(netloc=f"{credentials}{host}:{address[1]}", path=parts.path or "/0"))


def _address(host: str) -> Address:
    try:
        parts = urlsplit(f"//{host}")
        if parts.hostname:
            return parts.hostname, parts.port or _DEFAULT_PORT
    except ValueError:
        pass  # no port, or no address
    raise ImproperlyConfigured(f"A cluster's URL lists nodes as host:port, with commas between, not {host!r}.")


def by_cluster(servers: Iterable[Server], *, timeout_seconds: float | None) -> Found:
    """What the first of a cluster's nodes that answers says. Raises what `FAILURES` lists."""
    failure: BaseException = exceptions.ClusterDownError("no node of the cluster knows who holds what")
    for server in servers:
        try:
            opened = server.open(timeout_seconds=timeout_seconds)
            try:
                opened.send_command("CLUSTER", "SLOTS")
                found = _read(opened.read_response(), asked=server.address[0])
            finally:
                opened.disconnect()
        except FAILURES as failed:
            failure = failed
            continue
        if found.spans:  # a node that belongs to no cluster any more knows of no slot
            return found
    raise failure


def by_sentinels(master: Address) -> Found:
    """The master that sentinels name, as the holder of everything."""
    return Found(((0, SLOTS - 1, master),))


def _read(reply: Any, *, asked: str) -> Found:
    def address(entry: Any) -> Address:
        host = entry[0].decode() if isinstance(entry[0], bytes) else entry[0]
        return (asked if host in (None, "", "?") else host), int(entry[1])

    try:
        spans = tuple((int(first), int(last), address(master)) for first, last, master, *_ in reply)
        others = {address(replica) for _first, _last, _master, *replicas in reply for replica in replicas}
    except (TypeError, ValueError, IndexError) as failure:
        raise exceptions.InvalidResponse("CLUSTER SLOTS was not answered with slots.") from failure
    return Found(spans, tuple(others))
