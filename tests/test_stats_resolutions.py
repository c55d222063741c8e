"""Are minutes, hours and days read as one, by plan, by limit and by caller?"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratelimit_app import recording, stats
from ratelimit_app.models import (
    DecisionMinute,
    KeyUse,
    UsageHour,
    UsageMinute,
)
from tests import statistics
from tests.statistics import NOON, a_window, used_ago

pytestmark = pytest.mark.django_db


def answers(now: datetime) -> list[Any]:
    found: list[Any] = []
    for slug in ("6h", "24h", "7d", "30d"):
        window = a_window(slug, now=now)
        found += [
            stats.traffic(window),
            stats.traffic(window, plan_id=1),
            stats.traffic(window, identity="caller"),
            [(row.identity, row.traffic, row.before) for row in stats.top_callers(window)],
            (stats.keys_over(window, percent=5), stats.keys_active(window), stats.keys_active_by_plan(window)),
            stats.decision_times(window),
            stats.decision_times_over_time(window),
            stats.by_limit(window),
            stats.by_limit(window, identity="caller"),
            stats.by_route(window),
            stats.by_route(window, limit_id=11, identity="caller"),
            stats.callers_of_limit(window, limit_id=11),
            stats.trials(window),
        ]
    return found


def test_rolling_up_and_deleting_minutes_changes_no_answer(configure: Any) -> None:
    configure(MINUTE_RETENTION_DAYS=1, HOUR_RETENTION_DAYS=8, DAY_RETENTION_DAYS=90)
    now = NOON + timedelta(minutes=37)
    draw = random.Random(5)
    for hours in sorted(draw.sample(range(60 * 24), 120)):
        at = int((NOON - timedelta(hours=hours)).timestamp()) + 60 * draw.randrange(60)
        identity = draw.choice(["caller", "other", ""])
        recording.record(
            {
                "id": str(uuid.uuid4()),
                "usage": [[at, identity, draw.choice([1, 2]), draw.randrange(99), draw.randrange(9), 0, 1, 2, 3]],
                "refusals": [[at, identity, draw.choice([11, 12]), draw.choice("rs"), draw.randrange(1, 9), 1]],
                "decisions": [[at, draw.choice([100, 5_000]), 9]],
            }
        )
    expected = answers(now)
    recording.roll_up(now_seconds=now.timestamp())
    assert answers(now) == expected
    recording.prune(now_seconds=now.timestamp())
    # The part of a day, or of an hour, that a window begins in is shown as a whole once the finer rows are gone.
    for slug, table in (("7d", UsageMinute), ("30d", UsageHour)):
        assert table.objects.exists()
        window = a_window(slug, now=now)
        assert sum(bucket.checked for bucket in stats.traffic(window)[-28:]) == sum(
            bucket.checked for bucket in expected[{"7d": 26, "30d": 39}[slug]][-28:]
        )


def test_a_window_between_two_moments_covers_them_in_whole_buckets() -> None:
    window = stats.between(NOON + timedelta(seconds=61), NOON + timedelta(hours=3, seconds=1))
    assert window == stats.Window(NOON, NOON + timedelta(hours=3, minutes=5), 300)
    assert window.before == stats.Window(NOON - timedelta(hours=3, minutes=5), NOON, 300)
    with pytest.raises(ValueError, match="after its start"):
        stats.between(NOON, NOON)


def test_callers_say_what_they_got_in_the_span_before() -> None:
    used_ago(minutes_ago=30, refused=5)
    used_ago(minutes_ago=61, refused=2)
    used_ago(minutes_ago=119, allowed=1)
    used_ago(minutes_ago=120, allowed=100)
    [caller] = stats.top_callers(a_window())
    assert (caller.traffic.blocked, caller.before.blocked, caller.before.allowed) == (5, 2, 1)


def test_traffic_and_callers_can_be_those_of_one_plan() -> None:
    used_ago(refused=1, plan_id=1)
    used_ago(refused=10, plan_id=2)
    used_ago("another", refused=100, plan_id=2)
    window = a_window()
    assert stats.total(stats.traffic(window, plan_id=2), at=NOON).blocked == 110
    assert stats.total(stats.traffic(window, identity="caller"), at=NOON).blocked == 11
    assert [row.traffic.blocked for row in stats.top_callers(window, plan_id=2)] == [100, 10]
    assert stats.keys_over(window, percent=5, plan_id=1) == 1
    assert stats.keys_active(window, plan_id=1) == 1
    assert stats.keys_active_by_plan(window)[1] == 1


def test_refusals_are_told_apart_by_limit_by_route_and_by_caller(make_plan: Any, make_key: Any) -> None:
    limit = make_plan().limits.get()
    key, _ = make_key(limit.plan)
    statistics.limited(limit.pk, at=NOON, identity=key.bucket_identity, route="items", refused=5)
    statistics.limited(limit.pk, at=NOON, identity="gone", route="items", refused=2, would_refuse=1)
    statistics.limited(987, at=NOON, identity="gone", route="login", refused=1)
    statistics.limited(987, at=NOON, identity="gone", route="", unchecked=7, local=2, failed_closed=3)
    window = a_window()
    assert stats.by_limit(window) == (
        stats.LimitTraffic(limit.pk, limit, 7, 1, 0, 0, 0),
        stats.LimitTraffic(987, None, 1, 0, 7, 3, 2),
    )
    assert [row.blocked for row in stats.by_limit(window, identity="gone")] == [2, 1]
    assert stats.by_route(window) == (stats.RouteTraffic("items", 7, 1), stats.RouteTraffic("login", 1, 0))
    assert stats.by_route(window, limit_id=987) == (stats.RouteTraffic("login", 1, 0),)
    assert stats.callers_of_limit(window, limit_id=limit.pk) == (
        stats.CallerOfLimit(key.bucket_identity, key, 5, 0, 0, 0, 0),
        stats.CallerOfLimit("gone", None, 2, 1, 0, 0, 0),
    )
    with pytest.raises(ValueError, match="not counted"):
        stats.callers_of_limit(window, limit_id=987, by="1) --")  # type: ignore[arg-type]
    [unchecked] = stats.callers_of_limit(window, limit_id=987, by="unchecked")
    assert (unchecked.identity, unchecked.unchecked) == ("gone", 7)


def test_how_many_keys_are_active_now_is_known_from_their_last_use(make_plan: Any, make_key: Any) -> None:
    now, free, pro = datetime.now(UTC), make_plan("Free"), make_plan("Pro")
    for plan, minutes_ago in ((free, 10), (free, 90), (pro, 1), (pro, 2)):
        KeyUse.objects.create(key_id=make_key(plan)[0].pk, last_used_at=now - timedelta(minutes=minutes_ago))
    window = a_window(now=now)
    assert stats.keys_over(window, percent=5) == 0
    assert stats.keys_active(window) == 3
    assert stats.keys_active(window, plan_id=free.pk) == 1
    assert stats.keys_active_by_plan(window) == {free.pk: 1, pro.pk: 2}


def test_times_are_told_for_each_bucket_too() -> None:
    DecisionMinute.objects.create(minute=NOON - timedelta(minutes=2), at_most_microseconds=100, decisions=5)
    times = stats.decision_times_over_time(a_window("15m"))
    assert len(times) == 15
    assert times[-3] == stats.DecisionTimes(5, 100, 100)
    assert {time for place, time in enumerate(times) if place != 12} == {stats.DecisionTimes(0, None, None)}
