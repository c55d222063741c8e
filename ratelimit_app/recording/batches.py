"""How does a batch become rows, exactly once? Its id and its rows are written in one transaction.

A batch may arrive twice, late, in any order, or from a newer version of the app. Rows are added up
by the database itself, always in the same order, so that workers never wait for each other in a
circle; those that every batch adds to come last, so that nobody waits for long. A row that the
database refuses is set aside, and the rest of its batch is stored.

A row goes to the finest table that still keeps its time. If the hour (or day) above it is summed up
already, that is listed to be summed up again, in the same transaction.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, models, router, transaction
from django.utils import timezone

from ratelimit_app import resolutions
from ratelimit_app.models import Batch, DroppedMinute, KeyUse, OutageSpan, Refusal, SetAside, UsageMinute
from ratelimit_app.recording.rolling import note_late
from ratelimit_app.recording.statements import Row, Table, chunks, insert, table_of
from ratelimit_app.resolutions import DAY, DECISIONS, HOUR, LIMITS, MINUTE, PLANS, REFUSALS, USAGE, Fact, Reaches
from ratelimit_app.usage import storable

#: By the name in a batch: what is counted by the minute. Columns are only ever added, at the end: old and new
#: processes meet in one queue.
_COUNTED = {"usage": USAGE, "refusals": REFUSALS, "decisions": DECISIONS}
#: The same counts of all callers together.
_TOTALS = {"usage": PLANS, "refusals": LIMITS}
#: By the name in a batch: what is not.
_OTHERS = {
    "dropped": Table(DroppedMinute, ("minute", "kind"), ("dropped",)),
    "key_uses": Table(KeyUse, ("key_id",), ("last_used_at",), merge="greatest"),
    "outages": Table(
        OutageSpan, ("gateway", "server", "started_at", "error"), ("last_seen_at", "ended"), merge="greatest"
    ),
    "samples": Table(
        Refusal,
        ("receipt",),
        (
            *("at", "identity", "key_id", "plan_id", "limit_id", "limit_name"),
            *("route", "method", "address", "cost", "retry_after_seconds"),
        ),
        merge="first",
    ),
}
_TABLES = {**{name: table_of(fact, MINUTE) for name, fact in _COUNTED.items()}, **_OTHERS}
#: The later, the more batches add to the same rows.
_ORDER = ("key_uses", "outages", "usage", "refusals", "samples", "dropped", "decisions")
_BATCHES = Table(Batch, ("id",), ("received_at",), merge="first")

_Refused = list[tuple[Any, Exception]]
_NO_ID = (KeyError, TypeError, ValueError)
#: What says that a row is bad, not that the database is.
_BAD_ROW = (DataError, IntegrityError, ValidationError, ValueError, TypeError, OverflowError)


def record(batch: Mapping[str, Any]) -> bool:
    """Store a batch. Returns False, and stores nothing, when it was stored before.

    Raises django.db.Error when the database cannot be written to; the batch can be tried again.
    """
    using = router.db_for_write(UsageMinute)
    with transaction.atomic(using=using):
        try:
            batch_id = uuid.UUID(str(batch["id"]))
        except _NO_ID as problem:  # it could never be known again
            _set_aside(uuid.UUID(int=0), "", batch, problem, using=using)
            return True
        if not insert(_BATCHES, [(batch_id, timezone.now())], using=using):
            return False
        _Storing(using, resolutions.hold(using), batch_id).store(batch)
    return True


@dataclass
class _Storing:
    """One batch on its way into the tables, in one transaction."""

    using: str
    reached: Reaches
    batch_id: uuid.UUID

    def __post_init__(self) -> None:
        self._counted: dict[str, list[Row]] = {}

    def store(self, batch: Mapping[str, Any]) -> None:
        unknown = sorted(str(name) for name in batch if name != "id" and name not in _ORDER)
        for name in [*unknown, *(name for name in _ORDER if name in batch)]:
            for row, error in self._store_rows(name, batch[name]):
                _set_aside(self.batch_id, name, row, error, using=self.using)
        for name, fact in sorted(_TOTALS.items()):
            self._store_counts(fact, _totals(_COUNTED[name], fact, self._counted.get(name, ())))
        seconds = {resolutions.seconds_of(row[0]) for rows in self._counted.values() for row in rows}
        kept_in_minutes = {at for at in seconds if at >= self.reached[HOUR].purged_until}
        note_late(HOUR, kept_in_minutes, reached=self.reached, using=self.using)
        kept_in_hours = {at for at in seconds - kept_in_minutes if at >= self.reached[DAY].purged_until}
        note_late(DAY, kept_in_hours, reached=self.reached, using=self.using)

    def _store_rows(self, name: str, rows: Any) -> _Refused:
        """Store the rows under one name of a batch. Returns those that could not be, with the reason."""
        table = _TABLES.get(name)
        if table is None:
            return [(rows, LookupError("from a newer version, which knows this table"))]
        if not isinstance(rows, list | tuple):
            return [(rows, TypeError("not a list of rows"))]
        clean: list[Row] = []
        refused: _Refused = []
        for row in rows:
            try:
                clean.append(_clean(table, row))
            except _BAD_ROW as error:
                refused.append((row, error))
        merged = _merged(table, clean)
        if name not in _COUNTED:
            return refused + self._insert(table, merged)
        not_stored = self._store_counts(_COUNTED[name], merged)
        bad = {row[: len(table.key)] for row, _ in not_stored}
        self._counted[name] = [row for row in merged if row[: len(table.key)] not in bad]
        return refused + not_stored

    def _store_counts(self, fact: Fact, rows: Sequence[Row]) -> _Refused:
        """Add counts up in the finest rows that still keep their time."""
        by_resolution: defaultdict[resolutions.Resolution, list[Row]] = defaultdict(list)
        for row in rows:
            at = resolutions.seconds_of(row[0])
            resolution = MINUTE
            for coarser in resolutions.FINER:
                if at < self.reached[coarser].purged_until:
                    resolution = coarser
            if resolution is not MINUTE:
                row = (resolutions.moment(resolution.floor(at)), *row[1:])
            by_resolution[resolution].append(row)
        refused: _Refused = []
        for resolution, counted in sorted(by_resolution.items()):
            table = table_of(fact, resolution)
            refused += self._insert(table, counted if resolution is MINUTE else _merged(table, counted))
        return refused

    def _insert(self, table: Table, rows: Sequence[Row]) -> _Refused:
        refused: _Refused = []
        for chunk in chunks(table, rows, using=self.using):
            refused += _store_what_can_be(table, chunk, using=self.using)
        return refused


def _merged(table: Table, rows: Sequence[Row]) -> list[Row]:
    """Each row once, as one statement demands; sorted: workers that lock the same rows do so in the same order."""
    merged: dict[Row, Row] = {}
    for row in rows:
        key, values = row[: len(table.key)], row[len(table.key) :]
        if table.merge == "add" and key in merged:
            merged[key] = tuple(ours + theirs for ours, theirs in zip(merged[key], values, strict=True))
        elif table.merge == "greatest" and key in merged:
            merged[key] = tuple(map(max, merged[key], values))
        else:
            merged.setdefault(key, values)
    return [(*key, *merged[key]) for key in sorted(merged)]


def _totals(fact: Fact, total: Fact, rows: Sequence[Row]) -> list[Row]:
    """The rows of a fact, all callers together."""
    kept = [0, *(1 + fact.key.index(name) for name in total.key)]
    first_value = 1 + len(fact.key)
    together = [(*(row[place] for place in kept), *row[first_value:]) for row in rows]
    return _merged(table_of(total, MINUTE), together)


def _store_what_can_be(table: Table, rows: Sequence[Row], *, using: str) -> _Refused:
    """Insert rows; when the database refuses them, look for the bad one by halves."""
    try:
        with transaction.atomic(using=using):
            insert(table, rows, using=using)
    except _BAD_ROW as error:
        if len(rows) == 1:
            return [(rows[0], error)]
        middle = len(rows) // 2
        return [
            *_store_what_can_be(table, rows[:middle], using=using),
            *_store_what_can_be(table, rows[middle:], using=using),
        ]
    return []


def _clean(table: Table, row: Any) -> Row:
    """A row's values as its columns take them. Raises one of `_BAD_ROW`."""
    if not isinstance(row, list | tuple):
        raise TypeError("not a list of values")
    row = list(row[: len(table.fields)])  # a newer version may send more columns, an older one fewer
    if table.merge == "add" and len(row) > len(table.key):
        row += [0] * (len(table.fields) - len(row))
    return tuple(
        value if is_plain(value) else field.clean(_as_moment(field, value), None)
        for field, is_plain, value in zip(table.fields, table.plain, row, strict=True)
    )


def _as_moment(field: models.Field[Any, Any], value: Any) -> Any:
    return resolutions.moment(value) if isinstance(field, models.DateTimeField) else value


def _set_aside(batch_id: uuid.UUID, table: str, row: Any, error: Exception, *, using: str) -> None:
    SetAside.objects.using(using).create(
        batch_id=batch_id,
        table=storable(str(table), 50),
        row=json.dumps(row, default=str),  # plain ASCII, whatever the row holds
        error=storable(f"{type(error).__name__}: {error}", 1000),
    )
