"""Which pools does django-redis use? Ours: short timeouts, no retry, and nobody else's options."""

from __future__ import annotations

from typing import Any, cast

from django_redis import pool as django_redis_pool
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from ratelimit_app import conf
from ratelimit_app.connections.finding import Address


class ConnectionFactory(django_redis_pool.ConnectionFactory):  # type: ignore[misc]
    """`CONNECTION_FACTORY` of the cache alias: pools of its own, short timeouts, no retry, RESP2."""

    _pools: dict[str, Any] = {}

    def make_connection_params(self, url: str) -> dict[str, Any]:
        params = super().make_connection_params(url)
        return {**params, **_short_and_once(), "driver_info": None}  # that spares two round trips on a new connection

    def get_or_create_connection_pool(self, params: dict[str, Any]) -> Any:
        key = repr(sorted((name, value) for name, value in params.items() if name != "retry"))
        if key not in self._pools:
            self._pools[key] = self.get_connection_pool(params)
        return self._pools[key]


class SentinelConnectionFactory(ConnectionFactory, django_redis_pool.SentinelConnectionFactory):  # type: ignore[misc]
    """The same for a master that sentinels know: beside django-redis's `SentinelClient`, with its `SENTINELS`."""

    def __init__(self, options: dict[str, Any]) -> None:
        own = {**_short_and_once(), **(options.get("SENTINEL_KWARGS") or {})}
        super().__init__({**options, "SENTINEL_KWARGS": own})

    def of_master(self) -> ConnectionFactory:
        """What makes connections to the master, once its address is known."""
        own = ("CONNECTION_POOL_CLASS", "SENTINELS", "SENTINEL_KWARGS")
        return ConnectionFactory({name: value for name, value in self.options.items() if name not in own})

    def discover_master(self, service: str, *, timeout_seconds: float | None) -> Address:
        """The address of a master, as sentinels say, each asked for so long. Raises a RedisError."""
        kwargs = dict(self.options["SENTINEL_KWARGS"])
        if timeout_seconds is not None:
            kwargs |= {"socket_timeout": timeout_seconds, "socket_connect_timeout": timeout_seconds}
        asked = Sentinel(self.options["SENTINELS"], sentinel_kwargs=kwargs)  # type: ignore[no-untyped-call]
        try:
            return cast("Address", asked.discover_master(service))  # type: ignore[no-untyped-call]
        finally:
            for sentinel in asked.sentinels:
                sentinel.close()


def _short_and_once() -> dict[str, Any]:
    settings = conf.current()
    return {
        "socket_timeout": settings.timeout_seconds,
        "socket_connect_timeout": settings.connect_timeout_seconds,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
