"""What do the pages show in the tests? A day of traffic with a burst, an outage, a slow moment, and a plan on trial."""

from __future__ import annotations

import math
import random
import uuid
from collections import Counter
from datetime import datetime, timedelta

from django.utils import timezone

from ratelimit_app.models import APIKey, Batch, KeyUse, OutageSpan, Plan, record_versions
from ratelimit_app.recording.statements import chunks, insert, table_of
from ratelimit_app.resolutions import DECISIONS, LIMITS, MINUTE, PLANS, REFUSALS, USAGE, Fact
from ratelimit_app.usage import LATENCY_BOUNDS

#: name, plan, requests a minute, share blocked, share blocked in the last quarter of an hour.
CALLERS = (
    ("Acme mobile app", "pro", 6_880, 0.012, 0.34),
    ("checkout-web", "business", 13_300, 0.009, 0.009),
    ("partner-sync", "pro", 1_640, 0.052, 0.052),
    ("Nightly ETL", "free", 368, 0.048, 0.098),
    ("status-page", "free", 300, 0.004, 0.004),
    ("Camden price tracker", "pro", 310, 0.0, 0.0),
    ("Borough bus times", "free", 240, 0.002, 0.002),
)
OUTAGE_MINUTES_AGO = (40, 39, 38, 37)
#: How often in a thousand decisions each bound of the histogram is met.
_TIMES = {300: 310, 500: 240, 700: 250, 1_000: 130, 1_500: 52, 2_000: 16, 3_000: 2}
_SLOW_TIMES = {500: 300, 700: 300, 1_000: 240, 2_000: 110, 3_000: 38, 5_000: 12}


def fill(*, minutes: int = 130) -> dict[str, APIKey]:
    """Write the rows, up to now. Returns the keys by name."""
    dice = random.Random(2026)
    now = timezone.now().replace(second=0, microsecond=0)
    plans = _plans()
    keys = {name: APIKey.objects.create_key(plan=plans[plan], name=name)[0] for name, plan, *_ in CALLERS}
    rows = Rows()
    trial = plans["pro"].limits.get(name="pro-2027")
    for ago in range(minutes, -1, -1):
        at = now - timedelta(minutes=ago)
        part = 1.0 if ago else timezone.now().second / 60
        is_out = ago in OUTAGE_MINUTES_AGO
        for name, plan, per_minute, share, share_lately in CALLERS:
            calls = int(per_minute * part * (1.2 + 0.12 * math.sin(ago / 9) + dice.uniform(-0.02, 0.02)))
            lately = share_lately * max(0.0, math.sin((ago + 1) / 16 * math.pi)) if ago < 16 else 0.0
            blocked = 0 if is_out else int(calls * max(share, lately) * dice.uniform(0.9, 1.1))
            would = int((calls - blocked) * 0.031) if plan == "pro" and not is_out else 0
            rows.used(
                at,
                keys[name],
                allowed=0 if is_out else calls - blocked,
                refused=blocked,
                would_refuse=would,
                unchecked=calls if is_out else 0,
            )
            rows.limited(at, keys[name], trial.pk, would_refuse=would)
            rows.limited(
                at, keys[name], plans[plan].limits.earliest("pk").pk, refused=blocked, unchecked=calls if is_out else 0
            )
        for bound, per_thousand in (_SLOW_TIMES if ago in (41, 42) else _TIMES).items():
            assert bound in LATENCY_BOUNDS
            rows.add(DECISIONS, at, bound, decisions=int(30 * per_thousand * part * dice.uniform(0.8, 1.2)))
    for ago in range(24 * 60, 25 * 60, 10):  # a day ago, ten minutes in one row
        for name, _plan, per_minute, share, _share_lately in CALLERS:
            refused = int(per_minute * 11 * share)
            rows.used(now - timedelta(minutes=ago), keys[name], allowed=per_minute * 11, refused=refused)
    rows.write()
    started, ended = (now - timedelta(minutes=ago) for ago in (OUTAGE_MINUTES_AGO[0], OUTAGE_MINUTES_AGO[-1] - 1))
    OutageSpan.objects.create(gateway="g", started_at=started, error="timeout", last_seen_at=ended, ended=1)
    KeyUse.objects.bulk_create(KeyUse(key_id=key.pk, last_used_at=now) for key in keys.values())
    Batch.objects.create(id=uuid.uuid4(), received_at=timezone.now())
    return keys


class Rows:
    """Counts by fact and key, to be written at once."""

    def __init__(self) -> None:
        self._counts: dict[Fact, dict[tuple[object, ...], Counter[str]]] = {}

    def used(self, at: datetime, key: APIKey, **counts: int) -> None:
        self.add(USAGE, at, key.bucket_identity, key.plan_id, **counts)
        self.add(PLANS, at, key.plan_id, **counts)

    def limited(self, at: datetime, key: APIKey, limit_id: int, **counts: int) -> None:
        if any(counts.values()):
            self.add(REFUSALS, at, key.bucket_identity, limit_id, "api-items", **counts)
            self.add(LIMITS, at, limit_id, "api-items", **counts)

    def add(self, fact: Fact, *key: object, **counts: int) -> None:
        self._counts.setdefault(fact, {}).setdefault(key, Counter()).update(counts)

    def write(self) -> None:
        for fact, counted in self._counts.items():
            table = table_of(fact, MINUTE)
            rows = [(*key, *(counts[name] for name in fact.values)) for key, counts in counted.items()]
            for chunk in chunks(table, rows, using="default"):
                insert(table, chunk, using="default")


def _plans() -> dict[str, Plan]:
    numbers = {"Free": (450, 90), "Pro": (9_000, 1_500), "Business": (18_000, 3_000)}
    plans = {}
    for name, (requests, burst) in numbers.items():
        plan = plans[name.lower()] = Plan.objects.create(name=name, slug=name.lower())
        plan.limits.create(name=plan.slug, requests=requests, period_seconds=60, burst=burst)
    plans["pro"].limits.create(name="pro-2027", requests=6_000, period_seconds=60, burst=1_000, mode="shadow")
    record_versions(using="default")
    return plans
