"""Do tokens that are taken ahead of time stay within the bound, and do the unused ones come back?"""

from __future__ import annotations

import asyncio
import math
import os
import random
import subprocess
import sys
import threading
import time
import warnings
from fractions import Fraction
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from ratelimit_app import buckets, leases, limiter, plan_cache
from ratelimit_app.leases import keeper as keeper_module
from ratelimit_app.leases import lease as lease_module
from ratelimit_app.limits import LEASE_TICKS, TICKS_PER_SECOND, Caller, Decision, Limit
from ratelimit_app.models import PlanLimit
from tests import asking, brokers, decisions, lease_fleet, outages

CALLER = Caller(key_id=1, plan_id=1, bucket_identity="one", address="192.0.2.1")
#: Comes back slowly, so that what is there is known.
SLOW = Limit(id=1, name="slow", requests=1, period_seconds=60, burst=1_002, lease=True)
FAST = Limit(id=2, name="fast", requests=1_000, period_seconds=1, burst=1_000, lease=True)


broker = pytest.fixture(brokers.chosen)
counted = pytest.fixture(asking.counted)


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """The size of each batch that the shared buckets are asked for."""
    sizes: list[int] = []
    take, atake = buckets.take, buckets.atake

    def noted(limits: Any, caller: Any, *, cost: int = 1, **options: Any) -> Decision:
        sizes.append(cost)
        return take(limits, caller, cost=cost, **options)

    async def anoted(limits: Any, caller: Any, *, cost: int = 1, **options: Any) -> Decision:
        sizes.append(cost)
        return await atake(limits, caller, cost=cost, **options)

    monkeypatch.setattr(buckets, "take", noted)
    monkeypatch.setattr(buckets, "atake", anoted)
    return sizes


@pytest.fixture
def still(monkeypatch) -> None:
    """Leases do not end by themselves, however slow the machine is."""
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1_000.0)
    monkeypatch.setattr(lease_module, "_AHEAD_SECONDS", 500.0)


def left(*limits: Limit, caller: Caller = CALLER) -> list[int]:
    return [weighed.remaining for weighed in buckets.take(limits, caller, dry=True).weighed]


# --- The limit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("requests", "period_seconds", "reserve"), [(1, 60, 2), (1_000, 1, 101), (15, 1, 3)])
def test_the_shared_bucket_does_without_what_a_lease_s_life_gains(requests, period_seconds, reserve) -> None:
    limit = Limit(id=1, name="l", requests=requests, period_seconds=period_seconds, burst=reserve + 5, lease=True)
    assert limit.reserve == reserve
    assert limit.capacity == 5
    assert limit.capacity_ticks + LEASE_TICKS < limit.burst * limit.interval_ticks


def test_the_bound_holds_for_each_shard_by_itself() -> None:
    limit = Limit(id=1, name="l", requests=1_000, period_seconds=1, burst=100, per="everyone", shards=10, lease=True)
    for part in limit.parts:
        assert part.capacity_ticks + LEASE_TICKS < part.burst * part.interval_ticks


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"algorithm": "sliding_window"}, "lease", "Only a token bucket"),
        ({"algorithm": "leaky_bucket"}, "lease", "Only a token bucket"),
        ({"requests": 1_000, "period_seconds": 1, "burst": 101}, "burst", "must be 102 at least"),
        ({"burst": 2}, "burst", "must be 3 at least"),
        ({"per": "everyone", "shards": 10, "burst": 29}, "burst", "must be 30 at least"),
    ],
)
def test_a_lease_that_cannot_keep_the_bound_is_refused_by_the_form_and_the_database(plan, fields, field, text) -> None:
    row = PlanLimit(plan=plan, name="leased", **{"requests": 1, "period_seconds": 60, "burst": 100, **fields})
    row.full_clean()
    row.lease = True
    with pytest.raises(ValidationError) as refused:
        row.full_clean()
    assert text in refused.value.message_dict[field][0]
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    [
        {"requests": 1_000, "period_seconds": 1, "burst": 102},
        {"burst": 3},
        {"per": "everyone", "shards": 10, "burst": 30},
        {"requests": 1_000_000_000, "period_seconds": 1, "burst": 2_000_000_000},
        {"requests": 1_000_000_000, "period_seconds": 225_000_000, "burst": 2_000_000_000},
    ],
)
def test_a_lease_that_keeps_the_bound_is_accepted(plan, fields) -> None:
    row = PlanLimit(plan=plan, name="leased", lease=True, **{"requests": 1, "burst": 100, **fields})
    row.full_clean()
    row.save()
    assert all(part.capacity >= 1 for part in row.as_limit().parts)


# --- Spending ----------------------------------------------------------------------------------


def test_most_decisions_need_no_redis(asked, still) -> None:
    answers = [leases.take((SLOW,), CALLER) for _ in range(500)]
    assert all(answer.allowed for answer in answers)
    assert len(asked) < 50
    assert max(asked) <= SLOW.capacity // 20
    assert {answer.source for answer in answers} == {"redis", "lease"}


def test_the_first_request_of_a_caller_takes_no_more_than_it_costs(asked) -> None:
    answer = leases.take((SLOW,), CALLER, cost=3)
    assert (answer.source, answer.remaining, asked) == ("redis", 997, [3])


def test_a_leased_answer_says_what_is_left(asked, still) -> None:
    answers = [leases.take((SLOW,), CALLER) for _ in range(100)]
    assert [answer.remaining for answer in answers] == list(range(999, 899, -1))
    assert [weighed.charged for answer in answers for weighed in answer.weighed] == [1] * 100
    assert answers[-1].cost == 1
    assert answers[-1].decided_ticks >= answers[0].decided_ticks


def test_every_token_is_spent_once_and_none_is_lost(asked, still) -> None:
    answers = [leases.take((SLOW,), CALLER) for _ in range(1_100)]
    assert [answer.allowed for answer in answers] == [True] * 1_000 + [False] * 100
    assert left(SLOW) == [0]


def test_costs_are_mixed_without_losing_tokens(still) -> None:
    rng = random.Random(7)
    spent = 0
    for _ in range(2_000):
        cost = rng.choice([0, 1, 1, 2, 5, 60])
        spent += cost * leases.take((SLOW,), CALLER, cost=cost).allowed
    while leases.take((SLOW,), CALLER).allowed:
        spent += 1
    leases.give_back()
    assert spent + left(SLOW)[0] in (999, 1_000)  # what went back lacks a few milliseconds each time


def test_a_cost_above_the_burst_is_refused_for_ever(asked) -> None:
    answer = leases.take((SLOW,), CALLER, cost=1_001)
    assert not answer.allowed
    assert answer.retry_after_seconds is None
    assert leases.take((SLOW,), CALLER).allowed


def test_what_is_there_is_taken_when_a_batch_is_not(asked, still) -> None:
    for _ in range(300):
        leases.take((SLOW,), CALLER)
    leases.give_back()
    there = left(SLOW)[0] - 5
    assert buckets.take((SLOW,), CALLER, cost=there).allowed  # another process
    asked.clear()
    assert sum(leases.take((SLOW,), CALLER).allowed for _ in range(20)) == 5
    assert asked[0] > 5
    assert asked[1] <= 5


def test_callers_and_limits_do_not_share_a_lease(still) -> None:
    other = Limit(id=9, name="other", requests=1, period_seconds=60, burst=1_002, lease=True)
    for _ in range(100):
        assert leases.take((SLOW,), CALLER).allowed
        assert leases.take((SLOW,), Caller(plan_id=1, bucket_identity="two")).allowed
        assert leases.take((other,), CALLER).allowed
    leases.give_back()
    assert left(SLOW) == left(other) == left(SLOW, caller=Caller(bucket_identity="two")) == [900]


def test_a_lease_over_two_limits_takes_from_both(asked, still) -> None:
    tight = Limit(id=9, name="tight", requests=1, period_seconds=60, burst=202, lease=True)
    answers = [leases.take((SLOW, tight), CALLER) for _ in range(250)]
    assert [answer.allowed for answer in answers] == [True] * 200 + [False] * 50
    assert answers[-1].refused_by == tight
    assert len(asked) < 100
    assert left(SLOW, tight) == [800, 0]


def test_only_enforced_limits_that_all_lease_are_covered() -> None:
    exact = Limit(id=9, name="exact", requests=1, period_seconds=60, burst=100)
    shadow = Limit(id=9, name="shadow", requests=1, period_seconds=60, burst=100, lease=True, mode="shadow")
    assert leases.cover((SLOW,))
    assert leases.cover((SLOW, FAST))
    assert not leases.cover((SLOW, exact))
    assert not leases.cover((exact,))
    assert not leases.cover((SLOW, shadow))


# --- Refusals ----------------------------------------------------------------------------------


def test_a_refusal_says_when_to_come_back_and_is_remembered_for_a_moment(asked, monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1_000.0)
    assert buckets.take((SLOW,), CALLER, cost=1_000).allowed
    asked.clear()
    first, second = leases.take((SLOW,), CALLER), leases.take((SLOW,), CALLER)
    assert asked == [1]
    assert (first.source, second.source) == ("redis", "lease")
    assert first.retry_after_seconds == second.retry_after_seconds == 60
    assert second.remaining == 0
    assert first.wait_seconds is not None
    assert second.wait_seconds is not None
    assert second.wait_seconds < first.wait_seconds
    assert not leases.take((SLOW,), CALLER, cost=2).allowed  # of another cost nothing is known
    assert asked == [1, 2]


def test_after_exactly_the_wait_the_next_request_passes(wait_until) -> None:
    limit = Limit(id=9, name="l", requests=20, period_seconds=1, burst=10, lease=True)
    for _ in range(20):
        while (answer := leases.take((limit,), CALLER)).allowed:
            pass
        again = leases.take((limit,), CALLER)
        assert answer.wait_seconds is not None
        assert again.wait_seconds is not None
        assert 0 < again.wait_seconds <= lease_module.LEASE_SECONDS + 0.001
        time.sleep(again.wait_seconds)
        assert leases.take((limit,), CALLER).allowed


# --- Giving back -------------------------------------------------------------------------------


def test_unused_tokens_come_back_when_nobody_asks(wait_until) -> None:
    deadline = time.monotonic() + 10
    while not any(lease._batch and lease._batch.tokens > 10 for lease in leases._keeper().leases.values()):
        assert leases.take((SLOW,), CALLER).allowed
        assert time.monotonic() < deadline
        spent = 1_000 - left(SLOW)[0]
        assert spent < 900
    held_by_the_bucket = left(SLOW)[0]
    wait_until(lambda: left(SLOW)[0] > held_by_the_bucket + 9)
    wait_until(lambda: not leases._keeper()._holding)


def test_callers_that_went_away_are_forgotten(wait_until, monkeypatch) -> None:
    monkeypatch.setattr(keeper_module, "_FORGET_AFTER_SECONDS", 0.01)
    leases.take((SLOW,), CALLER)
    assert leases._keeper().leases
    wait_until(lambda: not leases._keeper().leases)


def test_more_callers_than_can_be_kept_in_mind_are_decided_in_redis(monkeypatch, asked, still) -> None:
    monkeypatch.setattr(keeper_module, "_MOST_CALLERS", 1)
    for name in ("one", "two"):
        caller = Caller(bucket_identity=name)
        for _ in range(50):
            assert leases.take((SLOW,), caller).allowed
    leases.give_back()
    assert left(SLOW, caller=Caller(bucket_identity="two")) == [950]
    assert len(leases._keeper().leases) == 1
    assert 50 < len(asked) < 80


def test_what_goes_back_lacks_what_the_bucket_gained_meanwhile() -> None:
    limit = Limit(id=9, name="l", requests=1_000, period_seconds=1, burst=1_000, lease=True)
    now, tick = 10**12, limit.interval_ticks
    batch = buckets.take((limit,), CALLER, cost=50, now_ticks=now, floor_ms=60_000)
    buckets.take((limit,), CALLER, cost=400, now_ticks=now, floor_ms=60_000)
    buckets.give_back_unused(batch, tokens=50, now_ticks=now + 20 * tick)
    again = buckets.take((limit,), CALLER, now_ticks=now + 20 * tick, floor_ms=60_000, dry=True)
    assert again.remaining == limit.capacity - 450 + 20 + 30
    buckets.give_back_unused(batch, tokens=50, now_ticks=now + 60 * tick)
    again = buckets.take((limit,), CALLER, now_ticks=now + 60 * tick, floor_ms=60_000, dry=True)
    assert again.remaining == limit.capacity - 450 + 20 + 30 + 40


CHILD = """
import sys, django
django.setup()
from ratelimit_app import buckets, leases
from ratelimit_app.leases import keeper as keeper_module
from ratelimit_app.leases import lease as lease_module
from ratelimit_app.limits import Caller, Limit
lease_module.LEASE_SECONDS = lease_module._AHEAD_SECONDS = 1_000.0
keeper_module._SWEEP_SECONDS = 1_000.0
limit = Limit(id=1, name="slow", requests=1, period_seconds=60, burst=1_002, lease=True)
caller = Caller(key_id=1, plan_id=1, bucket_identity="one", address="192.0.2.1")
spent = 0
while not any(lease._batch and lease._batch.tokens > 10 for lease in leases._keeper().leases.values()):
    spent += leases.take((limit,), caller).allowed
print(spent, buckets.take((limit,), caller, dry=True).remaining)
"""


def test_a_process_that_ends_gives_back_what_it_holds(process_environment) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD], env=process_environment, capture_output=True, text=True, check=True, timeout=30
    )
    spent, while_it_held = map(int, child.stdout.split())
    assert while_it_held < 1_000 - spent - 10
    assert left(SLOW) == [1_000 - spent]


def test_a_fork_spends_nothing_of_its_parent_s(still) -> None:
    for _ in range(60):
        leases.take((SLOW,), CALLER)
    held = [lease._batch.tokens for lease in leases._keeper().leases.values() if lease._batch]
    assert held
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that threads exist is the point of this test
        child = os.fork()
    if child == 0:
        try:
            answer = leases.take((SLOW,), CALLER)
            os.write(writer, f"{answer.source} {len(leases._keepers)}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"redis 1"
    os.close(reader)
    os.close(writer)
    assert [lease._batch.tokens for lease in leases._keeper().leases.values() if lease._batch] == held


# --- Threads and coroutines --------------------------------------------------------------------


def test_no_two_threads_spend_one_token(still) -> None:
    allowed: list[int] = []

    def spend() -> None:
        allowed.append(sum(leases.take((SLOW,), CALLER).allowed for _ in range(300)))

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    leases.give_back()
    assert sum(allowed) + left(SLOW)[0] == 1_000
    assert sum(allowed) >= 990


def test_no_two_coroutines_spend_one_token(asked, still) -> None:
    async def spend(count: int) -> int:
        total = 0
        for _ in range(count):
            total += (await leases.atake((SLOW,), CALLER)).allowed
            await asyncio.sleep(0)
        return total

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*[spend(60) for _ in range(20)]))

    spent = asyncio.run(all_of_them())
    leases.give_back()
    assert spent + left(SLOW)[0] == 1_000
    assert spent >= 990
    assert len(asked) < 600


# --- The limiter -------------------------------------------------------------------------------


@pytest.fixture
def leased(transactional_db, make_plan):
    """1,000 at once, one more each minute, leased."""
    return make_plan("Leased", 1, 60, 1_002, lease=True)


check = pytest.fixture(asking.check, params=asking.BOTH)


def test_every_request_is_counted_once(check, leased, still, counted) -> None:
    caller = asking.caller(leased)
    answers = [check(caller) for _ in range(1_010)]
    assert sum(answer.allowed for answer in answers) == 1_000
    assert "lease" in {answer.source for answer in answers}
    found = counted()
    assert (found["allowed"], found["refused"], decisions.decided(found)) == (1_000, 10, 1_010)
    assert all(answer.receipt for answer in answers[1_000:])


def test_a_refund_of_a_leased_answer_reaches_the_shared_bucket(leased, still) -> None:
    caller = asking.caller(leased)
    while (answer := limiter.check(caller)).source != "lease":
        pass
    (before,) = [weighed.remaining for weighed in limiter.peek(caller).weighed]
    limiter.refund(answer)
    assert limiter.peek(caller).remaining == before + 1


def test_peek_takes_no_token_and_sees_the_shared_bucket_only(leased, still) -> None:
    caller = asking.caller(leased)
    answers = [limiter.check(caller) for _ in range(100)]
    assert limiter.peek(caller).remaining in range(901)
    leases.give_back()
    assert limiter.peek(caller).remaining == answers[-1].remaining == 900


def test_a_reset_fills_the_bucket_and_ends_what_this_process_knows(leased, still) -> None:
    caller = asking.caller(leased)
    while limiter.check(caller).allowed:
        pass
    limiter.reset(caller)
    assert limiter.check(caller).allowed
    assert limiter.peek(caller).remaining == 999


def test_an_edit_ends_the_leases_of_before(leased, still) -> None:
    caller = asking.caller(leased)
    for _ in range(500):
        assert limiter.check(caller).allowed
    leased.limits.update(burst=502)
    answer = limiter.check(caller)
    assert answer.source == "redis"
    assert answer.remaining in range(200, 250)  # half of it was used, held tokens included
    leased.limits.update(lease=False)
    assert limiter.check(caller).source == "redis"
    assert not leases.cover(plan_cache.table().limits[leased.pk])


def test_the_switch_to_shadow_ends_leasing(leased, configure) -> None:
    caller = asking.caller(leased)
    for _ in range(50):
        limiter.check(caller)
    configure(MODE="shadow")
    assert {limiter.check(caller).source for _ in range(20)} == {"redis"}


@pytest.mark.parametrize("on_failure", ["local", "open", "closed"])
def test_without_redis_a_lease_is_used_up_and_then_the_limit_s_choice_holds(
    redis_server, transactional_db, make_plan, on_failure, still, wait_until
) -> None:
    caller = asking.caller(make_plan("Leased", 1, 60, 1_002, lease=True, on_failure=on_failure))
    server = redis_server()
    with outages.redis_at(server.url):
        while not any(lease._batch and lease._batch.tokens >= 5 for lease in leases._keeper().leases.values()):
            assert limiter.check(caller).allowed
        held = next(lease._batch.tokens for lease in leases._keeper().leases.values() if lease._batch)
        server.kill()
        answers = [limiter.check(caller) for _ in range(held + 3)]
        undecided = "local" if on_failure == "local" else "unchecked"
        assert [answer.source for answer in answers] == ["lease"] * held + [undecided] * 3
        assert [answer.allowed for answer in answers[held:]] == [on_failure != "closed"] * 3
        server.start()
        wait_until(outages.redis_is_asked)
        assert limiter.check(caller).source == "redis"


def test_a_revoked_key_is_turned_away_whatever_is_held_for_it(client, leased, make_key, still) -> None:
    row, text = make_key(leased)
    headers = {"Authorization": f"Bearer {text}"}
    assert {client.get("/plain/ping/", headers=headers).status_code for _ in range(30)} == {200}
    type(row).objects.filter(pk=row.pk).revoke()
    assert client.get("/plain/ping/", headers=headers).status_code == 401


# --- The bound ---------------------------------------------------------------------------------


class Fleet:
    """Several processes' leases on a clock that this test moves, over the real scripts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rng: random.Random, limit: Limit, processes: int) -> None:
        self.rng, self.limit = rng, limit
        self.now = rng.randrange(10**12, 10**13)
        self.keepers = [keeper_module.Keeper() for _ in range(processes)]
        for keeper in self.keepers:
            monkeypatch.setattr(keeper, "_run_on", lambda: None)
        monkeypatch.setattr(lease_module, "time", self)
        monkeypatch.setattr(keeper_module, "time", self)
        # Greedier than they are, too.
        monkeypatch.setattr(lease_module, "_AHEAD_SECONDS", rng.choice([lease_module.LEASE_SECONDS / 2, 1.0]))
        monkeypatch.setattr(lease_module, "_SHARE_OF_BURST", rng.choice([20, 2]))
        self._take, self._give_back = buckets.take, buckets.give_back_unused
        monkeypatch.setattr(buckets, "give_back_unused", self.give_back_unused)
        self.admitted: list[int] = []
        self.leased = 0
        self.slowest = rng.choice([0, 1_000, 20_000])

    def monotonic(self) -> float:
        return self.now / TICKS_PER_SECOND

    def travel(self) -> None:
        """A message is on its way."""
        self.now += self.rng.randrange(self.slowest + 1)

    def give_back_unused(self, decision: Decision, *, tokens: int) -> None:
        self.travel()
        self._give_back(decision, tokens=tokens, now_ticks=self.now)
        self.travel()

    def request(self, keeper: keeper_module.Keeper, cost: int) -> Decision:
        lease = keeper.lease_of((self.limit,), CALLER)
        assert lease is not None
        answer, spent_at = lease.spend(cost), self.now
        if answer is None:
            asking = lease.ask(cost)
            size = next(asking)
            try:
                while True:
                    self.travel()
                    answer, spent_at = (
                        self._take((self.limit,), CALLER, cost=size, now_ticks=self.now, floor_ms=60_000),
                        self.now,
                    )
                    self.travel()
                    size = asking.send(answer)
            except StopIteration as done:
                answer = done.value
        if answer.allowed:
            self.admitted += [spent_at] * cost
            self.leased += answer.source == "lease"
        return answer


@pytest.mark.parametrize("seed", range(10))
def test_no_interval_admits_more_than_burst_and_rate_allow(seed, monkeypatch) -> None:
    """In rounds that go for the worst: hold much, let the bucket fill up behind it, then spend all at once."""
    rng = random.Random(seed)
    requests, burst = rng.choice([(1_000, 250), (1_000, 900), (100, 140), (300, 300), (3_333, 500)])
    limit = Limit(id=1, name="l", requests=requests, period_seconds=1, burst=burst, lease=True)
    fleet = Fleet(monkeypatch, rng, limit, processes=rng.choice([2, 5]))
    for _ in range(6):
        for keeper in fleet.keepers * rng.choice([1, 2]):
            for _ in range(rng.randrange(30)):
                fleet.request(keeper, rng.choice([1, 1, 2]))
                fleet.now += rng.randrange(2_000)
            if rng.random() < 0.3:
                fleet.now += rng.randrange(LEASE_TICKS)
                keeper.give_back()
        fleet.now += rng.choice([0, LEASE_TICKS * 9 // 10, rng.randrange(LEASE_TICKS)])
        refusals = 0
        for _ in range(1_200):
            if refusals == 5:
                break
            refusals += not fleet.request(rng.choice(fleet.keepers), rng.choice([1, 1, 5])).allowed
        for keeper in fleet.keepers:
            keeper.give_back()
        fleet.now += rng.choice([0, LEASE_TICKS, 2 * TICKS_PER_SECOND])
    assert fleet.leased
    assert most_at_once(fleet.admitted, limit) <= limit.burst


def most_at_once(moments: list[int], limit: Limit) -> Fraction:
    """The burst of the smallest bucket that would have let all of this through."""
    rate = Fraction(limit.requests, limit.period_seconds * TICKS_PER_SECOND)
    most, lowest = Fraction(0), Fraction(10**30)
    for count, moment in enumerate(sorted(moments)):
        lowest = min(lowest, count - rate * moment)
        most = max(most, count + 1 - rate * moment - lowest)
    return most


def test_given_back_in_full_the_same_tokens_would_be_made_twice() -> None:
    """Why what goes back lacks what the bucket gained: in rounds of L the tokens held would grow without end."""
    limit = Limit(id=1, name="l", requests=1_000, period_seconds=1, burst=1_000, lease=True)
    most_in_bucket_and_held = {}
    for in_full in (True, False):
        caller, now, held = Caller(bucket_identity=f"{in_full}"), 10**12, None
        for _ in range(8):
            # Just before its end a batch is replaced by a larger one.
            size = 100 + (held[1] if held else 0)
            batch = buckets.take((limit,), caller, cost=size, now_ticks=now, floor_ms=60_000)
            if held:
                if in_full:
                    buckets.refund(held[0], now_ticks=now, floor_ms=60_000)
                else:
                    buckets.give_back_unused(held[0], tokens=held[1], now_ticks=now)
            held = (batch, size) if batch.allowed else None
            now += LEASE_TICKS
        level = buckets.take((limit,), caller, dry=True, now_ticks=now, floor_ms=60_000).remaining
        assert level is not None
        most_in_bucket_and_held[in_full] = level + (held[1] if held else 0)
    assert most_in_bucket_and_held[True] > limit.burst
    assert most_in_bucket_and_held[False] <= limit.burst


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("rate", "burst", "pause_seconds"), [(5_000, 3_000, 0.0), (200, 200, 0.005), (20, 50, 0.02)])
def test_twenty_processes_stay_within_the_bound_and_ask_redis_seldom(
    redis_server, process_environment, transactional_db, make_plan, rate, burst, pause_seconds, capsys
) -> None:
    environment = {**process_environment, "REDIS_URL": redis_server().url}
    plans = {lease: make_plan(f"lease {lease}", rate, 1, burst, lease=lease) for lease in (False, True)}
    found = {}
    with lease_fleet.fleet(environment) as fleet:
        for lease, plan in plans.items():
            found[lease] = outcome = fleet.run(
                processes=20, seconds=2.0, pause_seconds=pause_seconds, plan_id=plan.pk, bucket_identity=str(lease)
            )
            allowance = burst + rate * outcome.seconds
            with capsys.disabled():
                sys.stdout.write(
                    f"\n{'leased' if lease else 'exact '} {rate}/s burst {burst}: {outcome.decisions} decisions, "
                    f"admitted {outcome.admitted} of {math.floor(allowance)} ({outcome.share_of(allowance):.1%}), "
                    f"{outcome.calls_per_1000:.0f} Redis calls per 1,000"
                )
            assert outcome.admitted <= allowance
    # Generous: a busy machine asks less, and makes processes sleep on what they hold.
    assert found[True].calls_per_1000 < 0.9 * found[False].calls_per_1000
    reserve = Limit(id=1, name="l", requests=rate, period_seconds=1, burst=burst, lease=True).reserve
    assert found[True].admitted >= 0.5 * min(found[True].decisions, burst - reserve + rate * 2.0)
