"""Which limits apply? The plan table: one immutable snapshot per process, swapped whole.

`changes` reloads it when the version row says so; it also expires, which is how raw SQL is seen.
When the database is gone, the last good snapshot goes on serving.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from django.core.exceptions import SynchronousOnlyOperation
from django.db import Error as DatabaseError  # InterfaceError is one too
from django.db import router

from ratelimit_app import conf
from ratelimit_app.limits import Caller, Decision, Limit
from ratelimit_app.models import Plan, PlanLimit, Version

logger = logging.getLogger("ratelimit_app")

#: How long a snapshot goes on when the database could not be read.
_RETRY_SECONDS = 1.0
#: How many kinds of request a snapshot remembers the limits of.
_SELECTIONS = 10_000


@dataclass(frozen=True, slots=True)
class PlanTable:
    """All plans with their limits, as they were at one moment."""

    #: The version of the plans that this snapshot holds, at least.
    version: int = 0
    #: Limits of each plan that callers with a key can be on; those that are off are left out.
    limits: dict[int, tuple[Limit, ...]] = field(default_factory=dict)
    #: The plan of callers without a key, or 0.
    anonymous_plan_id: int = 0
    #: Limits that every request meets beside its caller's plan.
    everyone: tuple[Limit, ...] = ()
    #: The plan of each slug.
    slugs: dict[str, int] = field(default_factory=dict)
    #: The limits of each kind of request that was asked about, and whether any of them is spread over shards.
    _selected: dict[tuple[int, str, str, str, int], tuple[tuple[Limit, ...], bool]] = field(
        default_factory=dict, repr=False
    )

    def select(self, plan_id: int, *, scope: str, method: str, mode: str, boost: int = 1) -> tuple[Limit, ...]:
        """The limits of a caller on that plan for one kind of request; `mode` "shadow" makes all shadow.

        `boost` multiplies those of the plan. Of a limit that is spread over shards, one of them, picked at random.
        """
        wanted = plan_id, scope, method, mode, boost
        found = self._selected.get(wanted)
        if found is None:
            covering = [
                limit
                for limit in self.everyone + self.of_plan(plan_id, boost=boost)
                if limit.scope in ("", scope) and _covers(limit, method)
            ]
            if mode == "shadow":
                covering = [replace(limit, mode="shadow") for limit in covering]
            found = tuple(covering), any(limit.shards > 1 for limit in covering)
            if len(self._selected) < _SELECTIONS:  # methods and scopes may come from outside
                self._selected[wanted] = found
        selected, is_spread = found
        if is_spread:
            return tuple(random.choice(each.parts) for each in selected)  # noqa: S311 - spreads load
        return selected

    def of_plan(self, plan_id: int, *, boost: int = 1) -> tuple[Limit, ...]:
        """All limits of a plan, multiplied by a boost."""
        return tuple(limit.boosted(boost) for limit in self.limits.get(plan_id, ()))

    def applying(
        self,
        caller: Caller,
        *,
        scope: str,
        method: str,
        mode: str,
        earlier: Decision | None = None,
        only_address: bool = False,
        only_plan: bool = False,
    ) -> tuple[Limit, ...]:
        """The limits that one request of a caller still has to meet, beside those of an `earlier` decision."""
        plan_id = 0 if only_address else self.plan_id(caller)
        limits = self.select(plan_id, scope=scope, method=method, mode=mode, boost=caller.boost)
        if earlier is None and not only_address and not only_plan:
            return limits
        if only_address:
            limits = tuple(limit for limit in limits if limit.per == "address")
        if only_plan:
            everyones = {limit.id for limit in self.everyone}
            limits = tuple(limit for limit in limits if limit.id not in everyones)
        if earlier is not None:
            met = {limit.id for limit in earlier.unweighed} | {weighed.limit.id for weighed in earlier.weighed}
            limits = tuple(limit for limit in limits if limit.id not in met)
        return limits

    def own(self, caller: Caller) -> tuple[Limit, ...]:
        """The limits of a caller that it does not share with everyone, on every route."""
        every = self.everyone + self.of_plan(self.plan_id(caller), boost=caller.boost)
        return tuple(limit for limit in every if limit.per != "everyone")

    def plan_id(self, caller: Caller) -> int:
        """The plan that applies to a caller: the key's own, else the one for callers without a key."""
        return caller.plan_id or self.anonymous_plan_id


_table: PlanTable | None = None
_expires_at = 0.0
#: When the snapshot was last known to be what the database holds.
_current_at = 0.0
_lock = threading.Lock()


def table() -> PlanTable:
    """The snapshot. Reads the database the first time and when it expired or was forgotten.

    Raises DatabaseError only while there is no snapshot at all.
    """
    if _table is not None:
        if time.monotonic() < _expires_at:
            return _table
        if not _lock.acquire(blocking=False):
            return _table  # somebody is reading it already
        try:
            return _read_or_keep(_table)
        finally:
            _lock.release()
    with _lock:
        return _table or _read()


def welcomes(caller: Caller, *, scope: str = "") -> bool:
    """Whether a caller without a key may come in: to the plan for such callers, or by a limit for this very scope.

    True as well when limiting is off or nobody can tell; `limiter.check` then finds the right answer.
    """
    try:
        if conf.current().mode == "off":
            return True
        known = table()
        return bool(known.plan_id(caller)) or any(scope and limit.scope == scope for limit in known.everyone)
    except (DatabaseError, SynchronousOnlyOperation):
        return True


def is_warm() -> bool:
    """Whether `table()` would answer without reading the database."""
    return _table is not None and time.monotonic() < _expires_at


def confirm(version: int) -> None:
    """Take note that this is the version in the database now."""
    global _current_at
    if _table is not None and _table.version == version:
        _current_at = time.monotonic()


def version_and_age() -> tuple[int, float] | None:
    """The snapshot's version, and for how many seconds nobody knows whether it is the newest; None without one."""
    return None if _table is None else (_table.version, max(0.0, time.monotonic() - _current_at))


def forget() -> None:
    """Make the next `table()` read the database; the last snapshot stays for when that fails."""
    global _expires_at
    _expires_at = 0.0


def clear() -> None:
    """Drop the snapshot altogether."""
    global _table
    _table = None


def _read_or_keep(last: PlanTable) -> PlanTable:
    global _expires_at
    try:
        return _read()
    except SynchronousOnlyOperation:
        _expires_at = 0.0  # async code: it asks `is_warm` and reads in a thread
        return last
    except DatabaseError as failure:
        _expires_at = time.monotonic() + _RETRY_SECONDS
        logger.error("Plans cannot be read, the last known ones go on: %s", str(failure))
        return last


def _read() -> PlanTable:
    global _table, _expires_at, _current_at
    # Set first: a `forget` that comes while we read must not be undone by what we read before it.
    _expires_at = time.monotonic() + conf.current().cache_ttl_seconds
    using, asked_at = router.db_for_write(Plan), time.monotonic()
    # The version is read first: at worst the rest is newer than it says, and is read once more.
    version = Version.objects.using(using).filter(name="plans").values_list("number", flat=True).first() or 0
    plans = list(Plan.objects.using(using).values_list("pk", "slug", "audience"))
    rows = PlanLimit.objects.using(using).exclude(mode="off").order_by("pk")
    _table = _tabulate(version, plans, rows)
    _current_at = asked_at
    return _table


def _tabulate(version: int, plans: list[tuple[int, str, str]], rows: Iterable[PlanLimit]) -> PlanTable:
    audiences = {pk: audience for pk, _slug, audience in plans}
    limits: dict[int, tuple[Limit, ...]] = {}
    everyone: tuple[Limit, ...] = ()
    for row in rows:
        if audiences.get(row.plan_id) == "everyone":
            everyone += (row.as_limit(),)
        else:
            limits[row.plan_id] = (*limits.get(row.plan_id, ()), row.as_limit())
    return PlanTable(
        version=version,
        limits=limits,
        anonymous_plan_id=next((pk for pk, audience in audiences.items() if audience == "anonymous"), 0),
        everyone=everyone,
        slugs={slug: pk for pk, slug, _audience in plans},
    )


def _covers(limit: Limit, method: str) -> bool:
    return not limit.methods or ("GET" if method == "HEAD" else method) in limit.methods
