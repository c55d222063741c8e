"""Does recording stay exact, bounded and cheap? The buffer under threads, and in processes that end."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from project.celery import app
from ratelimit_app import usage
from tests import brokers, decisions
from tests.decisions import ALLOWED, CALLER, OFF, UNCHECKED

broker = pytest.fixture(brokers.chosen)

NOON = 1_800_000_000 // 60 * 60


# --- The buffer, with a broker that is not there -----------------------------------------------


@pytest.fixture
def no_broker(broker):
    broker("redis://127.0.0.1:1/0")


def test_what_was_not_limited_at_all_is_not_recorded(no_broker):
    usage.record(OFF, CALLER, seconds=0.0)
    assert usage.state() == usage.BufferState(0, 0, 0, {}, 0, "")


def test_flushing_when_nothing_was_recorded_is_done_at_once(no_broker):
    assert usage.flush(10)


def test_a_reset_forgets_what_was_recorded(no_broker):
    usage.record(ALLOWED, CALLER, seconds=0.0)
    usage.reset()
    assert usage.state().records == usage.state().rows == 0


def test_the_flush_thread_ends_with_a_reset(no_broker, wait_until):
    usage.record(ALLOWED, CALLER, seconds=0.0)
    threads = [thread for thread in threading.enumerate() if thread.name == "ratelimit_app usage"]
    assert threads
    usage.reset()
    wait_until(lambda: not any(thread.is_alive() for thread in threads))


def test_recording_waits_for_nobody_while_nothing_can_be_sent(no_broker, wait_until):
    usage.record(decisions.refused(), CALLER, seconds=0.0)
    wait_until(lambda: usage.state().failures)
    started = time.monotonic()
    for _ in range(5_000):
        usage.record(ALLOWED, CALLER, route="items", method="GET", seconds=0.0)
    assert time.monotonic() - started < 10  # a single wait of each for the broker would take minutes


def test_a_broker_that_is_away_is_reported_by_state_and_by_one_log_line(no_broker, wait_until, caplog):
    usage.record(decisions.refused(), CALLER, seconds=0.0)
    wait_until(lambda: usage.state().failures >= 2)
    state = usage.state()
    assert state.last_error
    assert state.batches == 1
    assert [record.getMessage()[:27] for record in caplog.records].count("Usage cannot be sent to the") == 1


def test_records_beyond_every_bound_are_counted_as_dropped(no_broker, configure):
    configure(BUFFER_SIZE=1)

    def work() -> None:
        for _ in range(2_000):
            usage.record(ALLOWED, CALLER, seconds=0.0)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not usage.flush(0.5)
    flusher = usage._flushers[next(iter(usage._flushers))]
    held = decisions.totals([*flusher._batches, *flusher._tally.freeze(everything=True)])
    assert held["allowed"] + usage.state().dropped.get("usage", 0) == 16_000
    assert len(flusher.records) <= 10


def test_random_decisions_of_many_threads_add_up(broker, redis_client, prefix):
    client, queue = broker()
    recorded: Counter[str] = Counter()
    adding = threading.Lock()

    def work(seed: int) -> None:
        pick = random.Random(seed)
        own: Counter[str] = Counter()
        for _ in range(3_000):
            outcome = pick.choice(("allowed", "refused", "unchecked", "failed_closed"))
            decision = {
                "allowed": ALLOWED,
                "refused": decisions.refused(),
                "unchecked": UNCHECKED,
                "failed_closed": decisions.failed_closed(),
            }[outcome]
            usage.record(decision, decisions.caller(pick.randrange(1, 40)), route="items", method="GET", seconds=0.0)
            own[outcome] += 1
        with adding:
            recorded.update(own)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert usage.flush(20)
    found = decisions.totals(decisions.queued(client, queue=queue))
    assert {outcome: found[outcome] for outcome in recorded} == recorded
    assert found["dropped usage"] == 0


# --- Processes that end ------------------------------------------------------------------------

START = """
import os, signal, sys, time
import django
django.setup()
from project.celery import app
from project.demo import processes
from ratelimit_app import usage
from tests.decisions import ALLOWED, CALLER, refused

def record(times):
    for _ in range(times):
        usage.record(ALLOWED, CALLER, seconds=0.0)

def end(signal_number, frame):
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
from django.test import override_settings
override = dict(QUEUE=os.environ["TEST_QUEUE"], COUNTS_FLUSH_SECONDS=600.0, FLUSH_SECONDS=600.0)
override_settings(RATELIMIT_APP=override).enable()
"""


@pytest.fixture
def run_script(broker, process_environment, tmp_path) -> Callable[..., subprocess.Popen[str]]:
    """Start a process that records; it never flushes by the clock."""
    broker_url, queue = app.conf.broker_url, process_environment["TEST_PREFIX"] + "-usage"

    def run(body: str, *, url: str = broker_url) -> subprocess.Popen[str]:
        environment = {**process_environment, "BROKER_URL": url, "TEST_QUEUE": queue}
        return subprocess.Popen(
            [sys.executable, "-c", START + body],
            env=environment,
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


def test_a_process_that_ends_in_order_ships_everything(broker, run_script):
    client, queue = broker()
    process = run_script("record(500)")
    _output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 500}


def test_a_process_that_gets_sigterm_ships_everything(broker, run_script):
    client, queue = broker()
    process = run_script("record(500); print('recorded', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "recorded\n"
    process.terminate()
    _output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 500}


def test_a_forked_child_ships_its_own_records_and_not_its_parents(broker, run_script):
    client, queue = broker()
    process = run_script(
        """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # that threads exist is the point of this test
record(100)
children = []
for number in range(3):
    pid = os.fork()
    if not pid:
        record(10)
        sys.exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
record(1)
"""
    )
    _output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert decisions.totals(decisions.queued(client, queue=queue)) == {"allowed": 131}


@pytest.mark.parametrize("broken", ["closed", "stalled"])
def test_a_process_ends_soon_when_the_broker_is_gone_and_says_what_it_lost(broken, redis_server, run_script):
    server = redis_server()
    server.pause() if broken == "stalled" else server.stop()
    process = run_script("record(500); print('recorded', flush=True)", url=server.url)
    assert process.stdout.readline() == "recorded\n"
    started = time.monotonic()
    _output, errors = process.communicate(timeout=30)
    assert time.monotonic() - started < 15  # 2.5 s of waiting, and the interpreter's own end on a busy machine
    assert process.returncode == 0
    assert "The process ends with usage that the queue did not take" in errors
