"""Do the queries behind the pages add up?"""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratelimit_app import recording, stats
from ratelimit_app.models import (
    APIKey,
    Batch,
    DecisionMinute,
    DroppedMinute,
    KeyUse,
    UsageHour,
    UsageMinute,
)
from tests import statistics

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def a_window(slug: str = "1h", *, now: datetime = NOON) -> stats.Window:
    return stats.window(stats.RANGES[slug], now=now)


def used(identity: str = "caller", *, minutes_ago: int = 1, plan_id: int = 1, **counts: Any) -> None:
    statistics.used(identity, at=NOON - timedelta(minutes=minutes_ago), plan_id=plan_id, **counts)


@pytest.mark.parametrize("slug", stats.RANGES)
def test_a_window_has_whole_buckets_and_contains_now(slug: str) -> None:
    now = NOON + timedelta(minutes=7, seconds=13)
    window = a_window(slug, now=now)

    assert (window.end - window.start).total_seconds() == stats.RANGES[slug].seconds
    assert window.starts[0] == window.start
    assert window.starts[-1] <= now < window.end
    assert all(start.timestamp() % window.bucket_seconds == 0 for start in window.starts)
    assert len(window.starts) * window.bucket_seconds == stats.RANGES[slug].seconds


def test_minutes_become_buckets_and_empty_buckets_are_there() -> None:
    used(minutes_ago=1, allowed=5, refused=2, would_refuse=1, unchecked=3, failed_closed=4)
    used("another", minutes_ago=1, allowed=10)
    used(minutes_ago=4, allowed=7)

    buckets = stats.traffic(a_window("6h", now=NOON - timedelta(seconds=1)))

    assert len(buckets) == 72
    assert buckets[-1] == stats.Traffic(
        at=NOON - timedelta(minutes=5), allowed=22, blocked=2, would_block=1, unchecked=3, failed_closed=4
    )
    assert [bucket for bucket in buckets[:-1] if bucket.checked] == []
    assert buckets[0].at == NOON - timedelta(hours=6)


def test_minutes_outside_the_window_do_not_count() -> None:
    used(minutes_ago=-1, allowed=1)
    used(minutes_ago=0, allowed=10)
    used(minutes_ago=59, allowed=100)
    used(minutes_ago=60, allowed=1_000)

    buckets = stats.traffic(a_window("1h"))

    assert stats.total(buckets, at=NOON).allowed == 110


def test_unchecked_requests_are_neither_allowed_nor_blocked() -> None:
    traffic = stats.Traffic(at=NOON, allowed=90, blocked=10, unchecked=900, failed_closed=50)

    assert traffic.checked == 100
    assert traffic.blocked_share == 0.1
    assert stats.Traffic(at=NOON).blocked_share == 0.0


def test_callers_come_most_blocked_first_with_the_newest_key_of_their_identity(make_plan: Any, make_key: Any) -> None:
    plan = make_plan()
    rotated, _ = make_key(plan, name="before rotation")
    newer, _ = make_key(plan, name="after rotation")
    APIKey.objects.filter(pk=newer.pk).update(bucket_identity=rotated.bucket_identity)
    used(rotated.bucket_identity, minutes_ago=9, allowed=1, refused=5)
    used(rotated.bucket_identity, minutes_ago=3, allowed=1, refused=5, plan_id=2)
    used(rotated.bucket_identity, minutes_ago=2, allowed=1)
    used("", allowed=3, refused=8)
    used("*", allowed=3, refused=7)
    used("gone", allowed=3)

    rows = stats.top_callers(a_window())

    assert [(row.identity, row.traffic.blocked) for row in rows] == [
        (rotated.bucket_identity, 10),
        ("", 8),
        ("*", 7),
        ("gone", 0),
    ]
    assert rows[0].key == newer
    assert rows[0].traffic.allowed == 3
    assert rows[0].last_blocked_at == NOON - timedelta(minutes=3)
    assert [row.key for row in rows[1:]] == [None, None, None]
    assert rows[3].last_blocked_at is None
    assert len(stats.top_callers(a_window(), limit=2)) == 2


def test_keys_over_a_share_are_counted_exactly_and_without_those_that_are_no_keys() -> None:
    used("at five", allowed=95, refused=5)
    used("over five", allowed=949, refused=51)
    used("all blocked", refused=1)
    used("unchecked only", unchecked=4)
    used("", refused=100)
    used("*", refused=100)

    assert stats.keys_over(a_window(), percent=5) == 2
    assert stats.keys_active(a_window()) == 4


def test_without_rows_every_answer_is_empty() -> None:
    window = a_window()

    assert stats.total(stats.traffic(window), at=NOON) == stats.Traffic(at=NOON)
    assert stats.top_callers(window) == ()
    assert stats.keys_over(window, percent=5) == 0
    assert stats.keys_active(window) == 0
    assert stats.decision_times(window) == stats.DecisionTimes(0, None, None)
    assert stats.dropped(window) == ()
    assert stats.trials(window) == ()
    assert stats.newest_data_at() is None


@pytest.mark.parametrize(
    ("histogram", "p50", "p99"),
    [
        ({100: 1}, 100, 100),
        ({100: 99, 5_000: 1}, 100, 100),
        ({100: 98, 5_000: 2}, 100, 5_000),
        ({100: 49, 200: 50, 5_000: 1}, 200, 200),
        ({100: 50, 200: 50}, 100, 200),
        ({100: 0, 200: 3}, 200, 200),
    ],
)
def test_a_quantile_is_the_bound_of_the_bucket_that_holds_it(histogram: dict[int, int], p50: int, p99: int) -> None:
    for at_most, decisions in histogram.items():
        # Over two minutes: histograms of minutes and processes add up.
        DecisionMinute.objects.create(minute=NOON, at_most_microseconds=at_most, decisions=decisions // 2)
        DecisionMinute.objects.create(
            minute=NOON - timedelta(minutes=3), at_most_microseconds=at_most, decisions=decisions - decisions // 2
        )
    DecisionMinute.objects.create(minute=NOON - timedelta(hours=2), at_most_microseconds=9_999, decisions=10_000)

    assert stats.decision_times(a_window()) == stats.DecisionTimes(sum(histogram.values()), p50, p99)


def test_dropped_records_add_up_by_kind() -> None:
    for minutes_ago, kind, count in ((1, "usage", 3), (2, "usage", 4), (1, "refusal", 1), (90, "usage", 100)):
        DroppedMinute.objects.create(minute=NOON - timedelta(minutes=minutes_ago), kind=kind, dropped=count)

    assert stats.dropped(a_window()) == (("refusal", 1), ("usage", 7))


def test_on_trial_is_what_would_have_refused_and_what_is_in_shadow(make_plan: Any) -> None:
    promoted = make_plan("Promoted").limits.get()
    quiet = make_plan("Quiet", mode="shadow").limits.get()
    busy = make_plan("Busy", mode="shadow").limits.get()
    make_plan("Enforced")
    for limit_id, count in ((promoted.pk, 5), (busy.pk, 50), (busy.pk, 50), (987_654, 7)):
        statistics.limited(limit_id, at=NOON, identity=uuid.uuid4().hex[:16], would_refuse=count)
    statistics.limited(promoted.pk, at=NOON, refused=1_000)

    rows = stats.trials(a_window())

    assert [(row.limit, row.would_block) for row in rows] == [(busy, 100), (promoted, 5), (quiet, 0)]


def test_the_newest_data_is_the_batch_stored_last() -> None:
    for hours in (3, 1, 2):
        Batch.objects.create(id=uuid.uuid4(), received_at=NOON - timedelta(hours=hours))

    assert stats.newest_data_at() == NOON - timedelta(hours=1)


# --- Minutes, hours and days as one ------------------------------------------------------------


def answers(now: datetime) -> list[Any]:
    found: list[Any] = []
    for slug in ("6h", "24h", "7d", "30d"):
        window = a_window(slug, now=now)
        found += [
            stats.traffic(window),
            stats.traffic(window, plan_id=1),
            stats.traffic(window, identity="caller"),
            [(row.identity, row.traffic, row.before) for row in stats.top_callers(window)],
            (stats.keys_over(window, percent=5), stats.keys_active(window)),
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
    used(minutes_ago=30, refused=5)
    used(minutes_ago=61, refused=2)
    used(minutes_ago=119, allowed=1)
    used(minutes_ago=120, allowed=100)
    [caller] = stats.top_callers(a_window())
    assert (caller.traffic.blocked, caller.before.blocked, caller.before.allowed) == (5, 2, 1)


def test_traffic_and_callers_can_be_those_of_one_plan() -> None:
    used(refused=1, plan_id=1)
    used(refused=10, plan_id=2)
    used("another", refused=100, plan_id=2)
    window = a_window()
    assert stats.total(stats.traffic(window, plan_id=2), at=NOON).blocked == 110
    assert stats.total(stats.traffic(window, identity="caller"), at=NOON).blocked == 11
    assert [row.traffic.blocked for row in stats.top_callers(window, plan_id=2)] == [100, 10]
    assert stats.keys_over(window, percent=5, plan_id=1) == 1
    assert stats.keys_active(window, plan_id=1) == 1


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


def test_how_many_keys_are_active_now_is_known_from_their_last_use() -> None:
    now = datetime.now(UTC)
    KeyUse.objects.create(key_id=1, last_used_at=now - timedelta(minutes=10))
    KeyUse.objects.create(key_id=2, last_used_at=now - timedelta(minutes=90))
    assert stats.keys_over(a_window(now=now), percent=5) == 0
    assert stats.keys_active(a_window(now=now)) == 1


def test_times_are_told_for_each_bucket_too() -> None:
    DecisionMinute.objects.create(minute=NOON - timedelta(minutes=2), at_most_microseconds=100, decisions=5)
    times = stats.decision_times_over_time(a_window("15m"))
    assert len(times) == 15
    assert times[-3] == stats.DecisionTimes(5, 100, 100)
    assert {time for place, time in enumerate(times) if place != 12} == {stats.DecisionTimes(0, None, None)}
