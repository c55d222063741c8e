"""Does counting stay exact and bounded? The tally alone, and the buffer under threads."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app import usage
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.usage.tally import Tally
from tests import brokers, decisions
from tests.decisions import ALLOWED, CALLER, LIMIT, OFF, SHADOW_LIMIT, SLOW_LIMIT, UNCHECKED, WOULD_REFUSE

broker = pytest.fixture(brokers.chosen)

NOON = 1_800_000_000 // 60 * 60


def count(tally: Tally, decision: Decision, caller: Caller = CALLER, *, at: float = NOON, **more: Any) -> None:
    tally.count(decision, caller, more.get("route", "items"), more.get("method", "GET"), more.get("seconds", 0.0), at)


def rows(tally: Tally, table: str, *, everything: bool = True) -> list[list[Any]]:
    return [row for batch in tally.freeze(everything=everything) for row in batch.get(table, [])]


# --- What is counted ---------------------------------------------------------------------------


def test_each_outcome_has_a_count_of_its_own():
    tally = Tally(100)
    for decision, times in ((ALLOWED, 1), (decisions.refused(), 2), (WOULD_REFUSE, 3), (UNCHECKED, 4)):
        for _ in range(times):
            count(tally, decision)
    for _ in range(5):
        count(tally, decisions.failed_closed())
    # allowed (would-refuse ones among them), refused, would refuse, unchecked, failed closed
    assert rows(tally, "usage") == [[NOON, "aaaa", 3, 4, 2, 3, 4, 5]]


def test_minutes_callers_and_plans_are_counted_apart():
    tally = Tally(100)
    count(tally, ALLOWED, at=NOON + 59.9)
    count(tally, ALLOWED, at=NOON + 60)
    count(tally, ALLOWED, Caller(plan_id=3, address="192.0.2.1"))
    count(tally, ALLOWED, Caller(plan_id=4, bucket_identity="aaaa"))
    assert sorted(row[:4] for row in rows(tally, "usage")) == [
        [NOON, "", 3, 1],
        [NOON, "aaaa", 3, 1],
        [NOON, "aaaa", 4, 1],
        [NOON + 60, "aaaa", 3, 1],
    ]


def test_a_refusal_is_counted_once_for_the_limit_with_the_longest_wait():
    tally = Tally(100)
    count(tally, decisions.refused(limits=(LIMIT, SLOW_LIMIT)))
    assert rows(tally, "refusals") == [[NOON, "aaaa", SLOW_LIMIT.id, "items", 1, 0]]


def test_a_shadow_limit_that_would_have_refused_is_counted_by_limit():
    tally = Tally(100)
    count(tally, WOULD_REFUSE)
    assert rows(tally, "refusals") == [[NOON, "aaaa", SHADOW_LIMIT.id, "items", 0, 1]]


def test_what_failed_closed_is_kept_in_full_but_no_limit_is_blamed():
    tally = Tally(100)
    count(tally, decisions.failed_closed())
    [batch] = tally.freeze(everything=True)
    assert "refusals" not in batch
    assert batch["samples"][0][5:7] == [decisions.CLOSED_LIMIT.id, "login"]


def test_a_refusal_is_kept_in_full_under_its_receipt():
    tally = Tally(100)
    receipt = str(uuid.uuid4())
    count(tally, decisions.refused(receipt=receipt), at=NOON + 1.5, method="POST")
    assert rows(tally, "samples") == [
        [receipt, NOON + 1.5, "aaaa", 7, 3, LIMIT.id, "pro", "items", "POST", "192.0.2.1", 1, 5]
    ]


def test_times_are_counted_under_the_bound_they_do_not_exceed():
    tally = Tally(100)
    for seconds in (0.0, 0.000_010, 0.000_011, 0.001, 59.0, 1e9):
        count(tally, ALLOWED, seconds=seconds)
    assert sorted(row[1:] for row in rows(tally, "decisions")) == [[10, 2], [20, 1], [1000, 1], [60_000_000, 2]]


def test_the_use_of_a_key_is_noted_once_a_minute():
    tally = Tally(100)
    for at in (NOON, NOON + 1, NOON + 59):
        count(tally, ALLOWED, at=at)
        count(tally, ALLOWED, Caller(plan_id=1), at=at)
    assert rows(tally, "key_uses") == [[7, NOON]]
    count(tally, ALLOWED, at=NOON + 59.5)
    assert rows(tally, "key_uses") == []
    count(tally, ALLOWED, at=NOON + 60)
    assert rows(tally, "key_uses") == [[7, NOON + 60]]


def test_text_is_made_storable():
    tally = Tally(100)
    for route in ("a\0b", "a\ud800b", "x" * 5000, "\N{PILE OF POO}" * 300):
        count(tally, decisions.refused(), route=route, method="PROPFIND-AND-MORE\0")
    [batch] = tally.freeze(everything=True)
    routes = [row[3] for row in batch["refusals"]]
    assert routes == ["a\N{REPLACEMENT CHARACTER}b", "a?b", "x" * 200, "\N{PILE OF POO}" * 200]
    assert {sample[8] for sample in batch["samples"]} == {"PROPFIND-A"}


# --- What leaves when --------------------------------------------------------------------------


def test_rows_with_a_refusal_leave_before_the_others():
    tally = Tally(100)
    count(tally, ALLOWED, decisions.caller(1))
    count(tally, ALLOWED, decisions.caller(2))
    count(tally, decisions.refused(), decisions.caller(2))
    [first] = tally.freeze(everything=False)
    assert set(first) == {"id", "usage", "refusals", "samples"}
    assert [row[1] for row in first["usage"]] == ["caller-2"]
    [second] = tally.freeze(everything=True)
    assert [row[1] for row in second["usage"]] == ["caller-1"]
    assert tally.freeze(everything=True) == []


def test_batches_are_small_and_each_has_an_id_of_its_own():
    tally = Tally(5000)
    for number in range(1200):
        count(tally, ALLOWED, decisions.caller(number))
    batches = tally.freeze(everything=True)
    assert all(sum(len(rows) for name, rows in batch.items() if name != "id") <= 500 for batch in batches)
    assert len({batch["id"] for batch in batches}) == len(batches) >= 3
    assert decisions.totals(batches) == {"allowed": 1200}


# --- Bounds ------------------------------------------------------------------------------------


def test_what_no_longer_fits_is_counted_in_rows_named_by_a_star():
    tally = Tally(10)
    for number in range(100):
        count(tally, decisions.refused(), decisions.caller(number), route=f"route {number}")
    batches = tally.freeze(everything=True)
    assert decisions.totals(batches)["refused"] == 100
    by_limit = [row for batch in batches for row in batch["refusals"]]
    assert sum(row[4] for row in by_limit) == 100
    assert [row[:4] for row in by_limit if row[1] == "*"] == [[NOON, "*", LIMIT.id, "*"]]
    assert len(tally.rows) == 0


def test_a_long_outage_of_the_broker_costs_bounded_memory_and_every_drop_is_counted():
    tally = Tally(10)
    for minute in range(1000):
        count(tally, ALLOWED, at=NOON + 60 * minute)
    assert len(tally.rows) <= 100
    batches = tally.freeze(everything=True)
    found = decisions.totals(batches)
    assert found["allowed"] + found["dropped usage"] == 1000
    assert found["dropped usage"] == tally.dropped["usage"] > 0


def test_a_flood_of_refusals_is_counted_whole_and_kept_in_full_by_sample():
    tally = Tally(5000)
    for number in range(10_000):
        count(tally, decisions.refused(), at=NOON + number / 10_000)
    batches = tally.freeze(everything=True)
    samples = sum(len(batch.get("samples", ())) for batch in batches)
    assert 200 <= samples <= 221  # so many at once, and a second's worth
    assert decisions.totals(batches) == {"refused": 10_000, "dropped samples": 10_000 - samples}


def test_of_refusals_in_full_the_recent_ones_are_kept():
    tally = Tally(5)
    receipts = [str(uuid.uuid4()) for _ in range(20)]
    for number, receipt in enumerate(receipts):
        count(tally, decisions.refused(receipt=receipt), at=NOON + number)
    assert [sample[0] for sample in rows(tally, "samples")] == receipts[-5:]
    assert tally.dropped["samples"] == 15


def test_uses_of_more_keys_than_fit_are_counted_as_dropped():
    tally = Tally(10)
    for number in range(1, 31):
        count(tally, ALLOWED, decisions.caller(number))
    assert tally.dropped["key_uses"] == 20
    assert len(rows(tally, "key_uses")) == 10


@given(
    events=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(0, 300), st.booleans()), max_size=200),
    size=st.integers(1, 12),
)
def test_whatever_happens_every_decision_is_counted_or_counted_as_dropped(events, size):
    tally, batches = Tally(size), []
    kinds = (ALLOWED, UNCHECKED, WOULD_REFUSE, decisions.refused(), decisions.failed_closed())
    for kind, number, second, freeze in events:
        count(tally, kinds[kind], decisions.caller(number), at=NOON + second)
        if freeze:
            batches += tally.freeze(everything=bool(second % 2))
    batches += tally.freeze(everything=True)
    found = decisions.totals(batches)
    assert decisions.decided(found) + found["dropped usage"] == len(events)
    timed = sum(row[2] for batch in batches for row in batch.get("decisions", ()))
    assert timed + found["dropped decisions"] == len(events)


# --- The buffer, with a broker that is not there -----------------------------------------------


@pytest.fixture
def no_broker(broker):
    broker("redis://127.0.0.1:1/0")


def test_what_was_not_limited_at_all_is_not_recorded(no_broker):
    usage.record(OFF, CALLER, seconds=0.0)
    assert usage.state() == usage.BufferState(0, 0, 0, {}, 0, "")


def test_flushing_when_nothing_was_recorded_is_done_at_once(no_broker):
    started = time.monotonic()
    assert usage.flush(10)
    assert time.monotonic() - started < 5


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


def test_recording_costs_microseconds_while_nothing_can_be_sent(no_broker, wait_until):
    usage.record(decisions.refused(), CALLER, seconds=0.0)
    wait_until(lambda: usage.state().failures)
    took = []
    for number in range(5_000):
        started = time.perf_counter()
        usage.record(ALLOWED, CALLER, route="items", method="GET", seconds=0.0)
        took.append(time.perf_counter() - started)
        if number % 100 == 0:
            time.sleep(0.001)  # as requests do, it leaves the processor to others now and then
    took.sort()
    assert took[len(took) // 2] < 0.000_050
    assert took[int(len(took) * 0.99)] < 0.005  # another thread's turn may fall into one


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
