"""How is a span read that lies in minutes, hours and days? As one: by a union over the tables that hold its pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from django.db import connections, router
from django.db.models import BigIntegerField, DateTimeField, F, Func, Max, Q, Sum, Value

from ratelimit_app import resolutions
from ratelimit_app.resolutions import DAY, Fact, Piece, Resolution
from ratelimit_app.stats.windows import Window

#: The column, in answers, of when a row's minute, hour or day begins.
AT = "at"
#: And of when the newest row began that counted something.
LAST = "last"
#: And of which bucket of the window a row is in, counted from 0.
BUCKET = "bucket"


#: The frontiers as one page found them, while it is made.
_reached: ContextVar[resolutions.Reaches | None] = ContextVar("reached", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Let all answers within be about one moment of the roll-up: how far it has come is read once."""
    token = _reached.set(resolutions.reaches())
    try:
        yield
    finally:
        _reached.reset(token)


def pieces(within: Window, *, coarsest: Resolution = DAY) -> tuple[Piece, ...]:
    """Which rows hold a window."""
    start, end = int(within.start.timestamp()), int(within.end.timestamp())
    return resolutions.pieces(start, end, reached=_reached.get() or resolutions.reaches(), coarsest=coarsest)


def sums(
    fact: Fact, within: Window, *conditions: Q, by: Iterable[str], last: str = "", **filters: Any
) -> list[dict[str, Any]]:
    """What a fact adds up to within a window, by some columns of its key, and by `AT` or `BUCKET`.

    A group may come several times, once for each piece of the window: the caller adds up. With `last`,
    the name of a count, each also says as `LAST` when the newest row began in which that was not zero.
    """
    by = tuple(by)
    totals = {f"{value}_sum": Sum(value) for value in fact.values}
    parts = []
    for piece in pieces(within, coarsest=within.resolution if BUCKET in by else DAY):
        name = piece.resolution.name
        span = {f"{name}__gte": _at(piece.start), f"{name}__lt": _at(piece.end)}
        rows = fact.tables[piece.resolution]._base_manager.filter(*conditions, **span, **filters).order_by()
        newest = {LAST: Max(name, filter=Q(**{f"{last}__gt": 0}))} if last else {}
        times = {AT: F(name), BUCKET: _Bucket(name, within)}
        rows = rows.annotate(**{time: times[time] for time in times if time in by})
        parts.append(rows.values(*by).annotate(**totals, **newest))
    if not parts:
        return []
    names = (*by, *totals, *([LAST] if last else []))
    found = parts[0].union(*parts[1:], all=True).values_list(*names)
    keys, first, end = (*by, *fact.values, *names[len(by) + len(totals) :]), len(by), len(by) + len(totals)
    # Sums of big integers arrive as Decimal from some databases.
    return [dict(zip(keys, (*row[:first], *map(int, row[first:end]), *row[end:]), strict=True)) for row in found]


class _Bucket(Func):
    """Which bucket of a window a moment is in; below 0 for what comes before, where finer rows are deleted.

    Asked of the database: a day of decisions by how long they took is 14,400 rows by the minute.
    """

    def __init__(self, name: str, within: Window) -> None:
        start = Value(_at(int(within.start.timestamp())), output_field=DateTimeField())
        super().__init__(F(name), start, output_field=BigIntegerField())
        self._seconds = within.bucket_seconds

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **context: Any) -> tuple[str, tuple[Any, ...]]:
        (at, at_parameters), (start, start_parameters) = map(compiler.compile, self.get_source_expressions())
        if connection.vendor == "postgresql":
            sql = f"FLOOR(EXTRACT(EPOCH FROM {at} - {start}) / {self._seconds})::bigint"
        else:
            seconds = (f"CAST(STRFTIME('%%s', {moment}) AS INTEGER)" for moment in (at, start))
            sql = f"({' - '.join(seconds)}) / {self._seconds}"
        return sql, (*at_parameters, *start_parameters)


class Selection:
    """Raw rows of a window as a table in SQL, for what the ORM cannot say over a union: ranks and counts of groups."""

    def __init__(self, fact: Fact, within: Window) -> None:
        self._fact = fact
        self._pieces = pieces(within)
        self.using = router.db_for_read(fact.tables[resolutions.MINUTE])

    def table(
        self, *columns: str, where: Mapping[str, Any] | None = None, only: Sequence[str] = (), same: str = ""
    ) -> tuple[str, list[Any]]:
        """SQL of all rows with these columns, and its parameters.

        `where` says what columns must equal, `only` names some of which one must be above zero,
        `same` is SQL that must be true of each row.
        """
        connection = connections[self.using]
        quote, parts, parameters = connection.ops.quote_name, [], []
        for piece in self._pieces:
            model, time = self._fact.tables[piece.resolution], piece.resolution.name
            conditions = [f"{quote(time)} >= %s", f"{quote(time)} < %s"]
            as_stored = resolutions.field(model, time).get_db_prep_value
            parameters += [as_stored(_at(edge), connection) for edge in (piece.start, piece.end)]
            for name, value in (where or {}).items():
                conditions.append(f"{quote(name)} = %s")
                parameters.append(value)
            if only:
                conditions.append(f"({' OR '.join(f'{quote(name)} > 0' for name in only)})")
            if same:
                conditions.append(same)
            parts.append(
                f"SELECT {', '.join(map(quote, columns))} FROM {quote(model._meta.db_table)} "  # noqa: S608 (names are the models' own)
                f"WHERE {' AND '.join(conditions)}"
            )
        return f"({' UNION ALL '.join(parts)})", parameters

    def fetch(self, statement: str, parameters: Iterable[Any]) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(statement, list(parameters))
            return list(cursor.fetchall())


def _at(seconds: int) -> datetime:
    return resolutions.moment(seconds)
