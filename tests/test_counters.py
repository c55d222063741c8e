"""Does what a process counts in its life add up, alone and with the others of its machine?"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ratelimit_app import usage
from ratelimit_app.limits import Limit
from ratelimit_app.usage import counters, sharing
from ratelimit_app.usage.counters import Counters
from tests import brokers, decisions
from tests.decisions import ALLOWED, CALLER, LIMIT, LOCAL, SHADOW_LIMIT, UNCHECKED, WOULD_REFUSE

broker = pytest.fixture(brokers.chosen)


def counted(*made: Any, seconds: float = 0.0) -> dict[tuple[str, ...], float]:
    own = Counters()
    for decision in made:
        own.count(decision, seconds)
    return {series: value for series, value in own.counts().items() if value}


def test_each_outcome_is_counted_by_who_decided():
    found = counted(
        *(ALLOWED, ALLOWED, WOULD_REFUSE, LOCAL, UNCHECKED, decisions.refused(), decisions.failed_closed()),
        decisions.refused()._replace(source="denied-cache"),
    )
    assert {series[1:]: value for series, value in found.items() if series[0] == "decisions"} == {
        ("allowed", "redis"): 3,
        ("allowed", "local"): 1,
        ("unchecked", "unchecked"): 1,
        ("refused", "redis"): 1,
        ("failed_closed", "unchecked"): 1,
        ("refused", "denied-cache"): 1,
    }


def test_each_limit_is_counted_by_what_it_said():
    shadow_beside_a_refusal = WOULD_REFUSE._replace(allowed=False)
    found = counted(ALLOWED, WOULD_REFUSE, decisions.refused(), UNCHECKED, shadow_beside_a_refusal)
    assert {series[1:]: value for series, value in found.items() if series[0] == "limits"} == {
        (str(LIMIT.id), LIMIT.name, "passed"): 3,
        (str(LIMIT.id), LIMIT.name, "refused"): 1,
        (str(LIMIT.id), LIMIT.name, "unchecked"): 1,
        (str(SHADOW_LIMIT.id), SHADOW_LIMIT.name, "would_refuse"): 1,
    }


@pytest.mark.parametrize(
    ("seconds", "bound"), [(0.0, "10"), (0.000_01, "10"), (0.000_011, "20"), (1.0, "1000000"), (1e4, "60000000")]
)
def test_times_are_counted_by_the_bound_above_them_and_in_all(seconds, bound):
    found = counted(ALLOWED, ALLOWED, seconds=seconds)
    assert found["times", bound] == 2
    assert found.get(("seconds",), 0) == 2 * seconds


def test_limits_beyond_the_bound_are_counted_as_one(monkeypatch):
    monkeypatch.setattr(counters, "_MOST", 8)
    own = Counters()
    for number in range(50):
        limit = Limit(id=number, name=f"limit {number}", requests=1, period_seconds=1, burst=1)
        own.count(decisions.refused(limits=(limit, replace(limit, name="renamed"))), 0.0)
    found = {series: value for series, value in own.counts().items() if series[0] == "limits"}
    assert len(found) <= 8
    assert sum(found.values()) == 100
    assert found["limits", "0", "other", "refused"] == 100 - 4


def test_what_was_shipped_stays_counted_and_nothing_is_counted_of_a_caller(broker, wait_until):
    broker()
    for number in range(300):
        usage.record(ALLOWED, decisions.caller(number), route=f"route {number}", seconds=0.0)
    assert usage.flush(20)
    assert usage.totals()["decisions", "allowed", "redis"] == 300
    usage.record(ALLOWED, CALLER, seconds=0.0)
    wait_until(lambda: usage.totals()["decisions", "allowed", "redis"] == 301)
    assert len({series for series, value in usage.totals().items() if value}) == 3  # decisions, limit, time


# --- All processes of a machine ----------------------------------------------------------------


def test_each_process_adds_what_is_new(tmp_path, monkeypatch):
    path = str(tmp_path / "metrics.sqlite3")
    monkeypatch.setattr(sharing, "read_gauges", lambda: {"rows": 2.0})
    one, other = sharing.Share(), sharing.Share()
    one.add(path, lambda: {("decisions", "allowed", "redis"): 5}, at_once=True)
    one.add(path, lambda: {("decisions", "allowed", "redis"): 7, ("seconds",): 0.5}, at_once=True)
    other.add(path, lambda: {("decisions", "allowed", "redis"): 100}, at_once=True)
    other.add(path, lambda: {("decisions", "allowed", "redis"): 100}, at_once=True)
    counts, processes = sharing.read(path)
    assert counts == {("decisions", "allowed", "redis"): 107, ("seconds",): 0.5}
    assert processes == [{"rows": 2.0}, {"rows": 2.0}]


def test_it_is_added_up_every_few_seconds_and_only_where_a_file_is_named(tmp_path):
    share, asked = sharing.Share(), []

    def counts() -> dict[tuple[str, ...], float]:
        asked.append(1)
        return {("seconds",): 1.0}

    share.add("", counts, at_once=True)
    assert not asked
    for _ in range(5):
        share.add(str(tmp_path / "metrics"), counts, at_once=False)
    assert len(asked) == 1


def test_the_counts_of_a_process_that_is_gone_stay_and_its_state_does_not(tmp_path, monkeypatch):
    path = str(tmp_path / "metrics.sqlite3")
    monkeypatch.setattr(sharing, "read_gauges", lambda: {"breaker_open": 1.0})
    sharing.Share().add(path, lambda: {("seconds",): 3.0}, at_once=True)
    monkeypatch.setattr(sharing, "GONE_AFTER_SECONDS", -1)
    assert sharing.read(path) == ({("seconds",): 3.0}, [])
    sharing.Share().add(path, lambda: {("seconds",): 1.0}, at_once=True)
    assert sharing.read(path)[0] == {("seconds",): 4.0}


def test_a_file_that_cannot_be_written_to_costs_a_log_line_and_no_count(tmp_path, caplog):
    folder = tmp_path / "not there yet"
    share = sharing.Share()
    for count in (1.0, 2.0):
        share.add(str(folder / "metrics"), seconds(count), at_once=True)
    assert [record.getMessage()[:23] for record in caplog.records] == ["Metrics cannot be added"]
    folder.mkdir()
    share.add(str(folder / "metrics"), lambda: {("seconds",): 3.0}, at_once=True)
    assert sharing.read(str(folder / "metrics"))[0] == {("seconds",): 3.0}


def seconds(count: float) -> Callable[[], dict[tuple[str, ...], float]]:
    return lambda: {("seconds",): count}


def _grow(path: str, started: Any) -> None:
    share = sharing.Share()
    started.wait()
    for count in range(1, 31):
        share.add(path, seconds(count), at_once=True)
    share.add(path, lambda: {("seconds",): 30}, at_once=True)  # what a busy file refused is added now


def test_processes_that_add_at_once_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "_TIMEOUT_SECONDS", 60.0)
    path = str(tmp_path / "metrics.sqlite3")
    context = multiprocessing.get_context("fork")
    started = context.Event()
    processes = [context.Process(target=_grow, args=(path, started)) for _ in range(4)]
    for process in processes:
        process.start()
    started.set()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert sharing.read(path)[0] == {("seconds",): 120}


def test_the_flush_thread_adds_even_while_the_broker_is_away(
    broker: Callable[..., Any], configure: Callable[..., None], tmp_path: Any, wait_until: Callable[..., None]
) -> None:
    path = str(tmp_path / "metrics.sqlite3")
    broker("redis://127.0.0.1:1/0", METRICS_FILE=path)
    usage.record(decisions.refused(), CALLER, seconds=0.001)
    wait_until(lambda: usage.state().failures)
    usage.record(ALLOWED, CALLER, seconds=0.001)
    threading.Thread(target=usage.flush, args=(0.5,)).start()
    wait_until(lambda: sharing.read(path)[0].get(("decisions", "allowed", "redis")) == 1, seconds=30)
    counts, (gauges,) = sharing.read(path)
    assert counts["decisions", "refused", "redis"] == 1
    assert gauges["shipping_failing"] == 1
