"""How long do answers take while Redis is gone? Before the breaker opens, while it is open, and until it closes.

    python -m bench.outage [--calls 3000]

With the timeouts that are the defaults. "refusing" is a port where nobody listens, "stalled" a server that
is stopped in its tracks: connections open, nothing answers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from bench import alone, place, rounds
from bench.results import figure, shown, table

#: What a request gets when Redis cannot decide.
CHOICES = ("local", "open", "closed")
KINDS = ("refusing", "stalled")
ROUNDS = 5
_LONGEST_OUTAGE_SECONDS = 30.0


def main() -> None:
    alone.run(
        "outage", "How long do answers take while Redis is gone?", options=_options, measure=measure, tables=tables
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=3_000)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    plans = {choice: place.plan(choice, on_failure=choice, requests=1_000_000) for choice in CHOICES}
    kinds = KINDS if here.server_pid else KINDS[:1]  # somebody else's server is not ours to stall
    outcomes: dict[str, list[dict[str, float]]] = {f"{kind}, {choice}": [] for kind in kinds for choice in CHOICES}
    for _ in range(ROUNDS):
        for name, outcome in outcomes.items():
            kind, _, choice = name.partition(", ")
            outcome.append(_outage(here, kind, plans[choice], options.calls))
    return {
        name: {what: figure(each[what] for each in outcome) for what in outcome[0]}
        for name, outcome in outcomes.items()
    }


def _outage(here: place.Place, kind: str, plan_id: int, calls: int) -> dict[str, float]:
    from ratelimit_app import limiter, testing
    from tests import outages

    testing.reset()
    (who,) = place.callers(plan_id, 1, name="outage")
    with place.limiter_at(here.redis_url, TIMEOUT_SECONDS=0.005, CONNECT_TIMEOUT_SECONDS=0.020):
        limiter.check(who)
        with _gone(here, kind):
            before = []
            while outages.redis_is_asked():
                before.append(_timed(who))
            opened = [_timed(who) for _ in range(calls)]
        back_at = time.perf_counter()
        while limiter.check(who).source != "redis":
            if time.perf_counter() - back_at > _LONGEST_OUTAGE_SECONDS:
                raise RuntimeError("limiting did not resume")
            time.sleep(0.001)  # how exactly the moment is measured
        resumed = time.perf_counter() - back_at
    p50, p99, most = rounds.percentiles(opened, 50, 99, 100)
    return {
        "before": len(before),
        "slowest_before_ms": max(before) * 1e3,
        "p50_us": p50,
        "p99_us": p99,
        "most_us": most,
        "resumed_seconds": resumed,
    }


@contextlib.contextmanager
def _gone(here: place.Place, kind: str) -> Iterator[None]:
    if kind == "refusing":
        with place.limiter_at("redis://127.0.0.1:1/0", TIMEOUT_SECONDS=0.005, CONNECT_TIMEOUT_SECONDS=0.020):
            yield
        return
    assert here.server_pid is not None
    os.kill(here.server_pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(here.server_pid, signal.SIGCONT)


def _timed(who: Any) -> float:
    from ratelimit_app import limiter

    start = time.perf_counter()
    limiter.check(who)
    return time.perf_counter() - start


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    heads = [
        "Redis, limit",
        "answers before it opens",
        "slowest, ms",
        "open: p50 us",
        "p99 us",
        "slowest us",
        "back after, s",
    ]
    rows = [
        (
            name,
            shown(row["before"], digits=0),
            shown(row["slowest_before_ms"]),
            *(shown(row[what], digits=0) for what in ("p50_us", "p99_us", "most_us")),
            shown(row["resumed_seconds"], digits=2),
        )
        for name, row in content.items()
        if name != "measured"
    ]
    return {"open": table(heads, rows)}


if __name__ == "__main__":
    main()
