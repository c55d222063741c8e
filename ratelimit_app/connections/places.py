"""What does the cache alias name: a server, a cluster, or sentinels who know the server? Made once per process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from ratelimit_app import conf
from ratelimit_app.connections import finding
from ratelimit_app.connections.factory import ConnectionFactory, SentinelConnectionFactory
from ratelimit_app.connections.finding import Address, ClusterURL, Found
from ratelimit_app.connections.server import Server
from ratelimit_app.connections.shards import Shards

#: What `CONNECTION_FACTORY` of the cache alias should be.
FACTORY = "ratelimit_app.connections.ConnectionFactory"

Place = Server | Shards

_place: Place | None = None
_place_of: conf.Settings | None = None


def current() -> Place:
    """Where the buckets of this process live. Raises ImproperlyConfigured."""
    global _place, _place_of
    settings = conf.current()
    place = _place
    if place is None or _place_of is not settings or place.pid != os.getpid():
        drop()
        place = _place = _reach(settings.cache)
        _place_of = settings
    return place


def drop() -> None:
    """Trust none of the connections any more; the next question makes new ones."""
    global _place
    dropped, _place = _place, None
    if dropped is not None and dropped.pid == os.getpid():  # a forked child must not close its parent's
        dropped.close()


def is_cluster() -> bool:
    """Whether names may live apart."""
    place = _place
    if place is None:
        try:
            place = current()
        except ImproperlyConfigured:
            return False
    return place.is_cluster


def _reach(alias: str) -> Place:
    options = (conf.cache_options() or {}).get(alias)
    if options is None:
        raise ImproperlyConfigured(f"CACHES has no {alias!r}, which RATELIMIT_APP['CACHE'] names.")
    location = options.get("LOCATION", "")
    url = location if isinstance(location, str) else location[0]
    extra = dict(options.get("OPTIONS", {}))
    factory = import_string(extra.get("CONNECTION_FACTORY", FACTORY))(extra)
    if isinstance(factory, SentinelConnectionFactory):
        return _by_sentinels(url, factory)
    cluster = ClusterURL.parse(url)
    return Server(url, factory) if cluster is None else _by_cluster(cluster, factory)


def _by_cluster(url: ClusterURL, factory: ConnectionFactory) -> Shards:
    def make(address: Address) -> Server:
        return Server(url.of_node(address), factory, address=address, name=f"{address[0]}:{address[1]}")

    def find(servers: Iterable[Server], timeout_seconds: float | None) -> Found:
        return finding.by_cluster(servers, timeout_seconds=timeout_seconds)

    return Shards(find, make, seeds=url.seeds, is_cluster=True)


def _by_sentinels(url: str, factory: SentinelConnectionFactory) -> Shards:
    parts = urlsplit(url)._replace(query="")
    of_master = factory.of_master()

    def make(address: Address) -> Server:
        return Server(finding.url_at(parts, address), of_master, address=address)

    def find(servers: Iterable[Server], timeout_seconds: float | None) -> Found:
        return finding.by_sentinels(factory.discover_master(parts.hostname or "", timeout_seconds=timeout_seconds))

    return Shards(find, make, is_cluster=False)


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "CACHES":
        drop()
        ConnectionFactory._pools.clear()


setting_changed.connect(_forget, dispatch_uid="ratelimit_app.connections")
