"""What does a decision cost when many are made at once? By threads flat out, by threads at one pace, by coroutines."""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import redis.asyncio

from bench import ours, place, rivals, rounds
from bench.results import figure, shown, table

PING = "PING, redis-py's pool"
CHECK = "ours: limiter.check"
THREADS = (4, 16)
TASKS = 100
#: Decisions a second of all threads together, when the question is what waiting for each other costs.
PACE = 500
ROUNDS = 5

#: Decisions a second, p50 and p99 in microseconds.
Outcome = tuple[float, float, float]


def measure(here: place.Place, plan_id: int, options: argparse.Namespace) -> dict[str, Any]:
    url = here.redis_url
    attempts: dict[str, rounds.Attempt] = {PING: rivals.ping(url), CHECK: ours.checks(plan_id, name="thread")}
    attempts |= {rival.name: rival.make(url, place.REQUESTS) for rival in rivals.all_rivals()}
    content: dict[str, Any] = {}
    for count in THREADS:
        content[f"threads_{count}"] = _rounds(attempts, partial(_flat_out, threads=count, calls=1_600 // count))
    paced = {name: attempts[name] for name in (PING, CHECK)}
    content["paced"] = {
        str(count): _rounds(paced, partial(_at_a_pace, threads=count, seconds=1.0)) for count in (1, *THREADS)
    }
    content["asyncio"] = _asyncio(url, plan_id)
    return content


def _rounds(attempts: dict[str, rounds.Attempt], once: Callable[[rounds.Attempt], Outcome]) -> Any:
    """Per second, p50 and p99 of each, over interleaved rounds."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in attempts}
    for number in range(ROUNDS + 1):
        for name, attempt in attempts.items():
            outcome = once(attempt)
            if number:
                outcomes[name].append(outcome)
    return {name: _figures(each) for name, each in outcomes.items()}


def _figures(outcomes: list[Outcome]) -> dict[str, Any]:
    per_second, p50, p99 = zip(*outcomes, strict=True)
    return {"per_second": figure(per_second, digits=0), "p50_us": figure(p50), "p99_us": figure(p99)}


def _flat_out(attempt: rounds.Attempt, *, threads: int, calls: int) -> Outcome:
    took: list[float] = []

    def one(place_in_line: int, ready: threading.Barrier) -> None:
        mine = []
        ready.wait()
        for number in range(calls):
            caller = (place_in_line * calls + number) % rounds.CALLERS
            start = time.perf_counter()
            attempt(caller)
            mine.append(time.perf_counter() - start)
        took.extend(mine)

    seconds = _together(threads, one)
    return _outcome(took, seconds)


def _at_a_pace(attempt: rounds.Attempt, *, threads: int, seconds: float) -> Outcome:
    took: list[float] = []
    pause = threads / PACE

    def one(place_in_line: int, ready: threading.Barrier) -> None:
        mine = []
        ready.wait()
        began = time.perf_counter() + place_in_line / PACE  # each has its turn, as requests arrive
        for number in range(int(seconds / pause)):
            time.sleep(max(0.0, began + number * pause - time.perf_counter()))  # paced: it asks on time
            start = time.perf_counter()
            attempt((place_in_line + number * threads) % rounds.CALLERS)
            mine.append(time.perf_counter() - start)
        took.extend(mine)

    elapsed = _together(threads, one)
    return _outcome(took, elapsed)


def _together(threads: int, work: Callable[[int, threading.Barrier], None]) -> float:
    ready = threading.Barrier(threads + 1)
    started = [threading.Thread(target=work, args=(number, ready)) for number in range(threads)]
    for thread in started:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in started:
        thread.join()
    return time.perf_counter() - began


def _asyncio(url: str, plan_id: int) -> dict[str, Any]:
    outcomes: dict[str, list[Outcome]] = {}
    with asyncio.Runner() as runner:
        attempts = runner.run(_coroutines(url, plan_id))
        for number in range(ROUNDS + 1):
            for name, attempt in attempts.items():
                outcome = runner.run(_by_tasks(attempt, calls=20))
                if number:
                    outcomes.setdefault(name, []).append(outcome)
    return {name: _figures(each) for name, each in outcomes.items()}


async def _coroutines(url: str, plan_id: int) -> dict[str, rivals.AsyncAttempt]:
    client = redis.asyncio.Redis.from_url(url)
    named: dict[str, rivals.AsyncAttempt] = {
        "PING, redis.asyncio's pool": lambda _number: client.ping(),
        "ours: limiter.acheck": ours.async_checks(plan_id),
    }
    return named | rivals.async_rivals(url, place.REQUESTS)


async def _by_tasks(attempt: Callable[[int], Awaitable[object]], *, calls: int) -> Outcome:
    took: list[float] = []

    async def one(first: int) -> None:
        for number in range(first, first + calls):
            start = time.perf_counter()
            await attempt(number % rounds.CALLERS)
            took.append(time.perf_counter() - start)

    began = time.perf_counter()
    await asyncio.gather(*(one(task * calls) for task in range(TASKS)))
    return _outcome(took, time.perf_counter() - began)


def _outcome(took: list[float], seconds: float) -> Outcome:
    p50, p99 = rounds.percentiles(took, 50, 99)
    return len(took) / seconds, p50, p99


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    by_threads = [content[f"threads_{count}"] for count in THREADS]
    names = sorted(by_threads[0], key=lambda name: -float(by_threads[-1][name]["per_second"][0]))
    threads = table(
        ["", *(f"{count} threads: {what}" for count in THREADS for what in ("per second", "p50 us", "p99 us"))],
        [(name, *(cell for each in by_threads for cell in _cells(each[name]))) for name in names],
    )
    paces = {str(count): content["paced"][str(count)] for count in (1, *THREADS)}
    paced = table(
        [f"{PACE} a second", *(f"{count} threads: {what}" for count in paces for what in ("p50 us", "p99 us"))],
        [(name, *(cell for each in paces.values() for cell in _cells(each[name])[1:])) for name in (PING, CHECK)],
    )
    tasks = sorted(content["asyncio"].items(), key=lambda item: -float(item[1]["per_second"][0]))
    heads = [f"{TASKS} tasks", "per second", "p50 us", "p99 us"]
    coroutines = table(heads, [(name, *_cells(row)) for name, row in tasks])
    return {"threads": threads, "paced": paced, "asyncio": coroutines}


def _cells(row: dict[str, Any]) -> list[str]:
    return [shown(row[what], digits=0) for what in ("per_second", "p50_us", "p99_us")]


if __name__ == "__main__":
    raise SystemExit("This is a part of python -m bench.decisions")
