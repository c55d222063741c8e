"""How are rows added up by the database itself? By one statement that inserts, or merges into what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from ratelimit_app import resolutions
from ratelimit_app.resolutions import Fact, Resolution

#: Below the bound that PostgreSQL sets; SQLite says its own.
_PARAMETERS_IN_A_STATEMENT = 30_000

#: What identities are made of.
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """Where rows go, and what makes of two rows one."""

    model: type[models.Model]
    #: What makes a row the same row as another.
    key: tuple[str, ...]
    #: The other columns.
    values: tuple[str, ...]
    #: What becomes of the values when the row is there already: added up, the greater of each kept, or the first.
    merge: Literal["add", "greatest", "first"] = "add"

    @cached_property
    def fields(self) -> tuple[models.Field[Any, Any], ...]:
        return tuple(resolutions.field(self.model, name) for name in self.key + self.values)

    @cached_property
    def plain(self) -> tuple[Callable[[Any], bool], ...]:
        """By column: whether a value can be stored as it is. Of the others Django says so, in ten times the time."""
        return tuple(map(_plain_values, self.fields))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(str(field.column) for field in self.fields)


def _plain_values(field: models.Field[Any, Any]) -> Callable[[Any], bool]:
    if isinstance(field, models.BigIntegerField):
        return lambda value: type(value) is int and 0 <= value < 1 << 63
    if isinstance(field, models.CharField):
        longest = field.max_length or 0
        return lambda value: type(value) is str and 0 < len(value) <= longest
    return lambda value: False


@cache
def table_of(fact: Fact, resolution: Resolution) -> Table:
    """The rows of a fact at one resolution."""
    return Table(fact.tables[resolution], (resolution.name, *fact.key), fact.values)


def insert(table: Table, rows: Sequence[Row], *, using: str) -> int:
    """Insert rows in one statement, merging them into those that are there. Returns how many it wrote."""
    connection = connections[using]
    quote = connection.ops.quote_name
    target, columns = quote(table.model._meta.db_table), [quote(column) for column in table.columns]
    values = columns[len(table.key) :]
    merge = "NOTHING"
    if table.merge == "add":
        merge = "UPDATE SET " + ", ".join(f"{value} = {target}.{value} + EXCLUDED.{value}" for value in values)
    elif table.merge == "greatest":
        merge = "UPDATE SET " + ", ".join(
            f"{value} = CASE WHEN {target}.{value} < EXCLUDED.{value} THEN EXCLUDED.{value} ELSE {target}.{value} END"
            for value in values
        )
    source, parameters = _source(table, rows, connection)
    statement = (
        f"INSERT INTO {target} ({', '.join(columns)}) {source} "
        f"ON CONFLICT ({', '.join(columns[: len(table.key)])}) DO {merge}"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def _source(table: Table, rows: Sequence[Row], connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:
    """SQL of the rows as something to insert, and its parameters."""
    if connection.vendor == "postgresql":
        # A parameter for each column, not for each value: half of the time went into binding them.
        types = [str(field.db_type(connection)).partition("(")[0] for field in table.fields]
        return (
            f"SELECT * FROM unnest({', '.join(f'%s::{name}[]' for name in types)})",  # noqa: S608 (names are the models' own)
            [list(column) for column in zip(*rows, strict=True)],
        )
    places = f"({', '.join(['%s'] * len(table.fields))})"
    return f"VALUES {', '.join([places] * len(rows))}", [
        field.get_db_prep_save(value, connection)
        for row in rows
        for field, value in zip(table.fields, row, strict=True)
    ]


def chunks(table: Table, rows: Sequence[Row], *, using: str) -> Iterator[Sequence[Row]]:
    """The rows, as many at once as fit into one statement."""
    most = connections[using].features.max_query_params or _PARAMETERS_IN_A_STATEMENT
    size = max(1, min(most, _PARAMETERS_IN_A_STATEMENT) // len(table.fields))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def sum_up(fact: Fact, *, into: Resolution, start: int, first_letters: str | None, using: str) -> None:
    """Write the rows of one hour or day anew, from the finer ones in it.

    `first_letters` leaves it at callers whose identity begins with one of them; "" is all whose
    begins with none that identities are made of; None is everybody.
    """
    connection, finer = connections[using], resolutions.FINER[into]
    quote = connection.ops.quote_name
    source, target = fact.tables[finer], fact.tables[into]
    time, keys, values = quote(finer.name), [quote(name) for name in fact.key], [quote(name) for name in fact.values]
    edges = [
        resolutions.field(source, finer.name).get_db_prep_value(resolutions.moment(seconds), connection)
        for seconds in (start, start, start + into.seconds)
    ]
    where, letters = f"{time} >= %s AND {time} < %s", list(first_letters or LETTERS)
    if first_letters is not None:
        among = "IN" if first_letters else "NOT IN"
        where += f" AND SUBSTR({quote('identity')}, 1, 1) {among} ({', '.join(['%s'] * len(letters))})"
        edges += letters
    # A parameter alone in a select list has no type on PostgreSQL.
    begins = "CAST(%s AS timestamp with time zone)" if connection.vendor == "postgresql" else "%s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(target._meta.db_table)} ({', '.join([quote(into.name), *keys, *values])}) "  # noqa: S608 (names are the models' own)
            f"SELECT {begins}, {', '.join(keys)}, {', '.join(f'SUM({value})' for value in values)} "
            f"FROM {quote(source._meta.db_table)} WHERE {where} "
            f"GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)} "
            f"ON CONFLICT ({', '.join([quote(into.name), *keys])}) "
            f"DO UPDATE SET {', '.join(f'{value} = EXCLUDED.{value}' for value in values)}",
            edges,
        )
