"""What would limits in shadow have refused, and whom who was not refused anything?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ratelimit_app.models import APIKey, PlanLimit
from ratelimit_app.resolutions import PLANS, REFUSALS, USAGE
from ratelimit_app.stats.callers import NO_KEY, OTHERS
from ratelimit_app.stats.limits import by_limit, callers_of_limit
from ratelimit_app.stats.rows import Selection, sums
from ratelimit_app.stats.windows import Window


@dataclass(frozen=True, slots=True)
class Trial:
    """A limit that is tried out: what it would have refused, beside what was refused."""

    limit: PlanLimit
    would_block: int
    #: What this limit did refuse, when it was enforced within the window.
    blocked: int
    #: Requests on its plan that limits decided, and of these those refused by any.
    plan_checked: int
    plan_blocked: int
    #: Keys that it would have refused something, and that no limit refused anything.
    newly_hurt: int


@dataclass(frozen=True, slots=True)
class TriedCaller:
    """What one limit would have refused to one caller, beside what the caller got."""

    identity: str
    #: The newest key with this identity, or None.
    key: APIKey | None
    would_block: int
    #: What this limit did refuse.
    blocked: int
    #: Requests of the caller that limits decided, and of these those refused by any.
    checked: int
    blocked_by_any: int

    @property
    def is_newly_hurt(self) -> bool:
        return not self.blocked_by_any


def trials(within: Window, *, everything: bool = False, limit: int = 100) -> tuple[Trial, ...]:
    """Limits in shadow and those that would have refused something, who would hurt most keys anew first.

    With `everything` all limits that are not off: the setting MODE makes each a limit in shadow.
    """
    counts = {row.limit_id: row for row in by_limit(within)}
    limits = [
        known
        for known in PlanLimit.objects.exclude(mode=PlanLimit.Mode.OFF).select_related("plan").order_by("pk")
        if everything or known.mode == PlanLimit.Mode.SHADOW or (known.pk in counts and counts[known.pk].would_block)
    ]
    hurt, plans = _newly_hurt(within), _plans(within)
    found = [
        Trial(
            limit=known,
            would_block=counts[known.pk].would_block if known.pk in counts else 0,
            blocked=counts[known.pk].blocked if known.pk in counts else 0,
            plan_checked=plans[known.plan_id, "allowed"] + plans[known.plan_id, "refused"],
            plan_blocked=plans[known.plan_id, "refused"],
            newly_hurt=hurt.get(known.pk, 0),
        )
        for known in limits
    ]
    found.sort(key=lambda trial: (-trial.newly_hurt, -trial.would_block, trial.limit.pk))
    return tuple(found[:limit])


def tried_callers(within: Window, *, limit_id: int, limit: int = 50) -> tuple[TriedCaller, ...]:
    """Whom a limit would have refused most; of these those first who were not refused anything."""
    callers = callers_of_limit(within, limit_id=limit_id, by="would_refuse", limit=limit)
    got: Counter[tuple[str, str]] = Counter()
    for row in sums(USAGE, within, by=["identity"], identity__in=[caller.identity for caller in callers]):
        got[row["identity"], "allowed"] += row["allowed"]
        got[row["identity"], "refused"] += row["refused"]
    found = [
        TriedCaller(
            identity=caller.identity,
            key=caller.key,
            would_block=caller.would_block,
            blocked=caller.blocked,
            checked=got[caller.identity, "allowed"] + got[caller.identity, "refused"],
            blocked_by_any=got[caller.identity, "refused"],
        )
        for caller in callers
    ]
    return tuple(sorted(found, key=lambda row: (not row.is_newly_hurt, -row.would_block, row.identity)))


def _newly_hurt(within: Window) -> dict[int, int]:
    selection, usage = Selection(REFUSALS, within), Selection(USAGE, within)
    hit, parameters = selection.table("limit_id", "identity", only=["would_refuse"])
    refused, more = usage.table("identity", only=["refused"])
    rows = selection.fetch(
        f"SELECT limit_id, COUNT(*) FROM (SELECT DISTINCT limit_id, identity FROM {hit} AS found) AS hit "  # noqa: S608 (names are the models' own)
        "WHERE identity NOT IN (%s, %s) "
        f"AND NOT EXISTS (SELECT 1 FROM {refused} AS refused WHERE refused.identity = hit.identity) GROUP BY limit_id",
        [*parameters, NO_KEY, OTHERS, *more],
    )
    return {int(limit_id): int(count) for limit_id, count in rows}


def _plans(within: Window) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for row in sums(PLANS, within, by=["plan_id"]):
        for name in ("allowed", "refused"):
            found[row["plan_id"], name] += row[name]
    return found
