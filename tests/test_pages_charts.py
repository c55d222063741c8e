"""Do the charts draw what was counted, with the words of the reader's language and clock?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone, translation

from ratelimit_app import stats
from ratelimit_app.models import DecisionMinute
from ratelimit_app.pages import drawings, readings

NOW = datetime(2026, 11, 30, 15, 0, 12, tzinfo=UTC)


def window(*, minutes: int, until: datetime = NOW, bucket_seconds: int = 60) -> stats.Window:
    end = datetime.fromtimestamp(-(-until.timestamp() // bucket_seconds) * bucket_seconds, tz=UTC)
    return stats.Window(start=end - timedelta(minutes=minutes), end=end, bucket_seconds=bucket_seconds)


def traffic(within: stats.Window, **counts: int) -> list[stats.Traffic]:
    return [stats.Traffic(at=at, **counts) for at in within.starts]


def test_a_bucket_that_still_fills_is_not_drawn() -> None:
    within = window(minutes=15)

    drawn = drawings.requests_chart(within, traffic(within, allowed=60), [], now=NOW)

    # 15:00 is filling, and counts of 14:59 may be on their way for some more seconds.
    assert drawn["labels"][-1] == timezone.localtime(datetime(2026, 11, 30, 14, 58, tzinfo=UTC)).strftime("%H:%M %Z")
    assert len(drawn["x"]) == len(drawn["labels"]) == len(drawn["series"][0]["values"]) == 13


def test_a_single_bucket_is_drawn_although_it_fills() -> None:
    within = window(minutes=1)

    drawn = drawings.requests_chart(within, traffic(within, allowed=60), [], now=NOW)

    assert len(drawn["x"]) == 1
    assert drawn["end"] > drawn["start"]


def test_requests_are_per_minute_whatever_the_buckets_are() -> None:
    within = window(minutes=120, bucket_seconds=900)

    drawn = drawings.requests_chart(within, traffic(within, allowed=900, blocked=30, unchecked=15), [], now=NOW)

    assert [series["values"][0] for series in drawn["series"]] == [60, 2, 1]


def test_no_request_is_no_share_rather_than_none_blocked() -> None:
    within = window(minutes=10)
    buckets = [stats.Traffic(at=at, allowed=19 * (n % 2), blocked=n % 2) for n, at in enumerate(within.starts)]

    drawn = drawings.share_chart(within, buckets, percent=5, now=NOW)

    assert drawn["series"][0]["values"][:4] == [None, 5.0, None, 5.0]
    assert drawn["limit"] == {"value": 5, "label": "5% blocked"}


@pytest.mark.parametrize(
    ("slug", "ticks"),
    [
        ("1h", ["15:10", "15:20", "15:30", "15:40", "15:50"]),
        ("24h", ["18:00", "21:00", "00:00", "03:00", "06:00", "09:00", "12:00"]),
        ("7d", ["Tue 24 Nov", "Wed 25 Nov", "Thu 26 Nov", "Fri 27 Nov", "Sat 28 Nov", "Sun 29 Nov", "Mon 30 Nov"]),
    ],
)
def test_ticks_stand_at_round_times_of_the_readers_clock(slug: str, ticks: list[str], settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    within = stats.window(stats.RANGES[slug], now=NOW)

    drawn = drawings.requests_chart(within, traffic(within), [], now=NOW)

    labels = [label for _, label in drawn["ticks"]]
    assert [tick for tick in labels if tick in ticks] == ticks
    assert len(labels) <= 9


def test_where_clocks_are_half_an_hour_off_ticks_are_round_there(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"  # UTC+05:45
    within = stats.window(stats.RANGES["6h"], now=NOW)

    drawn = drawings.requests_chart(within, traffic(within), [], now=NOW)

    assert [label for _, label in drawn["ticks"]] == ["15:00", "16:00", "17:00", "18:00", "19:00", "20:00"]


def test_the_hour_that_comes_twice_is_told_apart_by_its_zone(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    change = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)  # 03:00 CEST becomes 02:00 CET
    now = change + timedelta(hours=2)
    within = window(minutes=240, until=now, bucket_seconds=1800)

    drawn = drawings.requests_chart(within, traffic(within), [], now=now + timedelta(hours=1))

    assert drawn["labels"] == [
        *("01:00 CEST", "01:30 CEST", "02:00 CEST", "02:30 CEST"),
        *("02:00 CET", "02:30 CET", "03:00 CET", "03:30 CET"),
    ]
    assert [b - a for a, b in zip(drawn["x"], drawn["x"][1:], strict=False)] == [1800] * 7


def test_the_hour_that_is_left_out_is_no_gap(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    change = datetime(2026, 3, 29, 1, 0, tzinfo=UTC)  # 02:00 CET becomes 03:00 CEST
    within = window(minutes=120, until=change + timedelta(hours=1), bucket_seconds=1800)

    drawn = drawings.requests_chart(within, traffic(within), [], now=change + timedelta(hours=3))

    assert drawn["labels"] == ["01:00 CET", "01:30 CET", "03:00 CEST", "03:30 CEST"]


def test_words_are_translated_and_numbers_are_not() -> None:
    within = window(minutes=60)
    with translation.override("de"):
        drawn = drawings.times_chart(
            within,
            [readings.Times(at, 1, 500, 1_500) for at in within.starts],
            budget_microseconds=5_500,
            now=NOW,
        )

    assert drawn["limit"] == {"value": 5.5, "label": "budget 5,5 ms"}
    assert drawn["series"][0]["values"][0] == 1.5


@pytest.mark.django_db
@pytest.mark.parametrize(("minutes", "bucket_seconds"), [(60, 60), (360, 300), (7 * 24 * 60, 7200)])
def test_decision_times_are_quantiles_of_each_bucket_and_of_all(minutes: int, bucket_seconds: int) -> None:
    within = window(minutes=minutes, bucket_seconds=bucket_seconds)
    first, second = within.starts[0], within.starts[1]
    for minute, bound, decisions in (
        (first, 100, 98),
        (first, 3_000, 2),
        (second, 200, 1_000),
        (second + timedelta(seconds=bucket_seconds - 60), 500, 9),
    ):
        DecisionMinute.objects.create(minute=minute, at_most_microseconds=bound, decisions=decisions)

    found = readings.times(within)

    assert len(found) == len(within.starts) + 1
    assert (found[0].decisions, found[0].p50_microseconds, found[0].p99_microseconds) == (100, 100, 3_000)
    assert (found[1].decisions, found[1].p50_microseconds, found[1].p99_microseconds) == (1_009, 200, 200)
    assert (found[2].decisions, found[2].p50_microseconds, found[2].p99_microseconds) == (0, None, None)
    assert (found[-1].decisions, found[-1].p50_microseconds, found[-1].p99_microseconds) == (1_109, 200, 200)
