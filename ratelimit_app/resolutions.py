"""In which rows is a moment counted? In minutes, then hours, then days: a fact has a table for each.

Two frontiers divide time for each coarser resolution (see `models.Frontier`): before `rolled_until`
it holds everything that the finer one does, and before `purged_until` the finer one is gone. So
any span is the sum of pieces, each from the coarsest table that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, cast

from django.db import connections, models
from django.utils import timezone

from ratelimit_app.models import (
    DecisionDay,
    DecisionHour,
    DecisionMinute,
    Frontier,
    LimitDay,
    LimitHour,
    LimitMinute,
    PlanDay,
    PlanHour,
    PlanMinute,
    RefusalDay,
    RefusalHour,
    RefusalMinute,
    UsageDay,
    UsageHour,
    UsageMinute,
)


class Resolution(NamedTuple):
    """How long the span is that one row counts; the name is also that of its column."""

    name: str
    seconds: int

    def floor(self, seconds: int) -> int:
        """When the span begins that contains this moment."""
        return seconds - seconds % self.seconds

    def ceil(self, seconds: int) -> int:
        """When the first span begins that is not before this moment."""
        return self.floor(seconds + self.seconds - 1)


MINUTE, HOUR, DAY = Resolution("minute", 60), Resolution("hour", 3600), Resolution("day", 86_400)
ALL = (MINUTE, HOUR, DAY)
#: What is rolled up into what.
FINER = {HOUR: MINUTE, DAY: HOUR}


@dataclass(frozen=True, eq=False)  # there are five, and none is equal to another
class Fact:
    """What is counted, and where."""

    tables: Mapping[Resolution, type[models.Model]]
    #: What tells rows of one moment apart.
    key: tuple[str, ...]
    #: What is added up.
    values: tuple[str, ...]

    @cached_property
    def has_callers(self) -> bool:
        return "identity" in self.key


_OUTCOMES = ("allowed", "refused", "would_refuse", "unchecked", "failed_closed", "local")
_BY_LIMIT = ("refused", "would_refuse", "unchecked", "failed_closed", "local")

USAGE = Fact({MINUTE: UsageMinute, HOUR: UsageHour, DAY: UsageDay}, ("identity", "plan_id"), _OUTCOMES)
REFUSALS = Fact(
    {MINUTE: RefusalMinute, HOUR: RefusalHour, DAY: RefusalDay}, ("identity", "limit_id", "route"), _BY_LIMIT
)
DECISIONS = Fact(
    {MINUTE: DecisionMinute, HOUR: DecisionHour, DAY: DecisionDay}, ("at_most_microseconds",), ("decisions",)
)
#: USAGE of all callers together.
PLANS = Fact({MINUTE: PlanMinute, HOUR: PlanHour, DAY: PlanDay}, ("plan_id",), _OUTCOMES)
#: REFUSALS of all callers together.
LIMITS = Fact({MINUTE: LimitMinute, HOUR: LimitHour, DAY: LimitDay}, ("limit_id", "route"), _BY_LIMIT)
FACTS = (USAGE, REFUSALS, DECISIONS, PLANS, LIMITS)


class Reach(NamedTuple):
    """The frontiers of one resolution, in seconds since 1970."""

    rolled_until: int = 0
    purged_until: int = 0


Reaches = Mapping[Resolution, Reach]


class Piece(NamedTuple):
    """A span, in seconds since 1970, and the rows that hold it."""

    resolution: Resolution
    start: int
    end: int


def reaches(using: str | None = None) -> Reaches:
    """How far both roll-ups have come."""
    rows = Frontier.objects.using(using) if using else Frontier.objects
    found = {name: Reach(rolled, purged) for name, rolled, purged in rows.values_list(*_FRONTIER)}
    return {resolution: found.get(resolution.name, Reach()) for resolution in FINER}


def hold(using: str) -> Reaches:
    """The same, and no frontier moves until this transaction ends; others may hold it as well."""
    lock = " FOR SHARE" if connections[using].features.has_select_for_update else ""
    quote = connections[using].ops.quote_name
    statement = f"SELECT {', '.join(map(quote, _FRONTIER))} FROM {quote(Frontier._meta.db_table)} ORDER BY 1{lock}"  # noqa: S608 (names are the model's own)
    for _ in range(2):
        with connections[using].cursor() as cursor:
            cursor.execute(statement)
            found = {name: Reach(int(rolled), int(purged)) for name, rolled, purged in cursor.fetchall()}
        if len(found) == len(FINER):
            break
        Frontier.objects.using(using).bulk_create(
            [Frontier(resolution=resolution.name) for resolution in FINER], ignore_conflicts=True
        )
    return {resolution: found[resolution.name] for resolution in FINER}


_FRONTIER = ("resolution", "rolled_until", "purged_until")


def pieces(start: int, end: int, *, reached: Reaches, coarsest: Resolution = DAY) -> tuple[Piece, ...]:
    """Spans that together are [start, end), oldest first.

    A start whose finer rows are deleted is moved back to where the coarser one begins.
    """
    for resolution in FINER:
        if start < reached[resolution].purged_until:
            start = resolution.floor(start)
    return tuple(_divided(start, end, ALL.index(coarsest), reached))


def _divided(start: int, end: int, level: int, reached: Reaches) -> list[Piece]:
    if start >= end:
        return []
    resolution = ALL[level]
    if level == 0:
        return [Piece(resolution, start, end)]
    first, last = resolution.ceil(start), resolution.floor(min(end, reached[resolution].rolled_until))
    if first >= last:
        return _divided(start, end, level - 1, reached)
    return [
        *_divided(start, first, level - 1, reached),
        Piece(resolution, first, last),
        *_divided(last, end, level - 1, reached),
    ]


def moment(seconds: float) -> datetime:
    """A moment as the database takes it."""
    at = datetime.fromtimestamp(seconds, UTC)
    return at if timezone.is_aware(timezone.now()) else timezone.make_naive(at)


def seconds_of(at: datetime) -> int:
    """A moment of the database in seconds since 1970."""
    return int((at if timezone.is_aware(at) else timezone.make_aware(at)).timestamp())


def field(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    return cast("models.Field[Any, Any]", model._meta.get_field(name))
