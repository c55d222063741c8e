"""What does a process do before it ends? It gives back what it holds of leases, and sends what it counted.

Python's `atexit` sees to it, but servers of the uvicorn family end a process by the signal that told
them to stop, before anything registered there is run. They speak the lifespan protocol instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Application = Callable[[Any, Any, Any], Awaitable[None]]


def end_in_order() -> None:
    """Give tokens back and send what is counted; about 3 s at most, however broken Redis and the broker are."""
    # Imported here: `asgi.py` imports this module before Django is set up, which models may not be.
    from ratelimit_app import leases, usage

    leases.give_back_at_exit()
    usage.flush_at_exit()


def with_lifespan(application: _Application) -> _Application:
    """An ASGI application, such as Django's, that speaks no lifespan protocol, with one that ends in order."""

    async def application_with_lifespan(scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        if scope["type"] != "lifespan":
            await application(scope, receive, send)
            return
        await receive()  # lifespan.startup: nothing has to be ready
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown: every request is answered
        await asyncio.to_thread(end_in_order)
        await send({"type": "lifespan.shutdown.complete"})

    return application_with_lifespan
