"""Does a Redis that forgot its buckets hand every caller a full one? Not while a gateway remembers."""

from __future__ import annotations

import threading
import time

import pytest

from ratelimit_app import debts, denials, fallback, limiter
from ratelimit_app.limits import TICKS_PER_SECOND
from tests import stored
from tests.outages import redis_at

BURST = 20
HANG_SECONDS = 30


@pytest.fixture
def server(redis_server):
    server = redis_server()
    with redis_at(server.url):
        yield server


@pytest.fixture
def drained(make_plan, make_key, server):
    """A caller who has spent all of one token an hour, on a gateway that has said that it lives."""
    caller = make_key(make_plan("Api", 1, 3_600, BURST))[0].as_caller()
    fallback.beat()
    assert [limiter.check(caller).allowed for _ in range(BURST + 1)] == [True] * BURST + [False]
    return caller


def ask(caller):
    denials.forget()  # as a second later
    return limiter.check(caller)


def doubts():
    return [thread for thread in threading.enumerate() if thread.name == "ratelimit_app.doubt"]


def flushed(server):
    with server.client() as client:
        client.flushall()


def restarted(server):
    server.restart()
    time.sleep(0.06)  # a connection is trusted for 50 ms after its last use


@pytest.mark.parametrize("forget", [flushed, restarted])
def test_a_drained_caller_gets_a_request_or_two_and_not_a_burst(forget, server, drained, wait_until):
    forget(server)
    first = ask(drained)
    assert (first.allowed, first.source) == (True, "redis")  # who could have known?
    wait_until(lambda: limiter.peek(drained).remaining == 0)
    assert not ask(drained).allowed


@pytest.mark.parametrize("forget", [flushed, restarted])
def test_the_heartbeat_notices_before_anybody_asks(forget, server, drained):
    forget(server)
    fallback.beat()
    fallback.settle(seconds=HANG_SECONDS)
    assert not ask(drained).allowed


def test_it_is_told_before_it_decides_again_after_an_outage(make_plan, make_key, server, wait_until):
    caller = make_key(make_plan("Api", 1, 3_600, BURST, on_failure="open"))[0].as_caller()
    fallback.beat()
    for _ in range(BURST):
        limiter.check(caller)
    server.kill()
    assert {limiter.check(caller).source for _ in range(5)} == {"unchecked"}
    server.start()
    wait_until(lambda: not limiter._process_breaker.is_open, seconds=HANG_SECONDS)
    assert not limiter.check(caller).allowed


def test_a_replica_that_missed_the_last_moments_is_told_them(make_plan, make_key, server):
    caller = make_key(make_plan("Api", 1, 3_600, BURST))[0].as_caller()
    fallback.beat()
    limiter.check(caller)
    with server.client() as client:
        client.save()  # what it knows after the failover
    for _ in range(9):
        limiter.check(caller)
    time.sleep(0.002)  # the next sign of life is another millisecond
    fallback.beat()
    server.restart()
    time.sleep(0.06)  # a connection that lay idle for so long is looked at before it is used
    assert limiter.peek(caller).remaining == BURST - 1
    fallback.beat()
    fallback.settle(seconds=HANG_SECONDS)
    assert limiter.peek(caller).remaining == BURST - 10


def test_what_somebody_else_gave_back_is_not_taken_again(server, drained, wait_until):
    with server.client() as client:
        client.delete(stored.key(limiter.peek(drained).weighed[0].bucket))  # a reset by another process
    assert ask(drained).allowed
    wait_until(lambda: not doubts())
    fallback.settle(seconds=HANG_SECONDS)
    assert limiter.peek(drained).remaining == BURST - 1


def test_what_this_process_gave_back_is_not_taken_again(server, drained):
    limiter.reset(drained)
    taken = limiter.check(drained)
    limiter.refund(taken)
    flushed(server)
    fallback.beat()
    fallback.settle(seconds=HANG_SECONDS)
    assert limiter.peek(drained).remaining == BURST


def test_several_gateways_may_tell_it_the_same(server, drained):
    bucket = limiter.peek(drained).weighed[0].bucket
    now = limiter.check(drained).decided_ticks
    flushed(server)
    for seconds in (100, 50, 100):
        debts.tell({bucket: now + seconds * 3_600 * TICKS_PER_SECOND, b"another": now - 1})
    with server.client() as client:
        assert int(stored.read(client, bucket)) == now + 100 * 3_600 * TICKS_PER_SECOND
        assert client.pttl(stored.key(bucket)) > 0
        assert not client.exists("another")


def test_a_spoilt_bucket_keeps_no_other_from_being_told(server, drained):
    bucket = limiter.peek(drained).weighed[0].bucket
    now = limiter.check(drained).decided_ticks
    with server.client() as client:
        client.rpush("spoilt", "not a bucket")
        client.set("text", "not a number")
        later = now + 1_000 * TICKS_PER_SECOND
        debts.tell({b"spoilt": later, b"text": later, bucket: now + 10**9 * TICKS_PER_SECOND})
        assert client.lrange("spoilt", 0, -1) == [b"not a bucket"]
        assert client.get("text") == b"not a number"
        assert int(stored.read(client, bucket)) == now + 10**9 * TICKS_PER_SECOND


def test_the_buckets_asked_last_are_remembered(monkeypatch, make_plan, make_key, server):
    monkeypatch.setattr(debts, "_REMEMBERED", 2)
    plan = make_plan("Api", 1, 3_600, BURST)
    one, two, three = [make_key(plan)[0].as_caller() for _ in range(3)]
    fallback.beat()
    for caller in (one, two, one, three):
        limiter.check(caller)
    flushed(server)
    fallback.beat()
    fallback.settle(seconds=HANG_SECONDS)
    assert [limiter.peek(caller).remaining for caller in (one, two, three)] == [BURST - 2, BURST, BURST - 1]


def test_a_server_that_goes_away_meanwhile_is_told_later(server, drained):
    flushed(server)
    fallback.beat()
    server.kill()
    fallback.settle(seconds=HANG_SECONDS)
    server.start()
    fallback.settle(seconds=HANG_SECONDS)
    assert not ask(drained).allowed
