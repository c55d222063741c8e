"""How does OpenTelemetry collect it? It asks each process for itself; without an SDK nobody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from opentelemetry.metrics import CallbackOptions, Meter, Observation, get_meter

from ratelimit_app import usage
from ratelimit_app.metrics.reading import own_gauges

#: By the name of the series: the instrument, its unit, what it is, and the names of its attributes.
_COUNTERS = {
    "decisions": ("ratelimit.decisions", "{request}", "Requests decided.", ("outcome", "source")),
    "limits": ("ratelimit.limit.decisions", "{request}", "What single limits said.", ("limit_id", "limit", "outcome")),
    "seconds": ("ratelimit.decision.time", "s", "Time that all decisions took together.", ()),
    "dropped": ("ratelimit.dropped", "{record}", "Records that full buffers dropped.", ("kind",)),
}
_GAUGES = {
    "breaker_open": ("ratelimit.breaker.open", "1", "1 while this process does not ask Redis."),
    "records": ("ratelimit.buffer.records", "{record}", "Decisions that are not counted yet."),
    "batches": ("ratelimit.buffer.batches", "{batch}", "Batches that the broker has not confirmed."),
    "gateways": ("ratelimit.gateways", "{process}", "Processes that share the limits while Redis is down."),
    "plan_age_seconds": ("ratelimit.plan.age", "s", "How long plans were not compared with the database."),
}

_Callback = Callable[[CallbackOptions], Iterable[Observation]]


def connect(meter: Meter | None = None) -> None:
    """Make the instruments, of the meter provider that there is or will be. Called once, when Django starts."""
    meter = meter or get_meter("ratelimit_app")
    for series, (name, unit, text, attributes) in _COUNTERS.items():
        meter.create_observable_counter(name, [_counts(series, attributes)], unit=unit, description=text)
    for gauge, (name, unit, text) in _GAUGES.items():
        meter.create_observable_gauge(name, [_gauge(gauge)], unit=unit, description=text)


def _counts(wanted: str, attributes: tuple[str, ...]) -> _Callback:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        for (name, *values), count in usage.totals().items():
            if name == wanted:
                yield Observation(count, dict(zip(attributes, values, strict=True)))

    return observe


def _gauge(wanted: str) -> _Callback:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        gauges = own_gauges()
        if wanted in gauges:
            yield Observation(gauges[wanted])

    return observe
