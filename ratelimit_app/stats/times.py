"""How long did decisions take? Quantiles from a histogram, as upper bounds of the buckets that hold them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ratelimit_app.resolutions import DECISIONS
from ratelimit_app.stats.rows import BUCKET, sums
from ratelimit_app.stats.windows import Window


@dataclass(frozen=True, slots=True)
class DecisionTimes:
    """How long decisions took."""

    decisions: int
    #: None when nothing was decided.
    p50_microseconds: int | None
    p99_microseconds: int | None


def decision_times(within: Window) -> DecisionTimes:
    """Median and 99th percentile of the time that a decision took."""
    histogram: Counter[int] = Counter()
    for row in sums(DECISIONS, within, by=["at_most_microseconds"]):
        histogram[row["at_most_microseconds"]] += row["decisions"]
    return _times(histogram)


def decision_times_over_time(within: Window) -> tuple[DecisionTimes, ...]:
    """The same, an entry per bucket of the window, the empty ones included."""
    histograms = defaultdict[int, Counter[int]](Counter)
    for row in sums(DECISIONS, within, by=[BUCKET, "at_most_microseconds"]):
        histograms[max(0, row[BUCKET])][row["at_most_microseconds"]] += row["decisions"]
    return tuple(_times(histograms[bucket]) for bucket in range(len(within.starts)))


def _times(histogram: Mapping[int, int]) -> DecisionTimes:
    return DecisionTimes(
        decisions=sum(histogram.values()),
        p50_microseconds=_quantile(histogram, percent=50),
        p99_microseconds=_quantile(histogram, percent=99),
    )


def _quantile(histogram: Mapping[int, int], *, percent: int) -> int | None:
    decisions = sum(histogram.values())
    seen = 0
    for at_most, count in sorted(histogram.items()):
        seen += count
        # The quantile is the smallest bound that at least `percent` of the decisions did not exceed.
        if seen * 100 >= decisions * percent and seen:
            return at_most
    return None
