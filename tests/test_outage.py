"""What do callers meet while Redis cannot decide, and when it is back?"""

import asyncio
import os
import threading
import time

import pytest

from ratelimit_app import breaker, connections, fallback, limiter, plan_cache
from ratelimit_app.limits import Caller, Limit
from tests import stored
from tests.outages import REFUSING, redis_at

STALLED_SECONDS = 0.05
"""What one call to a stalled server costs."""


@pytest.fixture
def server(redis_server):
    return redis_server()


@pytest.fixture
def outage(server):
    """A server that can be stalled, with short timeouts, and a fleet of two processes."""
    with redis_at(server.url, TIMEOUT_SECONDS=STALLED_SECONDS, CONNECT_TIMEOUT_SECONDS=STALLED_SECONDS, FLEET_SIZE=2):
        yield server


@pytest.fixture
def api(make_plan, make_key):
    """A caller whose limit is enforced from memory: 60 a minute, 20 at once."""
    caller = make_key(make_plan("Api", 60, 60, 20, on_failure="local"))[0].as_caller()
    plan_cache.table()  # as a process that has served before
    return caller


def is_closed():
    return not limiter._process_breaker.is_open


def script_calls(server):
    with server.client() as client:
        return client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


def test_each_process_enforces_its_share_from_memory(outage, api):
    limiter.check(api)
    outage.pause()
    decisions = [limiter.check(api) for _ in range(30)]
    assert {decision.source for decision in decisions} == {"local"}
    assert sum(decision.allowed for decision in decisions) == 10  # half of 20, for two processes
    assert decisions[-1].retry_after_seconds == 2  # one token a second, of which this process has half


def test_an_open_breaker_makes_no_call_and_the_requests_no_wait(outage, api, wait_until):
    limiter.check(api)
    outage.pause()
    for _ in range(breaker.FAILURES_IN_A_ROW):
        limiter.check(api)
    assert limiter._process_breaker.is_open
    began = time.monotonic()
    for _ in range(200):
        limiter.check(api)
    assert time.monotonic() - began < 200 * STALLED_SECONDS / 2  # nowhere near what 200 timeouts take
    outage.resume()
    wait_until(is_closed, seconds=3)
    before = script_calls(outage)
    limiter.check(api)
    assert script_calls(outage) == before + 1


def test_limiting_resumes_by_itself(outage, api, wait_until):
    outage.kill()
    assert [limiter.check(api).source for _ in range(5)] == ["local"] * 5
    outage.start()
    wait_until(is_closed, seconds=5)
    assert limiter.check(api).source == "redis"


def test_what_memory_granted_is_charged_when_redis_is_back(outage, api, wait_until):
    limiter.check(api)
    outage.kill()
    granted = sum(limiter.check(api).allowed for _ in range(30))
    outage.start()  # it has forgotten everything
    wait_until(is_closed, seconds=5)
    remaining = limiter.peek(api).remaining
    assert remaining is not None
    assert remaining <= 20 - granted + 3  # what came back meanwhile


def test_one_failure_between_successes_opens_nothing(outage, api):
    for _ in range(5):
        outage.pause()
        assert limiter.check(api).source == "local"
        outage.resume()
        assert limiter.check(api).source == "redis"
    assert is_closed()


def test_a_spoilt_bucket_opens_nothing(outage, api):
    name = stored.key(limiter.peek(api).weighed[0].bucket)
    with outage.client() as client:
        client.rpush(name, "not a bucket")
        client.expire(name, 60)
    assert [limiter.check(api).failure for _ in range(10)] == ["wrongtype"] * 10
    assert is_closed()


def test_the_choice_is_made_per_limit_in_the_same_outage(make_plan, make_key):
    plan = make_plan("Api", 60, 60, 20, on_failure="open")
    plan.limits.create(name="login", scope="login", requests=5, period_seconds=60, burst=5, on_failure="closed")
    caller = make_key(plan)[0].as_caller()
    with redis_at(REFUSING):
        assert limiter.check(caller).allowed
        login = limiter.check(caller, scope="login")
    assert (login.allowed, login.source) == (False, "unchecked")
    assert login.refused_by is not None
    assert login.refused_by.name == "login"


def test_a_limit_in_shadow_never_hurts_a_caller(make_plan, make_key):
    plan = make_plan("Api", 1, 60, 1, on_failure="local", mode="shadow")
    plan.limits.create(name="c", requests=1, period_seconds=60, burst=1, on_failure="closed", mode="shadow")
    caller = make_key(plan)[0].as_caller()
    with redis_at(REFUSING):
        assert all(limiter.check(caller).allowed for _ in range(10))


async def test_async_code_meets_the_same(api, outage, settings):
    outage.pause()
    async with asyncio.timeout(10):
        decisions = await asyncio.gather(*(limiter.acheck(api) for _ in range(20)))
    assert {decision.source for decision in decisions} == {"local"}
    assert sum(decision.allowed for decision in decisions) == 10
    outage.resume()


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"])
def test_the_shares_of_a_fleet_are_together_no_more_than_the_limit(algorithm):
    limit = Limit(id=1, name="x", requests=100, period_seconds=60, burst=40, algorithm=algorithm)
    share = fallback.share_of(limit, 8)
    assert 8 * share.capacity <= limit.capacity
    assert 8 / share.interval_ticks <= 1 / limit.interval_ticks or not limit.is_bucket
    assert fallback.share_of(limit, 1000).capacity == 1


def test_gateways_count_each_other_by_their_heartbeats(redis_client, prefix):
    fallback.beat()
    assert fallback.fleet_size() == 1
    redis_client.zadd(f"{prefix}:gateways", {"another": int(time.time())})
    redis_client.zadd(f"{prefix}:gateways", {"gone": int(time.time()) - 60})
    fallback.beat()
    assert fallback.fleet_size() == 2
    assert redis_client.ttl(f"{prefix}:gateways") > 0


def test_the_setting_overrides_what_was_counted(configure):
    fallback.beat()
    configure(FLEET_SIZE=40)
    assert fallback.fleet_size() == 40


def test_a_caller_of_one_process_is_not_let_through_for_ever(outage):
    """With no buckets at all in Redis and memory alone, the bound is the share's own."""
    limit = Limit(id=9, name="x", requests=600, period_seconds=60, burst=40)
    who = Caller(key_id=1, plan_id=1, bucket_identity="x")
    began = time.monotonic()
    allowed = sum(
        fallback.decide((limit,), who, cost=1, patience_ticks=0, failure="test").allowed for _ in range(2_000)
    )
    assert allowed <= 20 + 5 * (time.monotonic() - began) + 1


def test_the_breaker_says_why_it_is_open():
    stuck = breaker.Breaker(probe=lambda node: None)
    stuck.stop()
    for _ in range(breaker.FAILURES_IN_A_ROW):
        stuck.failed(connections.Unavailable("timeout"))
    with pytest.raises(breaker.Open) as failure:
        stuck.demand_closed()
    assert failure.value.reason == "timeout"


def test_a_forked_process_is_a_gateway_of_its_own(redis_client, prefix):
    fallback.beat()
    child = os.fork()
    if child == 0:
        try:
            fallback.beat()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    fallback.beat()
    assert fallback.fleet_size() == 2


def test_what_a_single_failure_granted_is_charged_too(outage, api):
    for _ in range(2):
        outage.pause()
        assert limiter.check(api).source == "local"
        outage.resume()
        assert limiter.check(api).source == "redis"
    before = limiter.peek(api).remaining
    fallback.settle()
    after = limiter.peek(api).remaining
    assert before is not None
    assert after is not None
    assert before - after in (1, 2)  # two were granted; a token may have come back
    fallback.settle()
    assert limiter.peek(api).remaining in (after, after + 1)  # once


def test_a_full_server_stays_unasked_though_it_answers(make_plan, make_key, redis_server):
    caller = make_key(make_plan("Api", 60, 60, 20))[0].as_caller()
    server = redis_server("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    with redis_at(server.url):
        for _ in range(breaker.FAILURES_IN_A_ROW):
            assert limiter.check(caller).failure == "oom"
        opened_at = limiter._process_breaker.opened_at
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            assert limiter.check(caller).source == "local"
        assert limiter._process_breaker.is_open
        assert limiter._process_breaker.opened_at == opened_at


def test_callers_are_told_of_the_limit_and_not_of_the_share(outage, api):
    outage.pause()
    decisions = [limiter.check(api) for _ in range(12)]
    assert decisions[-1].refused_by is not None
    assert (decisions[-1].refused_by.requests, decisions[-1].refused_by.period_seconds) == (60, 60)
    more_than_the_share = limiter.check(api, cost=15)
    assert (more_than_the_share.allowed, more_than_the_share.retry_after_seconds) == (False, 1)
    assert limiter.check(api, cost=21).retry_after_seconds is None  # never, with Redis or without


def test_a_platforms_cap_is_shared_whole():
    cap = Limit(id=1, name="cap", requests=6_000, period_seconds=60, burst=100, per="everyone", shards=10)
    assert {fallback.share_of(part, 4).capacity for part in cap.parts} == {25}


def test_two_threads_may_settle_at_once(outage, api):
    """The breaker's, on recovery, and the watching one."""
    process = fallback._process
    for number in range(200):
        process.owing[(Limit(id=number, name="x", requests=1, period_seconds=60, burst=1), "key", "x")] = api
    failures: list[BaseException] = []

    def settle():
        try:
            fallback.settle(seconds=5)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=settle) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not process.owing


def test_a_cache_that_is_not_there_is_a_named_failure_too(api, configure):
    configure(CACHE="nowhere")
    decision = limiter.check(api)
    assert (decision.source, decision.failure) == ("local", "misconfigured")
    with pytest.raises(connections.Unavailable):
        fallback.beat()
    configure(CACHE="ratelimit")
