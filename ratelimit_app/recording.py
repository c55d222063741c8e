"""How does a batch become rows, exactly once? Its id and its rows are written in one transaction.

A batch may arrive twice, late, in any order, or from a newer version of the app. Rows are added up
by the database itself, always in the same order, so that workers never wait for each other in a
circle. A row that the database refuses is set aside, and the rest of its batch is stored.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal, cast

from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, connections, models, router, transaction
from django.utils import timezone

from ratelimit_app import conf
from ratelimit_app.models import (
    Batch,
    DecisionMinute,
    DroppedMinute,
    KeyChange,
    KeyUse,
    Refusal,
    RefusalMinute,
    SetAside,
    UsageMinute,
)
from ratelimit_app.usage import storable

#: Ids of batches are kept far longer than any broker takes to deliver a message again.
BATCH_DAYS = 7
_ROWS_IN_A_DELETE = 500
#: Below the bound that PostgreSQL sets; SQLite says its own.
_PARAMETERS_IN_A_STATEMENT = 30_000


@dataclass(frozen=True)
class _Table:
    """Where the rows under one name of a batch go."""

    model: type[models.Model]
    #: What makes a row the same row as another.
    key: tuple[str, ...]
    #: The other columns.
    values: tuple[str, ...]
    #: What becomes of the values when the row is there already: added up, the later one kept, or the first.
    merge: Literal["add", "latest", "first"] = "add"

    @cached_property
    def fields(self) -> tuple[models.Field[Any, Any], ...]:
        return tuple(
            cast("models.Field[Any, Any]", self.model._meta.get_field(name)) for name in self.key + self.values
        )


#: By the name in a batch. Columns are only ever added, at the end: old and new processes meet in one queue.
_TABLES = {
    "usage": _Table(
        UsageMinute,
        ("minute", "identity", "plan_id"),
        ("allowed", "refused", "would_refuse", "unchecked", "failed_closed", "local"),
    ),
    "refusals": _Table(RefusalMinute, ("minute", "identity", "limit_id", "route"), ("refused", "would_refuse")),
    "decisions": _Table(DecisionMinute, ("minute", "at_most_microseconds"), ("decisions",)),
    "dropped": _Table(DroppedMinute, ("minute", "kind"), ("dropped",)),
    "key_uses": _Table(KeyUse, ("key_id",), ("last_used_at",), merge="latest"),
    "samples": _Table(
        Refusal,
        ("receipt",),
        (
            *("at", "identity", "key_id", "plan_id", "limit_id", "limit_name"),
            *("route", "method", "address", "cost", "retry_after_seconds"),
        ),
        merge="first",
    ),
}

_BATCHES = _Table(Batch, ("id",), ("received_at",), merge="first")

_Row = tuple[Any, ...]
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
        if not _insert(_BATCHES, [(batch_id, timezone.now())], using=using):
            return False
        for name, rows in sorted(batch.items()):
            if name != "id":
                for row, error in _store(name, rows, using=using):
                    _set_aside(batch_id, name, row, error, using=using)
    return True


def prune() -> None:
    """Delete statistics older than `RETENTION_DAYS`, and what only recent deliveries and caches need."""
    now, using = timezone.now(), router.db_for_write(UsageMinute)
    kept_since = now - timedelta(days=conf.current().retention_days)
    for model in (UsageMinute, RefusalMinute, DecisionMinute, DroppedMinute):
        _delete(model, using=using, minute__lt=kept_since)
    _delete(Refusal, using=using, at__lt=kept_since)
    _delete(SetAside, using=using, received_at__lt=kept_since)
    _delete(Batch, using=using, received_at__lt=now - timedelta(days=BATCH_DAYS))
    _delete(KeyChange, using=router.db_for_write(KeyChange), at__lt=now - timedelta(days=BATCH_DAYS))


def _store(name: str, rows: Any, *, using: str) -> _Refused:
    """Store the rows under one name of a batch. Returns those that could not be, with the reason."""
    table = _TABLES.get(name)
    if table is None:
        return [(rows, LookupError("from a newer version, which knows this table"))]
    if not isinstance(rows, list | tuple):
        return [(rows, TypeError("not a list of rows"))]
    merged: dict[_Row, list[Any]] = {}
    refused: _Refused = []
    for row in rows:
        try:
            clean = _clean(table, row)
        except _BAD_ROW as error:
            refused.append((row, error))
            continue
        key, values = clean[: len(table.key)], list(clean[len(table.key) :])
        # One statement may meet a row only once.
        if table.merge == "add" and key in merged:
            merged[key] = [ours + theirs for ours, theirs in zip(merged[key], values, strict=True)]
        elif table.merge == "latest" and key in merged:
            merged[key] = max(merged[key], values)
        else:
            merged.setdefault(key, values)
    # Sorted: two workers that lock the same rows lock them in the same order.
    ready = [(*key, *merged[key]) for key in sorted(merged)]
    most = connections[using].features.max_query_params or _PARAMETERS_IN_A_STATEMENT
    chunk = max(1, min(most, _PARAMETERS_IN_A_STATEMENT) // len(table.fields))
    for start in range(0, len(ready), chunk):
        refused += _store_what_can_be(table, ready[start : start + chunk], using=using)
    return refused


def _store_what_can_be(table: _Table, rows: Sequence[_Row], *, using: str) -> _Refused:
    """Insert rows; when the database refuses them, look for the bad one by halves."""
    try:
        with transaction.atomic(using=using):
            _insert(table, rows, using=using)
    except _BAD_ROW as error:
        if len(rows) == 1:
            return [(rows[0], error)]
        middle = len(rows) // 2
        return [
            *_store_what_can_be(table, rows[:middle], using=using),
            *_store_what_can_be(table, rows[middle:], using=using),
        ]
    return []


def _insert(table: _Table, rows: Sequence[_Row], *, using: str) -> int:
    """Insert rows in one statement, merging them into those that are there. Returns how many it wrote."""
    connection = connections[using]
    quote = connection.ops.quote_name
    target = quote(table.model._meta.db_table)
    columns = [quote(str(field.column)) for field in table.fields]
    values = columns[len(table.key) :]
    merge = "NOTHING"
    if table.merge == "add":
        merge = "UPDATE SET " + ", ".join(f"{value} = {target}.{value} + EXCLUDED.{value}" for value in values)
    elif table.merge == "latest":
        (value,) = values
        merge = f"UPDATE SET {value} = EXCLUDED.{value} WHERE {target}.{value} < EXCLUDED.{value}"
    places = "(" + ", ".join(["%s"] * len(columns)) + ")"
    statement = (
        f"INSERT INTO {target} ({', '.join(columns)}) VALUES {', '.join([places] * len(rows))} "  # noqa: S608 (names are the models' own)
        f"ON CONFLICT ({', '.join(columns[: len(table.key)])}) DO {merge}"
    )
    parameters = [
        field.get_db_prep_save(value, connection)
        for row in rows
        for field, value in zip(table.fields, row, strict=True)
    ]
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def _clean(table: _Table, row: Any) -> _Row:
    """A row's values as its columns take them. Raises one of `_BAD_ROW`."""
    if not isinstance(row, list | tuple):
        raise TypeError("not a list of values")
    row = list(row[: len(table.fields)])  # a newer version may send more columns, an older one fewer
    if table.merge == "add" and len(row) > len(table.key):
        row += [0] * (len(table.fields) - len(row))
    return tuple(
        field.clean(_moment(value) if isinstance(field, models.DateTimeField) else value, None)
        for field, value in zip(table.fields, row, strict=True)
    )


def _moment(seconds: float) -> datetime:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment if timezone.is_aware(timezone.now()) else timezone.make_naive(moment)


def _set_aside(batch_id: uuid.UUID, table: str, row: Any, error: Exception, *, using: str) -> None:
    SetAside.objects.using(using).create(
        batch_id=batch_id,
        table=storable(str(table), 50),
        row=json.dumps(row, default=str),  # plain ASCII, whatever the row holds
        error=storable(f"{type(error).__name__}: {error}", 1000),
    )


def _delete(model: type[models.Model], *, using: str, **older: Any) -> None:
    """Delete in small bites, so that nobody who writes waits for long."""
    rows = model._base_manager.using(using)
    while found := list(rows.filter(**older).order_by().values_list("pk", flat=True)[:_ROWS_IN_A_DELETE]):
        rows.filter(pk__in=found).delete()
