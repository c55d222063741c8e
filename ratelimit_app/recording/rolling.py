"""How do minutes become hours, and hours days? Each hour is summed up anew from its minutes, as often as needed.

Summing up overwrites, so it may be done twice, and by two workers. What is to be done is listed
(`models.Stale`): an hour when it is over, and again whenever a row of it arrives later; a day the
same. An entry leaves the list only if nothing changed since it was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from django.db import router, transaction
from django.db.models import F

from ratelimit_app import resolutions
from ratelimit_app.models import Frontier, Stale
from ratelimit_app.recording.statements import LETTERS, Table, chunks, insert, sum_up
from ratelimit_app.resolutions import DAY, FACTS, FINER, HOUR, Fact, Reaches, Resolution

#: How long after its end an hour is summed up: most rows are there by then, and later ones only cost more work.
GRACE_SECONDS = 300
#: Rows that one transaction sums up, about.
_ROWS_AT_ONCE = 500_000

_STALE = Table(Stale, ("resolution", "start"), ("changes",))


def roll_up(*, now_seconds: float | None = None) -> None:
    """Sum up the hours and the days that are over, and those that changed since. The time is for tests."""
    using = router.db_for_write(Stale)
    now_seconds = time.time() if now_seconds is None else now_seconds
    for into in (HOUR, DAY):
        _advance(into, now_seconds=now_seconds, using=using)
        listed = Stale.objects.using(using).filter(resolution=into.name).order_by("start")
        for start, changes in list(listed.values_list("start", "changes")):
            _sum_up(into, start, changes, using=using)


def note_late(resolution: Resolution, starts: Iterable[int], *, reached: Reaches, using: str) -> None:
    """List hours or days for being summed up again; those still to come need not be. Frontiers must be held."""
    late = sorted({start for start in map(resolution.floor, starts) if start < reached[resolution].rolled_until})
    if late:
        insert(_STALE, [(resolution.name, start, 1) for start in late], using=using)


def _advance(into: Resolution, *, now_seconds: float, using: str) -> None:
    """List the hours or days that are over now, in one transaction that waits for those that count in them."""
    with transaction.atomic(using=using):
        resolutions.hold(using)  # makes the rows
    with transaction.atomic(using=using):
        frontier = Frontier.objects.using(using).filter(resolution=into.name)
        frontier.update(rolled_until=F("rolled_until"))  # from here on nobody holds it
        until = int(now_seconds) - GRACE_SECONDS
        if into is DAY:
            until = Frontier.objects.using(using).get(resolution=HOUR.name).rolled_until
        until, reached = into.floor(until), frontier.get().rolled_until
        if until <= reached:
            return
        rows = [(into.name, start, 1) for start in _with_rows(into, reached, until, using=using)]
        for chunk in chunks(_STALE, rows, using=using):
            insert(_STALE, chunk, using=using)
        frontier.update(rolled_until=until)


def _with_rows(into: Resolution, start: int, end: int, *, using: str) -> list[int]:
    """When the hours or days begin in which anything was counted, as the small tables know."""
    finer, found = FINER[into], set()
    span = {f"{finer.name}__gte": resolutions.moment(start), f"{finer.name}__lt": resolutions.moment(end)}
    for fact in FACTS:
        if not fact.has_callers:
            rows = fact.tables[finer]._base_manager.using(using).filter(**span).order_by()
            times = rows.values_list(finer.name, flat=True).distinct()
            found |= {into.floor(resolutions.seconds_of(at)) for at in times}
    return sorted(found)


def _sum_up(into: Resolution, start: int, changes: int, *, using: str) -> None:
    """Sum up one hour or day, in short transactions; another worker that does the same changes nothing."""
    entry = Stale.objects.using(using).filter(resolution=into.name, start=start)
    for fact in FACTS:
        for letters in _parts(fact, into, start, using=using):
            with transaction.atomic(using=using):
                # Locks the entry: who began to sum up earlier must not write what is older by now.
                if not entry.update(changes=F("changes")):
                    return
                sum_up(fact, into=into, start=start, first_letters=letters, using=using)
    with transaction.atomic(using=using):
        if into is HOUR:
            note_late(DAY, [start], reached=resolutions.hold(using), using=using)
        entry.filter(changes=changes).delete()


def _parts(fact: Fact, into: Resolution, start: int, *, using: str) -> list[str | None]:
    """Which callers to sum up at once: everybody, or by the first letter of their identity."""
    if not fact.has_callers:
        return [None]
    finer = FINER[into]
    rows = (
        fact.tables[finer]
        ._base_manager.using(using)
        .filter(
            **{
                f"{finer.name}__gte": resolutions.moment(start),
                f"{finer.name}__lt": resolutions.moment(start + into.seconds),
            }
        )
    )
    parts = min(len(LETTERS), rows.count() // _ROWS_AT_ONCE + 1)
    return [None] if parts == 1 else ["", *(LETTERS[part::parts] for part in range(parts))]
