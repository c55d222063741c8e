"""Does a page cost more queries when there is more to show? None does: `tests.ops_pages` lists them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app.models import AlertMessage, APIKey, Episode, KeyUse, Plan, PlanLimit, record_versions
from ratelimit_app.resolutions import HOUR, MINUTE
from tests import ops_pages
from tests.key_pages import refused
from tests.overview_page import arrived, minute, redis_was_gone
from tests.statistics import limited, used

pytestmark = pytest.mark.django_db

FEW, MANY = 2, 30
#: No page needs more than this for a few rows.
MOST = 42
#: A form is checked row by row: Django looks up each limit that it is sent, and newer ones whether its name is taken.
BY_LIMIT = {ops_pages.PREVIEW: 2 * 2 * (MANY - FEW)}


def grow(plan: Plan, *, start: int, end: int) -> None:
    """More of everything that a page could show: keys, limits, routes, plans, refusals, outages, alerts, versions."""
    now = timezone.now()
    for n in range(start, end):
        limit = plan.limits.create(name=f"limit-{n}", requests=60 + n, period_seconds=60, burst=20)
        trial = plan.limits.create(name=f"trial-{n}", requests=30, period_seconds=60, burst=20, mode="shadow")
        record_versions(using="default")
        Plan.objects.create(name=f"Plan {n}", slug=f"plan-{n}")
        key, _text = APIKey.objects.create_key(plan=plan, name=f"key {n}", expires_at=now + timedelta(days=3))
        if n % 2:
            APIKey.objects.rotate(key)
        KeyUse.objects.create(key_id=key.pk, last_used_at=now)
        first = APIKey.objects.filter(plan=plan).earliest("pk")
        counts = {"refused": 1 + n, "would_refuse": 2, "unchecked": 3}
        for at, resolution in ((minute(n % 3), MINUTE), (minute(60 * (n + 2)), HOUR)):
            used(key.bucket_identity, at=at, plan_id=plan.pk, resolution=resolution, allowed=5, **counts)
            for limit_id, identity in ((limit.pk, first.bucket_identity), (trial.pk, key.bucket_identity)):
                limited(limit_id, at=at, identity=identity, route=f"route {n}", resolution=resolution, **counts)
        for whose in (key, first):
            refused(whose, limit_id=limit.pk)
        redis_was_gone(ago=5 + 3 * n, minutes=1)
        for ended_at in (None, now):
            episode = Episode.objects.create(
                kind="key_blocked",
                subject=key.bucket_identity,
                ended_at=ended_at,
                started_at=now - timedelta(minutes=n),
                bad_until=now,
                worst=17.0,
                threshold=5.0,
            )
            AlertMessage.objects.create(episode=episode, event="opened", channel="email")
        LogEntry.objects.log_actions(get_user_model().objects.earliest("pk").pk, [key, plan], CHANGE)
    arrived()


def queries(client: Client, about: ops_pages.Subjects) -> dict[str, int]:
    found = {}
    for name in ops_pages.NAMES:
        ops_pages.open_page(client, name, about)  # what a process reads once and keeps
        with CaptureQueriesContext(connection) as captured:
            assert ops_pages.open_page(client, name, about).status_code == 200, name
        found[name] = len(captured)
    return found


def test_every_page_costs_as_many_queries_with_many_rows_as_with_few(
    admin_client: Client, make_plan: Any, configure: Any
) -> None:
    configure(EXEMPT_PATHS=["/admin"], CACHE_TTL_SECONDS=3600)
    plan = make_plan("Free")
    grow(plan, start=0, end=FEW)
    limit, shadow = (PlanLimit.objects.filter(mode=mode).earliest("pk") for mode in ("enforce", "shadow"))
    about = ops_pages.subjects(limit, shadow)
    few = queries(admin_client, about)

    grow(plan, start=FEW, end=MANY)

    many = queries(admin_client, about)
    allowed = {name: count + BY_LIMIT.get(name, 0) for name, count in few.items()}
    assert not {name: (few[name], count) for name, count in many.items() if count > allowed[name]}
    assert not {name: count for name, count in few.items() if count > MOST}
