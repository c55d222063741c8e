"""Does counting stay exact and bounded? The tally alone, with no thread and no broker."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app.limits import Caller, Decision
from ratelimit_app.usage.tally import Tally
from tests import decisions
from tests.decisions import ALLOWED, CALLER, LIMIT, LOCAL, SHADOW_LIMIT, SLOW_LIMIT, UNCHECKED, WOULD_REFUSE

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
    for _ in range(6):
        count(tally, LOCAL)
    # allowed (would-refuse and local ones among them), refused, would refuse, unchecked, failed closed, local
    assert rows(tally, "usage") == [[NOON, "aaaa", 3, 10, 2, 3, 4, 5, 6]]


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
    assert rows(tally, "refusals") == [[NOON, "aaaa", SLOW_LIMIT.id, "items", 1, 0, 0, 0, 0]]


def test_a_shadow_limit_that_would_have_refused_is_counted_by_limit():
    tally = Tally(100)
    count(tally, WOULD_REFUSE)
    assert rows(tally, "refusals") == [[NOON, "aaaa", SHADOW_LIMIT.id, "items", 0, 1, 0, 0, 0]]


def test_what_failed_closed_is_kept_in_full_and_counted_for_the_closed_limit_alone():
    tally = Tally(100)
    count(tally, decisions.failed_closed())
    [batch] = tally.freeze(everything=True)
    assert batch["refusals"] == [[NOON, "aaaa", decisions.CLOSED_LIMIT.id, "", 0, 0, 0, 1, 0]]
    assert batch["samples"][0][5:7] == [decisions.CLOSED_LIMIT.id, "login"]


def test_without_redis_each_limit_says_what_it_did_whatever_the_route():
    tally = Tally(100)
    for route in ("items", "others"):
        count(tally, UNCHECKED, route=route)
        count(tally, replace(LOCAL, unweighed=(SLOW_LIMIT,)), route=route)
    count(tally, replace(decisions.refused(), source="local", unweighed=(SLOW_LIMIT,)))
    assert sorted(rows(tally, "refusals")) == [
        [NOON, "aaaa", LIMIT.id, "", 0, 0, 2, 0, 3],
        [NOON, "aaaa", LIMIT.id, "items", 1, 0, 0, 0, 0],
        [NOON, "aaaa", SLOW_LIMIT.id, "", 0, 0, 2, 0, 0],
    ]


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
