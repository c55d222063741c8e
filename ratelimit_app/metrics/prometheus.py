"""How does Prometheus read it? A collector that is asked at each scrape, and keeps nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector as _Collector

from ratelimit_app.alerts import words
from ratelimit_app.metrics.reading import Reading, read
from ratelimit_app.models import Episode
from ratelimit_app.usage import LATENCY_BOUNDS

#: Name and meaning, the gauge of a process that it comes from, and what several processes make together.
_STATES: tuple[tuple[str, str, str, Callable[[Iterable[float]], float]], ...] = (
    ("breakers_open", "Processes that have stopped asking Redis.", "breaker_open", sum),
    ("buffer_records", "Decisions that are not counted yet.", "records", sum),
    ("buffer_rows", "Rows that are in no batch yet.", "rows", sum),
    ("buffer_batches", "Batches that the broker has not confirmed.", "batches", sum),
    ("shipping_failing", "Processes whose last batch was not taken.", "shipping_failing", sum),
    ("gateways", "Processes that share the limits while Redis is down.", "gateways", max),
    ("plan_version", "The oldest version of the plans in use.", "plan_version", min),
    ("plan_age_seconds", "How long plans were not compared with the database, at most.", "plan_age_seconds", max),
)


class Collector(_Collector):
    """For a registry of your own: `REGISTRY.register(Collector())`."""

    def describe(self) -> Iterable[Metric]:
        return []  # registering it must not ask a database

    def collect(self) -> Iterator[Metric]:
        reading = read()
        yield from _counts(reading)
        yield _times(reading)
        yield from _states(reading)
        yield from _alerts(reading)


def _counts(reading: Reading) -> Iterator[Metric]:
    decisions = CounterMetricFamily(
        "ratelimit_decisions", "Requests decided, by outcome and by who decided.", labels=["outcome", "source"]
    )
    limits = CounterMetricFamily(
        "ratelimit_limit_decisions",
        "What single limits said: passed, refused, would_refuse (in shadow), unchecked (not asked).",
        labels=["plan", "limit", "limit_id", "outcome"],
    )
    dropped = CounterMetricFamily(
        "ratelimit_dropped", "Records that full buffers dropped: statistics are short of them.", labels=["kind"]
    )
    for series, value in sorted(reading.counts.items()):
        match series:
            case ("decisions", outcome, source):
                decisions.add_metric([outcome, source], value)
            case ("limits", limit_id, name, outcome):
                limits.add_metric([reading.plan_slugs.get(limit_id, ""), name, limit_id, outcome], value)
            case ("dropped", kind):
                dropped.add_metric([kind], value)
    yield from (decisions, limits, dropped)


def _times(reading: Reading) -> Metric:
    times = HistogramMetricFamily("ratelimit_decision_seconds", "How long decisions took, in the process that asked.")
    seen, buckets = 0.0, []
    for bound in LATENCY_BOUNDS:
        seen += reading.counts.get(("times", str(bound)), 0)
        buckets.append((str(bound / 1e6), seen))
    buckets[-1] = ("+Inf", seen)  # the last takes all that was slower
    times.add_metric([], buckets, reading.counts.get(("seconds",), 0.0))
    return times


def _states(reading: Reading) -> Iterator[Metric]:
    yield GaugeMetricFamily("ratelimit_processes", "Processes this answer tells of.", value=len(reading.processes))
    for name, text, gauge, combined in _STATES:
        family = GaugeMetricFamily(f"ratelimit_{name}", text)
        if values := [process[gauge] for process in reading.processes if gauge in process]:
            family.add_metric([], combined(values))
        yield family


def _alerts(reading: Reading) -> Iterator[Metric]:
    if reading.open_alerts is not None:
        alerts = GaugeMetricFamily("ratelimit_alerts_open", "Open alerts by kind.", labels=["kind"])
        for kind in Episode.Kind:
            alerts.add_metric([kind.value], reading.open_alerts.get(kind, 0))
        yield alerts
    if reading.evaluated_at is not None:
        evaluated = GaugeMetricFamily(
            "ratelimit_alerts_evaluated_timestamp_seconds",
            "When alerts were last evaluated: beat and worker are alive.",
        )
        evaluated.add_metric([], words.utc(reading.evaluated_at).timestamp())
        yield evaluated
