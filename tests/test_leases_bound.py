"""Do leases stay within the bound, in any interval and over a fleet?"""

from __future__ import annotations

import math
import random
import sys
from fractions import Fraction

import pytest

from ratelimit_app import buckets
from ratelimit_app.leases import keeper as keeper_module
from ratelimit_app.leases import lease as lease_module
from ratelimit_app.limits import LEASE_TICKS, TICKS_PER_SECOND, Caller, Decision, Limit
from tests import lease_fleet
from tests.leasing import CALLER


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
