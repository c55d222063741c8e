"""Who holds which tokens, and do the unused ones come back?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import warnings

import pytest

from ratelimit_app import buckets, leases
from ratelimit_app.leases import keeper as keeper_module
from ratelimit_app.limits import Caller, Limit
from tests import leasing
from tests.leasing import CALLER, SLOW, left

asked = pytest.fixture(leasing.asked)
still = pytest.fixture(leasing.still)


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
