"""Does OpenTelemetry collect what there is? With its real SDK; and does the app do without it?"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from ratelimit_app import usage
from ratelimit_app.metrics import telemetry
from tests import brokers, decisions
from tests.decisions import ALLOWED, LIMIT

broker = pytest.fixture(brokers.chosen)

#: Django starts, and what needs the packages of metrics is asked for without them.
WITHOUT = """
import sys
for name in ("opentelemetry", "prometheus_client"):
    sys.modules[name] = None
import django
django.setup()
from ratelimit_app.metrics import reading, views
from ratelimit_app.usage import sharing
assert sharing.read_gauges is reading.own_gauges
print(sorted(reading.own_gauges()))
"""
#: The SDK comes after Django, as with `opentelemetry-instrument` and in gunicorn's post_fork.
AFTERWARDS = """
import django
django.setup()
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
set_meter_provider(MeterProvider([reader]))
(scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(scope.scope.name, sorted(metric.name for metric in scope.metrics))
"""


def collected(reader: InMemoryMetricReader) -> dict[str, dict[tuple[Any, ...], float]]:
    """Values by name, and by the values of their attributes."""
    data = reader.get_metrics_data()
    return {
        metric.name: {tuple((point.attributes or {}).values()): point.value for point in metric.data.data_points}  # type: ignore[union-attr]
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


@pytest.fixture
def reader() -> Any:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    telemetry.connect(provider.get_meter("tests"))
    yield reader
    provider.shutdown()


def test_counts_and_states_are_collected_and_no_caller_is_among_them(broker, reader, wait_until):
    broker("redis://127.0.0.1:1/0")
    for number in range(4):
        usage.record(ALLOWED, decisions.caller(number), seconds=0.25)
    usage.record(decisions.refused(), decisions.caller(9), seconds=0.25)
    wait_until(lambda: sum(collected(reader).get("ratelimit.decisions", {}).values()) == 5)
    found = collected(reader)
    assert found["ratelimit.decisions"] == {("allowed", "redis"): 4, ("refused", "redis"): 1}
    assert found["ratelimit.limit.decisions"] == {
        (str(LIMIT.id), LIMIT.name, "passed"): 4,
        (str(LIMIT.id), LIMIT.name, "refused"): 1,
    }
    assert found["ratelimit.decision.time"] == {(): 1.25}
    assert found["ratelimit.breaker.open"] == {(): 0}
    assert found["ratelimit.gateways"] == {(): 1}
    assert "caller" not in str(found)


def run(code: str, environment: dict[str, str]) -> str:
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_app_starts_without_the_packages_of_metrics(process_environment):
    assert "breaker_open" in run(WITHOUT, process_environment)


def test_an_sdk_that_comes_after_django_collects_too(process_environment):
    output = run(AFTERWARDS, process_environment)
    assert output.startswith("ratelimit_app [")
    assert "ratelimit.breaker.open" in output
