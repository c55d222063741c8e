"""Which pools does django-redis use? Ours: short timeouts, no retry, and nobody else's options."""

from __future__ import annotations

from typing import Any

from django_redis import pool as django_redis_pool
from redis.backoff import NoBackoff
from redis.retry import Retry

from ratelimit_app import conf


class ConnectionFactory(django_redis_pool.ConnectionFactory):  # type: ignore[misc]
    """`CONNECTION_FACTORY` of the cache alias: pools of its own, short timeouts, no retry, RESP2."""

    _pools: dict[str, Any] = {}

    def make_connection_params(self, url: str) -> dict[str, Any]:
        params = super().make_connection_params(url)
        settings = conf.current()
        return {
            **params,
            "socket_timeout": settings.timeout_seconds,
            "socket_connect_timeout": settings.connect_timeout_seconds,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,  # spares two round trips on a new connection
        }

    def get_or_create_connection_pool(self, params: dict[str, Any]) -> Any:
        key = repr(sorted((name, value) for name, value in params.items() if name != "retry"))
        if key not in self._pools:
            self._pools[key] = self.get_connection_pool(params)
        return self._pools[key]
