"""Does the minute model refuse what the limits would?"""

from __future__ import annotations

import pytest

from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Limit
from ratelimit_app.local_buckets import LocalBuckets
from ratelimit_app.stats.forecast import replay

START = EPOCH_SECONDS + 86_400


def minutes(*counts: int) -> list[tuple[int, int]]:
    return [(START + 60 * number, count) for number, count in enumerate(counts)]


def one_by_one(arrivals: list[tuple[int, int]], limits: tuple[Limit, ...]) -> int:
    """Each request put to the buckets themselves, spread evenly over its minute."""
    buckets, refused = LocalBuckets(), 0
    for at, count in arrivals:
        for number in range(count):
            now = (at - EPOCH_SECONDS) * TICKS_PER_SECOND + number * 60 * TICKS_PER_SECOND // count
            refused += not buckets.take(limits, Caller(key_id=1, bucket_identity="x", plan_id=1), now_ticks=now).allowed
    return refused


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window", "sliding_window", "sliding_log"])
@pytest.mark.parametrize(
    ("requests", "period_seconds", "burst"), [(60, 60, 20), (30, 60, 100), (100, 600, 5), (5, 10, 9)]
)
def test_it_agrees_with_the_buckets_where_requests_are_spread_evenly(
    algorithm: str, requests: int, period_seconds: int, burst: int
) -> None:
    limit = Limit(id=1, name="x", requests=requests, period_seconds=period_seconds, burst=burst, algorithm=algorithm)  # type: ignore[arg-type]
    arrivals = minutes(10, 90, 0, 45, 200, 7, 0, 0, 120, 61, 3, 50)
    sent = sum(count for _at, count in arrivals)

    assert replay(arrivals, [limit]) == pytest.approx(one_by_one(arrivals, (limit,)), abs=sent * 0.1)


def test_a_bucket_is_exact_over_quiet_times() -> None:
    limit = Limit(id=1, name="x", requests=30, period_seconds=60, burst=20)

    assert replay(minutes(50, 50, 50), [limit]) == 40
    assert replay([(START, 50), (START + 3600, 50)], [limit]) == 0
    assert replay([], [limit]) == 0


def test_a_request_passes_where_all_limits_let_it() -> None:
    loose = Limit(id=1, name="a", requests=60, period_seconds=60, burst=20)
    tight = Limit(id=2, name="b", requests=100, period_seconds=86_400, burst=100, algorithm="fixed_window")

    assert replay(minutes(60, 60, 60), [loose, tight]) == 80
    assert replay(minutes(60, 60, 60), []) == 0
