"""What is there to say about the nodes of a cluster? Where a name lives, and whether it is worth asking there."""

from __future__ import annotations

from ratelimit_app.connections import places
from ratelimit_app.connections.failures import FAILURES, NotAsked, Unavailable, named
from ratelimit_app.connections.shards import Shards, shunned


def node_of(key: bytes) -> str:
    """The node of a cluster that holds a name; "" where there is one server, or nobody can tell."""
    try:
        place = places.current()
        return place.server_for(key).name if place.is_cluster else ""
    except (*FAILURES, Unavailable):
        return ""


def demand_asked(key: bytes) -> None:
    """Raise NotAsked while the node that holds this name is not to be asked."""
    if shunned and (node := node_of(key)) in shunned:
        failure = NotAsked(shunned[node])
        failure.node = node
        raise failure


def sample_of_nodes() -> list[bytes | None]:
    """For each node a name that lives there; None for the one server. Raises Unavailable."""
    try:
        place = places.current()
        if not isinstance(place, Shards) or not place.is_cluster:
            return [None]
        return [place.tag_on(server.name) for server in place.servers()]
    except FAILURES as failure:
        raise named(failure) from failure


def look() -> None:
    """Find out which servers hold the names now; not for requests. Raises Unavailable, and what was known stays."""
    try:
        place = places.current()
        if isinstance(place, Shards):
            place.look()
    except FAILURES as failure:
        raise named(failure) from failure


def tag_on(node: str) -> bytes | None:
    """A hash tag whose names live on a node; None when it holds none any more."""
    place = places.current()
    return place.tag_on(node) if isinstance(place, Shards) else None
