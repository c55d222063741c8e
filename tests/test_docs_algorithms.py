"""Does each algorithm let through what its page says? Every table of it is replayed."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Algorithm, Caller, Limit
from ratelimit_app.local_buckets import LocalBuckets
from tests.followed_pages import fences, section

ALGORITHMS: dict[str, Algorithm] = {
    "Token bucket": "token_bucket",
    "Sliding window": "sliding_window",
    "Fixed window": "fixed_window",
    "Sliding log": "sliding_log",
    "Leaky bucket": "leaky_bucket",
}


@pytest.mark.parametrize("heading", ALGORITHMS)
def test_each_algorithm_lets_through_what_the_page_says(heading):
    text = section("docs/algorithms.md", heading)
    stated = re.search(r"^Limit: ([\d,]+) per (\d+) s(?:, (?:burst|queue) (\d+))?$", text, re.MULTILINE)
    assert stated
    limit = Limit(
        id=1,
        name="pro",
        requests=number(stated[1]),
        period_seconds=number(stated[2]),
        burst=number(stated[3] or stated[1]),
        algorithm=ALGORITHMS[heading],
    )
    rows = re.findall(r"^\| (\d\d:\d\d:\d\d) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
    buckets, seen = LocalBuckets(), []

    for clock, sends, _passes in rows:
        moment = datetime.fromisoformat(f"2026-12-01T{clock}+00:00")
        now = (int(moment.timestamp()) - EPOCH_SECONDS) * TICKS_PER_SECOND
        asked = [
            buckets.take((limit,), Caller(bucket_identity="a"), now_ticks=now, patience_ticks=TICKS_PER_SECOND)
            for _ in range(number(sends))
        ]
        seen.append((clock, sum(decision.allowed for decision in asked)))

    assert len(rows) > 2
    assert seen == [(clock, number(passes)) for clock, _sends, passes in rows]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_limits_can_be_tried_without_redis_as_the_page_shows():
    ((_language, code),) = fences(section("docs/algorithms.md", "Try it without Redis"), "python")
    exec(code, {})  # noqa: S102 (what the page tells people to write)
