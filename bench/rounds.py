"""How long does a call take? Timed in interleaved rounds, so that what else the machine does meets everybody alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.place import Place
from bench.results import Figure, figure

#: Callers take turns, so that nobody is refused and no single bucket is what is measured.
CALLERS = 1_000

#: Asks for caller number i; says whether it was allowed.
Attempt = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one contender."""

    p50_us: float
    p99_us: float
    seconds: float
    calls: int
    #: CPU time of this process per call, its background threads included; and of the server.
    client_us: float
    server_us: float
    #: How often the server had to read from a socket, per call.
    trips: float


def interleaved(place: Place, attempts: dict[str, Attempt], *, rounds: int, calls: int) -> dict[str, list[Sample]]:
    """So many rounds of so many calls of each, in an order that rotates."""
    samples: dict[str, list[Sample]] = {name: [] for name in attempts}
    names = list(attempts)
    with place.client() as watcher:
        for number in range(rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                samples[name].append(_sample(watcher, attempts[name], calls=calls, first=number * calls))
    return samples


def warmed(attempts: dict[str, Attempt]) -> dict[str, Attempt]:
    """The same, once every caller was there: what happens once per caller is not what a decision costs."""
    for attempt in attempts.values():
        for caller in range(CALLERS):
            attempt(caller)
    return attempts


def figures(samples: list[Sample], references: list[Sample]) -> dict[str, Figure]:
    """The figures of a contender; "ratio" is to the p50 of the reference in the same round."""
    return {
        "p50_us": figure(s.p50_us for s in samples),
        "p99_us": figure(s.p99_us for s in samples),
        "ratio": figure(s.p50_us / r.p50_us for s, r in zip(samples, references, strict=True)),
        "per_second": figure((s.calls / s.seconds for s in samples), digits=0),
        "client_us": figure(s.client_us for s in samples),
        "server_us": figure(s.server_us for s in samples),
        "trips": figure((s.trips for s in samples), digits=2),
    }


def percentiles(took: list[float], *wanted: float) -> list[float]:
    """Percentiles, in microseconds, of times in seconds."""
    ordered = sorted(took)
    return [ordered[min(len(ordered) - 1, int(len(ordered) * each / 100))] * 1e6 for each in wanted]


@contextmanager
def same_core(place: Place) -> Iterator[None]:
    """This process and the server on one core: the cost of software alone, without waking another core."""
    if place.server_pid is None:  # somebody else's stays where it is
        yield
        return
    pids, cores = (0, place.server_pid), os.sched_getaffinity(0)
    for pid in pids:
        os.sched_setaffinity(pid, {max(cores)})
    try:
        yield
    finally:
        for pid in pids:
            os.sched_setaffinity(pid, cores)


def work_of(watcher: Any) -> tuple[float, int]:
    """Seconds of CPU that the server has used, and the number of times it read from a client."""
    cpu, stats = watcher.info("cpu"), watcher.info("stats")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"], stats["total_reads_processed"]


def _sample(watcher: Any, attempt: Attempt, *, calls: int, first: int) -> Sample:
    clock = time.perf_counter
    took = []
    server_before, reads_before = work_of(watcher)
    client_before, began = time.process_time(), clock()
    for number in range(first, first + calls):
        caller = number % CALLERS
        start = clock()
        attempt(caller)
        took.append(clock() - start)
    seconds, client = clock() - began, time.process_time() - client_before
    server_after, reads_after = work_of(watcher)
    p50, p99 = percentiles(took, 50, 99)
    return Sample(
        p50_us=p50,
        p99_us=p99,
        seconds=seconds,
        calls=calls,
        client_us=client / calls * 1e6,
        server_us=(server_after - server_before) / calls * 1e6,
        trips=(reads_after - reads_before - 2) / calls,  # two of them are ours
    )
