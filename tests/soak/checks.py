"""What has to hold after a soak? Each check says what it found, and whether that is good."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.soak.callers import EXPECTED, HANG_SECONDS, Answer, Summary
from tests.soak.site import THREADS, Use

#: A process may have grown by this much since it was warm.
GROWTH_MB = 24.0
#: Threads of a server that answers with a pool: the pool, its main one, and three of the limiter's, for usage,
#: edits and leases.
FULL_POOL = THREADS + 4
#: How long the worker may take for what the servers still held when they stopped.
_SETTLING_SECONDS = 60.0
_OUTCOMES = ("allowed", "refused", "unchecked", "failed_closed")


class Check(NamedTuple):
    what: str
    found: str
    is_good: bool


def of_answers(answers: Sequence[Answer]) -> list[Check]:
    by_status = Counter(answer.status for answer in answers)
    odd = Counter(answer.error or answer.status for answer in answers if answer.status not in EXPECTED)
    wrongly_closed = sum(answer.status == 503 and answer.plan != "closed" for answer in answers)
    slowest = max(answer.seconds for answer in answers)
    return [
        Check("no answer but 200, 429 and 503", str(dict(odd or by_status)), not odd),
        Check("503 only where a limit fails closed", f"{wrongly_closed} elsewhere", not wrongly_closed),
        Check(f"no request hangs ({HANG_SECONDS:g} s)", f"slowest {slowest:.3f} s", slowest < HANG_SECONDS),
    ]


def of_outages(ups: Sequence[Summary]) -> Check:
    never = sum(up.exact_after_seconds is None for up in ups)
    slowest = max((up.exact_after_seconds or 0.0 for up in ups), default=0.0)
    return Check("Redis decides again after each outage", f"after {slowest:.1f} s at most, {never} never", not never)


def of_use(name: str, before: Use, after: Use, *, workers: int) -> list[Check]:
    """`workers` threads may each have a connection to Redis that they did not need yet when `before` was measured."""
    grown = after.memory_mb - before.memory_mb
    return [
        Check(
            f"{name}: no thread is leaked",
            f"{before.threads} before, {after.threads} after",
            after.threads <= max(before.threads, FULL_POOL),
        ),
        Check(
            f"{name}: no file or connection is leaked",
            f"{before.files} before, {after.files} after",
            after.files <= before.files + workers,
        ),
        Check(
            f"{name}: memory is flat (+{GROWTH_MB:g} MB)",
            f"{before.memory_mb:.0f} MB before, {after.memory_mb:.0f} MB after",
            grown <= GROWTH_MB,
        ),
    ]


def of_totals(answers: Sequence[Answer]) -> list[Check]:
    """Wait until the worker has written all that was sent, and compare."""
    sent = len(answers)
    deadline = time.monotonic() + _SETTLING_SECONDS
    while True:
        stored, dropped, _set_aside = _totals()
        if sum(stored.values()) + dropped >= sent or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    time.sleep(1.0)  # more than was sent would be as wrong, and may come late
    stored, dropped, set_aside = _totals()
    total = sum(stored.values()) + dropped
    found = f"{sent} sent; {dict(stored)}, {dropped} dropped: {total}"
    if total != sent:
        by_plan = Counter(answer.plan for answer in answers)
        by_plan.subtract(_totals_by_plan())
        found += f"; sent and not counted: { ({plan: count for plan, count in by_plan.items() if count}) }"
    return [
        Check("every request is counted once", found, total == sent),
        Check("no row was set aside", str(set_aside), not set_aside),
    ]


def _totals() -> tuple[Counter[str], int, int]:
    from django.db.models import Sum

    from ratelimit_app.models import DroppedMinute, SetAside, UsageMinute

    stored = UsageMinute.objects.aggregate(**{outcome: Sum(outcome, default=0) for outcome in _OUTCOMES})
    dropped = DroppedMinute.objects.filter(kind="usage").aggregate(total=Sum("dropped", default=0))
    return Counter(stored), int(dropped["total"]), SetAside.objects.count()


def _totals_by_plan() -> Counter[str]:
    from django.db.models import Sum

    from ratelimit_app.models import Plan, UsageMinute

    slugs = dict(Plan.objects.values_list("pk", "slug"))
    sums = {f"all_{outcome}": Sum(outcome, default=0) for outcome in _OUTCOMES}
    rows = UsageMinute.objects.values_list("plan_id").annotate(**sums)
    return Counter({slugs[plan_id]: sum(counts) for plan_id, *counts in rows})
