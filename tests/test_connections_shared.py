"""Does every caller get its own reply? Threads, forks, event loops, and calls that are interrupted half-way."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from ratelimit_app import connections
from tests.outages import redis_at

_TEXT = b"return {tonumber(ARGV[1]), tonumber(ARGV[2])}"
ECHO = connections.Script(_TEXT, hashlib.sha1(_TEXT, usedforsecurity=False).hexdigest().encode())


def echo(number: int) -> int:
    [reply] = connections.call(ECHO, [], connections.packed(number))
    return reply


async def aecho(number: int) -> int:
    [reply] = await connections.acall(ECHO, [], connections.packed(number))
    return reply


class Interrupted(BaseException):
    """What an alarm or a soft time limit raises wherever the program happens to be."""


# The exception may also come while redis-py or a socket is being made: nobody can close that one.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_out_of_a_signal_never_delivers_the_reply_of_another_call():
    armed = ended = False

    def interrupt(number, frame):
        nonlocal armed
        if armed:
            armed = False
            raise Interrupted

    def shoot() -> None:
        while not ended:
            time.sleep(random.uniform(0.0001, 0.002))
            os.kill(os.getpid(), signal.SIGUSR1)  # handled by the main thread

    before = signal.signal(signal.SIGUSR1, interrupt)
    shooter = threading.Thread(target=shoot)
    shooter.start()
    interrupted = answered = failed = 0
    try:
        for number in range(10**9):
            try:
                armed = True
                reply = echo(number)
                armed = False
            except Interrupted:
                interrupted += 1
            except connections.Unavailable:
                failed += 1
            else:
                assert reply == number
                answered += 1
            armed = False
            if interrupted >= 500 and number >= 5_000:
                break
    finally:
        ended = True
        shooter.join()
        signal.signal(signal.SIGUSR1, before)
    assert answered > 1_000
    assert failed < interrupted  # one that was interrupted harms no other call, beyond a dropped connection
    assert echo(1) == 1
    gc.collect()


def test_threads_get_their_own_replies():
    numbers, wrong = itertools.count(1), []

    def send() -> None:
        for _ in range(300):
            number = next(numbers)
            if echo(number) != number:
                wrong.append(number)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_that_end_leave_their_connections_to_others(redis_server):
    server = redis_server()
    with redis_at(server.url), server.client() as client:
        for number in range(30):
            thread = threading.Thread(target=echo, args=(number,))
            thread.start()
            thread.join()
        assert len(client.client_list()) == 2  # ours and the client that asks


_FORKING = """
import os, sys, django
django.setup()
from tests.test_connections_shared import echo
echo(0)  # a connection that both would inherit
children = []
for child in range(4):
    pid = os.fork()
    if not pid:
        for number in range(child * 1000, child * 1000 + 200):
            if echo(number) != number:
                os._exit(1)
        os._exit(0)
    children.append(pid)
right = all(echo(number) == number for number in range(9000, 9200))
statuses = [os.waitpid(pid, 0)[1] for pid in children]
sys.exit(0 if right and not any(statuses) else 1)
"""


def test_forked_processes_get_their_own_replies(process_environment):
    ran = subprocess.run([sys.executable, "-c", _FORKING], env=process_environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# --- Event loops -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [100, 400])
def test_many_tasks_get_their_own_replies_and_leave_no_connection_open(count, redis_server, wait_until):
    async def ask() -> list[int]:
        return await asyncio.gather(*(aecho(number) for number in range(count)))

    server = redis_server()
    with redis_at(server.url), server.client() as client:
        assert asyncio.run(ask()) == list(range(count))
        gc.collect()  # a connection that nobody closed warns here, and a warning is an error
        wait_until(lambda: len(client.client_list()) == 1)
    gc.collect()


async def test_a_task_cancelled_in_mid_call_harms_no_other(redis_server):
    server = redis_server()
    with redis_at(server.url):
        cancelled = 0
        for number in range(400):
            # Two at once: one finds a free connection, the other one opens its own.
            tasks = [asyncio.create_task(aecho(number)), asyncio.create_task(aecho(number))]
            for _ in range(number % 10):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            for reply in await asyncio.gather(*tasks, return_exceptions=True):
                cancelled += isinstance(reply, asyncio.CancelledError)
                assert isinstance(reply, asyncio.CancelledError) or reply == number
            assert await aecho(-number) == -number
        assert cancelled > 50
        assert await asyncio.gather(*(aecho(number) for number in range(20))) == list(range(20))
        gc.collect()  # a connection that nobody closed would warn here, and a warning is an error


def test_a_loop_that_ends_closes_its_connections(redis_server, wait_until):
    server = redis_server()
    with redis_at(server.url), server.client() as client:
        for _ in range(3):
            asyncio.run(self_test())
        gc.collect()
        wait_until(lambda: len(client.client_list()) == 1)


async def self_test() -> None:
    await asyncio.gather(*(aecho(number) for number in range(10)))


def test_a_loop_that_ends_with_calls_in_flight_ends_cleanly(redis_server, wait_until):
    server = redis_server()

    async def leave() -> None:
        await aecho(1)
        for number in range(10):
            asyncio.get_running_loop().create_task(aecho(number))
        await asyncio.sleep(0)

    with redis_at(server.url), server.client() as client:
        asyncio.run(leave())
        gc.collect()
        wait_until(lambda: len(client.client_list()) == 1)


def test_loops_in_threads_do_not_share_connections():
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(5):
                asyncio.run(self_test())
        except BaseException as failure:
            wrong.append(failure)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- Connections that the server closed ----------------------------------------------------------------


def test_an_idle_connection_that_the_server_closed_is_replaced_unnoticed(redis_server):
    server = redis_server()
    with redis_at(server.url), server.client() as client:
        echo(1)
        client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.06)  # a connection used a moment ago is trusted for 50 ms
        assert echo(2) == 2


async def test_an_idle_connection_that_the_server_closed_is_replaced_unnoticed_in_a_loop(redis_server):
    server = redis_server()
    with redis_at(server.url), server.client() as client:
        await aecho(1)
        client.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.06)
        assert await aecho(2) == 2


@pytest.mark.parametrize("turns", range(5))
async def test_a_loop_that_is_busy_is_no_slow_server(turns, redis_server):
    with redis_at(redis_server().url, TIMEOUT_SECONDS=0.05):
        await aecho(0)
        asking = [asyncio.create_task(aecho(number)) for number in range(50)]
        for _ in range(turns):  # from before a question is sent until its reply is there
            await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251 - that is what is tested
        assert await asyncio.gather(*asking) == list(range(50))
