"""What does one decision do to its buckets? Taking, weighing, giving back, and what edits carry over."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from ratelimit_app import buckets, connections
from ratelimit_app.buckets import questions
from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Caller, Decision, Limit
from tests import stored
from tests.outages import redis_at

storage = pytest.fixture(stored.storage, params=stored.WAYS, autouse=True)

CALLER = Caller(key_id=1, plan_id=1, bucket_identity="one", user_id="7", address="203.0.113.9")
#: A moment in the future: the clock that the tests state, while the server's own goes on.
NOON = int((time.time() - EPOCH_SECONDS) * TICKS_PER_SECOND) + TICKS_PER_SECOND
FLOOR_MS = 3_600_000
HOUR = 3_600 * TICKS_PER_SECOND


def limit(requests: int = 1, period_seconds: int = 3600, burst: int = 3, **fields: Any) -> Limit:
    fields.setdefault("id", 1)
    fields.setdefault("name", f"limit-{fields['id']}")
    return Limit(requests=requests, period_seconds=period_seconds, burst=burst, **fields)


def edited(old: Limit, **numbers: Any) -> Limit:
    """The limit as the plan table gives it after an edit of its numbers."""
    earlier = (replace(old, earlier=()), *old.earlier)[:3]
    return replace(old, **numbers, generation=old.generation + 1, earlier=earlier)


def take(*limits: Limit, cost: int = 1, at: int = NOON, caller: Caller = CALLER, dry: bool = False) -> Decision:
    return buckets.take(limits, caller, cost=cost, now_ticks=at, floor_ms=FLOOR_MS, dry=dry)


def remaining(decision: Decision) -> list[int]:
    return [weighed.remaining for weighed in decision.weighed]


# --- Exact numbers ---------------------------------------------------------------------------------


def test_seven_per_three_seconds_lets_exactly_seven_pass_in_three_seconds():
    seven = limit(7, 3, 7)
    assert take(seven, cost=7).allowed
    moments = range(NOON, NOON + 3 * TICKS_PER_SECOND + 7, TICKS_PER_SECOND // 1000)
    passed = sum(take(seven, at=moment).allowed for moment in moments)
    assert passed == 7 - 1  # interval rounded up by less than a tick: the seventh is 2 ticks after 3 s
    assert take(seven, at=NOON + 7 * seven.interval_ticks).allowed
    assert seven.interval_ticks * 7 - 3 * TICKS_PER_SECOND < 7


def test_one_a_day_waits_exactly_what_is_left_of_the_day():
    daily = limit(1, 86_400, 2)
    assert take(daily, cost=2).allowed
    after_an_hour = take(daily, at=NOON + HOUR)
    assert not after_an_hour.allowed
    assert after_an_hour.retry_after_seconds == 86_400 - 3_600
    assert not take(daily, at=NOON + 24 * HOUR - 1).allowed
    assert take(daily, at=NOON + 24 * HOUR).allowed


def test_a_million_a_second_with_a_burst_of_two_billion_is_counted_to_the_token():
    huge = limit(1_000_000, 1, 2_000_000_000)
    assert remaining(take(huge)) == [1_999_999_999]
    assert remaining(take(huge, cost=1_999_999_998)) == [1]
    assert take(huge).allowed
    assert not take(huge).allowed
    assert remaining(take(huge, cost=0, at=NOON + 10)) == [1]  # one microsecond, one token


def test_lua_and_python_count_from_the_same_moment_in_the_same_ticks():
    for script in (questions.TAKE, questions.TAKE_BUCKETS):
        text = script.text.decode()
        assert re.findall(r"EPOCH_SECONDS = (\d+)", text) == [str(EPOCH_SECONDS)]
        assert re.findall(r"TICKS_PER_SECOND = (\d+)", text) == [str(TICKS_PER_SECOND)]
    before = time.time()
    decision = buckets.take((limit(),), CALLER)
    assert before - 1 < decision.decided_at < time.time() + 1


# --- All or nothing --------------------------------------------------------------------------------


def test_a_refusal_by_the_third_limit_leaves_the_first_two_as_they_were():
    limits = [limit(id=1, burst=5), limit(id=2, burst=5, per="address"), limit(id=3, burst=1, per="user")]
    assert take(*limits).allowed
    refused = take(*limits)
    assert refused.refused_by is limits[2]
    assert remaining(refused) == [4, 4, 0]
    assert remaining(take(limits[0], dry=True)) == [4]
    assert remaining(take(limits[1], dry=True)) == [4]


def test_of_several_refusals_the_longest_wait_is_told():
    minutely, hourly = limit(1, 60, 1, id=1), limit(1, 3600, 1, id=2)
    take(minutely, hourly)
    for order in ((minutely, hourly), (hourly, minutely)):
        assert take(*order).retry_after_seconds == 3600


def test_a_shadow_limit_never_refuses_and_is_charged_as_if_it_were_enforced():
    watched, enforced = limit(id=1, burst=2, mode="shadow"), limit(id=2, burst=4)
    decisions = [take(watched, enforced) for _ in range(5)]
    assert [decision.allowed for decision in decisions] == [True, True, True, True, False]
    assert [len(decision.would_refuse) for decision in decisions] == [0, 0, 1, 1, 0]
    assert [remaining(decision)[0] for decision in decisions] == [1, 0, 0, 0, 0]


def test_a_refused_request_does_not_spend_from_the_limits_in_shadow():
    watched, enforced = limit(id=1, burst=9, mode="shadow"), limit(id=2, burst=1)
    take(watched, enforced)
    assert remaining(take(watched, enforced)) == [8, 0]


def test_a_cost_above_the_burst_is_refused_for_ever_without_draining():
    decision = take(limit(burst=3), cost=4)
    assert not decision.allowed
    assert decision.retry_after_seconds is None
    assert decision.weighed[0].wait_ticks is None
    assert remaining(decision) == [3]
    assert take(limit(burst=3), cost=3).allowed


@pytest.mark.parametrize("cost", [10**9, 10**30, 10**400])
def test_an_absurd_cost_is_just_a_cost_above_the_burst(cost):
    decision = take(limit(), cost=cost)
    assert (decision.allowed, decision.retry_after_seconds, remaining(decision)) == (False, None, [3])


def test_weighing_alone_charges_nothing_and_writes_nothing(redis_client, prefix):
    assert remaining(take(limit(), dry=True)) == [3]
    assert not list(redis_client.scan_iter(f"{prefix}*"))
    take(limit())
    assert [remaining(take(limit(), cost=2, dry=True)) for _ in range(3)] == [[2]] * 3


def test_a_cost_of_zero_passes_even_when_nothing_is_left():
    take(limit(), cost=3)
    assert take(limit(), cost=0).allowed


def test_forty_threads_share_ten_tokens_exactly():
    ten, decisions = limit(burst=10), []
    start = threading.Barrier(40)

    def send() -> None:
        start.wait()
        decisions.append(buckets.take((ten,), CALLER))

    threads = [threading.Thread(target=send) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    served = [remaining(decision)[0] for decision in decisions if decision.allowed]
    assert sorted(served) == list(range(10))


# --- Clocks ----------------------------------------------------------------------------------------


def test_a_clock_that_steps_back_an_hour_never_freezes_a_caller():
    per_second = limit(1, 1, 3)
    take(per_second, cost=3)
    back = take(per_second, at=NOON - HOUR)
    assert not back.allowed
    assert back.retry_after_seconds == 1
    assert take(per_second, at=NOON - HOUR + TICKS_PER_SECOND).allowed


def test_a_clock_that_jumps_ahead_gives_one_full_bucket_and_no_more():
    take(limit(), cost=3)
    assert take(limit(), cost=3, at=NOON + 1000 * HOUR).allowed
    assert not take(limit(), at=NOON + 1000 * HOUR).allowed


def test_refused_polling_neither_costs_tokens_nor_loses_fractions():
    slow = limit(1, 10, 2)
    take(slow, cost=2)
    passed = [second for second in range(1, 32) if take(slow, at=NOON + second * TICKS_PER_SECOND).allowed]
    assert passed == [10, 20, 30]


# --- Edits -----------------------------------------------------------------------------------------


def test_an_edit_keeps_the_used_share():
    before = limit(2000, 86_400, 2000)
    take(before, cost=500)
    after = edited(before, requests=200, burst=200)
    assert remaining(take(after)) == [149]


def test_a_drained_caller_stays_drained_whatever_the_new_numbers():
    before = limit(1000, 60, 1000)
    take(before, cost=1000)
    for numbers in ({"requests": 10}, {"burst": 2_000}, {"burst": 1, "period_seconds": 1}):
        assert not take(edited(before, **numbers), dry=True).allowed


def test_several_quick_edits_without_a_request_between_them_keep_the_share():
    now = limit(100, 3600, 100)
    take(now, cost=50)
    for burst in (10, 1000, 40):
        now = edited(now, burst=burst)
    assert remaining(take(now, cost=0)) == [20]


def test_an_edit_back_to_the_old_numbers_does_not_bring_old_tokens_back():
    first = limit(100, 3600, 100)
    take(first, cost=20)
    second = edited(first, burst=10)
    take(second, cost=6)
    third = edited(second, burst=100)
    assert remaining(take(third, cost=0)) == [20]


def test_what_was_used_is_carried_over_once_though_the_old_bucket_lives_longer():
    slow = limit(1, 3600, 10)
    assert buckets.take((slow,), CALLER, cost=10).allowed
    fast = edited(slow, requests=1_000, period_seconds=1, burst=10)
    assert not buckets.take((fast,), CALLER, cost=10).allowed  # carried over: drained, for 10 ms
    deadline = time.monotonic() + 5
    while not buckets.take((fast,), CALLER, cost=10).allowed:
        assert time.monotonic() < deadline, "the old debt came back"


def test_what_was_used_is_not_carried_over_again_after_a_refund():
    slow = limit(1, 3600, 10)
    buckets.take((slow,), CALLER, cost=9)
    fast = edited(slow, requests=1_000, period_seconds=1, burst=10)
    carried = buckets.take((fast,), CALLER, cost=1)
    assert carried.allowed
    time.sleep(0.02)  # the new bucket, full again, is nothing but a mark that the old one was carried over
    buckets.refund(buckets.take((fast,), CALLER, cost=1))
    assert buckets.take((fast,), CALLER, cost=0, dry=True).remaining == 10


# --- Giving back -----------------------------------------------------------------------------------


def test_a_refund_gives_back_what_was_taken_and_no_more():
    one, two = limit(id=1), limit(id=2, burst=5)
    first = buckets.take((one, two), CALLER, cost=2)
    buckets.refund(first)
    assert [weighed.level.full_ticks for weighed in buckets.take((one, two), CALLER, dry=True).weighed] == [0, 0]
    buckets.refund(first)
    assert remaining(buckets.take((one, two), CALLER, dry=True)) == [3, 5]


def test_a_refund_of_a_refusal_is_nothing():
    buckets.take((limit(),), CALLER, cost=3)
    buckets.refund(buckets.take((limit(),), CALLER, cost=3))
    assert remaining(buckets.take((limit(),), CALLER, dry=True)) == [0]


def test_a_reset_fills_the_buckets_of_one_caller_with_those_of_earlier_generations():
    other = replace(CALLER, bucket_identity="two")
    old = limit()
    now = edited(old, burst=6)
    for caller in (CALLER, other):
        buckets.take((old,), caller, cost=3)
        buckets.take((now,), caller, dry=True)
    buckets.reset((now,), CALLER)
    assert remaining(buckets.take((now,), CALLER, dry=True)) == [6]
    assert remaining(buckets.take((now,), other, dry=True)) == [0]


def test_without_redis_taking_raises_unavailable():
    with redis_at("redis://127.0.0.1:1/0"), pytest.raises(connections.Unavailable):
        take(limit())
