"""How do the tests of your project start each time with full buckets? They call `reset()`."""

from __future__ import annotations

from typing import Any

from ratelimit_app import (
    changes,
    connections,
    debts,
    denials,
    fallback,
    key_cache,
    leases,
    limiter,
    names,
    plan_cache,
    usage,
)


def reset() -> int:
    """Forget everything the limiter knows: buckets in Redis, plans and keys in memory, uncounted usage.

    Deletes only names below `RATELIMIT_APP["PREFIX"]`; returns how many. Call it before each test,
    for example in an autouse fixture or `setUp`, and after an edit of plans or keys inside a
    `TestCase`, whose transaction never commits and so announces nothing.
    Raises connections.Unavailable when Redis is down.
    """
    changes.stop()
    plan_cache.clear()
    key_cache.forget(None)
    usage.reset()
    leases.reset()
    denials.forget()
    debts.clear()
    fallback.reset()
    limiter.reset_breaker()
    return delete_all()


def delete_all() -> int:
    """Delete every name below this project's prefix; other names are left alone. Returns how many."""
    prefix = names.prefix().decode().translate({ord(c): f"\\{c}" for c in "?[]*\\"})
    deleted = 0
    for node in connections.sample_of_nodes():
        cursor: Any = b"0"
        while True:
            cursor, found = connections.command("SCAN", cursor, "MATCH", f"{prefix}:*", "COUNT", 1_000, key=node)
            apart = [[name] for name in found] if connections.is_cluster() else [found] if found else []
            for together in apart:
                deleted += connections.command("DEL", *together, key=together[0])
            if cursor == b"0":
                break
    return deleted
