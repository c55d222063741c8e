"""Do the queries behind the pages add up?"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest

from ratelimit_app import stats
from ratelimit_app.models import (
    APIKey,
    Batch,
    DecisionMinute,
    DroppedMinute,
)
from tests import statistics
from tests.statistics import NOON, a_window, used_ago

pytestmark = pytest.mark.django_db


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
    used_ago(minutes_ago=1, allowed=5, refused=2, would_refuse=1, unchecked=3, failed_closed=4)
    used_ago("another", minutes_ago=1, allowed=10)
    used_ago(minutes_ago=4, allowed=7)

    buckets = stats.traffic(a_window("6h", now=NOON - timedelta(seconds=1)))

    assert len(buckets) == 72
    assert buckets[-1] == stats.Traffic(
        at=NOON - timedelta(minutes=5), allowed=22, blocked=2, would_block=1, unchecked=3, failed_closed=4
    )
    assert [bucket for bucket in buckets[:-1] if bucket.checked] == []
    assert buckets[0].at == NOON - timedelta(hours=6)


def test_minutes_outside_the_window_do_not_count() -> None:
    used_ago(minutes_ago=-1, allowed=1)
    used_ago(minutes_ago=0, allowed=10)
    used_ago(minutes_ago=59, allowed=100)
    used_ago(minutes_ago=60, allowed=1_000)

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
    used_ago(rotated.bucket_identity, minutes_ago=9, allowed=1, refused=5)
    used_ago(rotated.bucket_identity, minutes_ago=3, allowed=1, refused=5, plan_id=2)
    used_ago(rotated.bucket_identity, minutes_ago=2, allowed=1)
    used_ago("", allowed=3, refused=8)
    used_ago("*", allowed=3, refused=7)
    used_ago("gone", allowed=3)

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
    used_ago("at five", allowed=95, refused=5)
    used_ago("over five", allowed=949, refused=51)
    used_ago("all blocked", refused=1)
    used_ago("unchecked only", unchecked=4)
    used_ago("", refused=100)
    used_ago("*", refused=100)

    assert stats.keys_over(a_window(), percent=5) == 2
    assert stats.keys_over(a_window(), percent=5.1) == 1
    assert stats.keys_over(a_window(), percent=5, least_requests=1000) == 1
    assert stats.keys_over(a_window(), percent=5, least_requests=1001) == 0
    assert stats.keys_over(a_window(), percent=0) == 3
    assert stats.keys_over(a_window(), percent=100) == 0
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
