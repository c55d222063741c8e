"""What have all processes of this machine counted? They add it up in one file, each what is new every few seconds.

A web server runs many processes, and whoever asks for metrics meets one of them. So each adds the
growth of its counts to a small SQLite database (`METRICS_FILE`), in one transaction, from the flush
thread. A process that ends leaves its counts behind, and one that is killed loses a few seconds.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from ratelimit_app.usage.counters import Series

logger = logging.getLogger("ratelimit_app")

SECONDS_BETWEEN = 5.0
#: A process that was silent for so long is gone, and how it stood no longer matters.
GONE_AFTER_SECONDS = 20.0
_TIMEOUT_SECONDS = 1.0
_SECONDS_BETWEEN_WARNINGS = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS totals (series TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gauges (process TEXT PRIMARY KEY, at REAL NOT NULL, gauges TEXT NOT NULL) WITHOUT ROWID;
"""
_ADD = "INSERT INTO totals VALUES (?, ?) ON CONFLICT (series) DO UPDATE SET value = value + excluded.value"

#: How this process stands; `metrics` says how to find out.
read_gauges: Callable[[], Mapping[str, float]] = dict


class Share:
    """What one process has added to the file so far."""

    def __init__(self) -> None:
        self._process = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._added: dict[Series, float] = {}
        self._next = 0.0
        self._next_warning = 0.0

    def add(self, path: str, counts: Callable[[], Mapping[Series, float]], *, at_once: bool) -> None:
        """Add what is new, if it is time to. Never raises; what could not be added is added later."""
        if not path or (time.monotonic() < self._next and not at_once):
            return
        self._next = time.monotonic() + SECONDS_BETWEEN
        now, gauges = dict(counts()), json.dumps(dict(read_gauges()))
        new = [(json.dumps(series), value - self._added.get(series, 0)) for series, value in now.items()]
        try:
            with _opened(path) as database, database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany(_ADD, [(series, grown) for series, grown in new if grown])
                database.execute("DELETE FROM gauges WHERE at < ?", [time.time() - GONE_AFTER_SECONDS])
                database.execute("REPLACE INTO gauges VALUES (?, ?, ?)", [self._process, time.time(), gauges])
        except sqlite3.Error as failure:
            if time.monotonic() >= self._next_warning:
                self._next_warning = time.monotonic() + _SECONDS_BETWEEN_WARNINGS
                logger.warning("Metrics cannot be added to METRICS_FILE: %s", failure)
        else:
            self._added = now


def read(path: str) -> tuple[dict[Series, float], list[dict[str, float]]]:
    """The counts of all processes, and how each of those that live stands. Raises sqlite3.Error."""
    with _opened(path) as database:
        totals = database.execute("SELECT series, value FROM totals").fetchall()
        alive = database.execute("SELECT gauges FROM gauges WHERE at >= ?", [time.time() - GONE_AFTER_SECONDS])
        gauges = [json.loads(text) for (text,) in alive]
    return {tuple(json.loads(series)): value for series, value in totals}, gauges


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    # Opened anew each time: a connection must not be carried through a fork.
    with closing(sqlite3.connect(path, timeout=_TIMEOUT_SECONDS, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(_TABLES)
        yield database
