"""How do the tests of your project start each time with full buckets? They call `reset()`."""

from __future__ import annotations

from ratelimit_app import buckets, changes, debts, denials, fallback, key_cache, leases, limiter, plan_cache, usage


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
    return buckets.delete_all()
