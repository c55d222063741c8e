"""Has somebody edited plans or keys? One thread per process watches, so that no request has to.

It compares the version rows every `POLL_SECONDS` on the database that is written to; a message
through Redis only says "look now", so the bound holds when Redis and every message are lost. The
process that made a change acts on it as soon as it is committed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

from django.db import Error as DatabaseError  # InterfaceError is one too
from django.db import connections as databases
from django.db import router

from ratelimit_app import conf, connections, fallback, key_cache, plan_cache
from ratelimit_app.models import KeyChange, Version, changed

logger = logging.getLogger("ratelimit_app")

_watching_pid = 0
_stop = threading.Event()
_thread: threading.Thread | None = None
#: The thread may be waiting for a message, for `POLL_SECONDS` at most.
_LONGEST_GOODBYE_SECONDS = 3.0
_start_lock = threading.Lock()
#: The version of the keys that this process's cache reflects; None before the first look.
_keys_version: int | None = None


def connect() -> None:
    """Act on this process's own changes. Called once, when Django starts."""
    changed.connect(_act_on, dispatch_uid="ratelimit_app.changes")


def watch() -> None:
    """Make sure this process has its watching thread. Costs a comparison once it runs."""
    if _watching_pid != os.getpid() and conf.current().poll_seconds:
        _start()


def stop() -> None:
    """End the watching thread and wait until it let go of its connections; the next `watch` starts another."""
    global _watching_pid, _keys_version
    _stop.set()
    if _thread is not None and _watching_pid == os.getpid():
        _thread.join(_LONGEST_GOODBYE_SECONDS)
    _watching_pid, _keys_version = 0, None


def look() -> None:
    """Compare the versions once and drop what changed. Raises DatabaseError."""
    global _keys_version
    using = router.db_for_write(Version)
    versions = dict(Version.objects.using(using).values_list("name", "number"))
    if plan_cache.is_warm() and versions.get("plans", 0) != plan_cache.table().version:
        plan_cache.forget()
        plan_cache.table()
    plan_cache.confirm(versions.get("plans", 0))
    keys_version = versions.get("keys", 0)
    if keys_version != _keys_version:
        key_cache.forget(_changed_since(_keys_version, using=using))
        _keys_version = keys_version


def _changed_since(version: int | None, *, using: str) -> list[str] | None:
    if version is None:
        return None
    public_ids = list(
        KeyChange.objects.using(using).filter(version__gt=version).values_list("public_id", flat=True).distinct()
    )
    return None if "" in public_ids else public_ids


def _act_on(*, what: str, public_ids: list[str] | None, **kwargs: Any) -> None:
    if what == "plans":
        plan_cache.forget()
    else:
        key_cache.forget(public_ids)
    try:
        connections.command("PUBLISH", _channel(), what)
    except connections.Unavailable as failure:
        logger.info("Other processes see this change at their next look: %s", str(failure))


def _channel() -> str:
    return f"{conf.current().prefix}:changed"


def _start() -> None:
    global _watching_pid, _stop, _thread, _keys_version
    with _start_lock:
        if _watching_pid == os.getpid():
            return
        _stop, _keys_version = threading.Event(), None
        thread = threading.Thread(target=_run, args=(_stop,), name="ratelimit_app.changes", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread to be had: the next request tries again
            return
        _thread = thread
        _watching_pid = os.getpid()


def _run(stopped: threading.Event) -> None:
    subscription: connections.Subscription | None = None
    while not stopped.is_set():
        try:
            fallback.beat()
        except connections.Unavailable:
            pass  # the last count goes on
        fallback.settle()
        try:
            look()
        except DatabaseError as failure:
            logger.warning("Changes of plans and keys cannot be looked for: %s", str(failure))
        finally:
            databases[router.db_for_write(Version)].close_if_unusable_or_obsolete()
        subscription = _wait(stopped, subscription, conf.current().poll_seconds or 1.0)
    databases[router.db_for_write(Version)].close()
    if subscription is not None:
        subscription.close()


def _wait(
    stopped: threading.Event, subscription: connections.Subscription | None, seconds: float
) -> connections.Subscription | None:
    """Wait until a message says "look now", or the time is over. Returns the subscription, if it still works."""
    until = time.monotonic() + seconds
    try:
        subscription = subscription or connections.Subscription(_channel())
        subscription.wait(seconds)
    except connections.Unavailable:
        stopped.wait(max(0.0, until - time.monotonic()))
        return None
    return subscription
