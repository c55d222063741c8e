"""Does a fleet hold the bound, and use it? 40 gateway processes ask for the same callers, on one server and a cluster.

    python -m bench.fleet [--gateways 40] [--seconds 5] [--cluster URL]

Moments are those of Redis, which come with each decision. "over exact" is what was admitted, in parts of what one
exact bucket admits when it is asked at the same moments; "most over" looks at every interval of the run, from any
admitted request to any later one, and says by how many tokens the worst went over burst + rate * its length.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from typing import Any

from bench import alone, gateways, place
from bench.results import table

#: Requests a second and burst of each caller's limit, and how much of the rate all gateways together ask for.
LOADS = [(10, 10, 4.0), (100, 100, 2.0), (100, 20, 2.0), (100, 100, 0.8)]
TICKS_PER_SECOND = 10_000_000
#: On a cluster they live on different nodes.
CALLERS = 6


def main() -> None:
    alone.run("fleet", "Does a fleet hold the bound?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gateways", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--cluster", metavar="URL", help="a running cluster, as LOCATION would name it")


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    rows = [_fleet(f"one server {i}", "one server", load, options) for i, load in enumerate(LOADS)]
    if options.cluster:
        with place.limiter_at(options.cluster):
            rows += [_fleet(f"cluster {i}", "cluster", load, options) for i, load in enumerate(LOADS)]
    return {"gateways": options.gateways, "rows": rows}


def _fleet(name: str, where: str, load: tuple[int, int, float], options: argparse.Namespace) -> dict[str, Any]:
    rate, burst, asked_of_rate = load
    plan_id = place.plan(name, requests=rate, period_seconds=1, burst=burst)
    who = place.callers(plan_id, CALLERS, name=name)
    per_second = CALLERS * rate * asked_of_rate / options.gateways

    def work(number: int, begin: gateways.Begin) -> Any:
        from ratelimit_app import limiter

        asked: list[list[tuple[int, bool]]] = [[] for _ in range(CALLERS)]
        sources: Counter[str] = Counter()

        def ask(count: int) -> None:
            caller = (number + count) % CALLERS
            decision = limiter.check(who[caller])
            asked[caller].append((decision.decided_ticks, decision.allowed))
            sources[decision.source] += 1

        limiter.peek(who[0])  # opens the connection, reads the plans
        in_turn = number / options.gateways / per_second  # as requests arrive
        gateways.paced(begin() + in_turn, options.seconds, per_second, ask)
        return {"asked": asked, "sources": sources}

    reports = gateways.run(options.gateways, work)
    sources: Counter[str] = Counter()
    for report in reports:
        sources.update(report["sources"])
    by_caller = [sorted(tuple(each) for r in reports for each in r["asked"][caller]) for caller in range(CALLERS)]
    admitted = sum(allowed for asked in by_caller for _tick, allowed in asked)
    return {
        "where": where,
        "rate": rate,
        "burst": burst,
        "wanted_of_rate": asked_of_rate,
        "asked_per_second": round(sources.total() / options.seconds),
        "decided": dict(sources),
        "admitted": admitted,
        "refused": sources.total() - admitted,
        "over_exact": round(admitted / sum(_exact([t for t, _ in each], rate, burst) for each in by_caller), 5),
        "most_over": max(_most_over([t for t, allowed in each if allowed], rate, burst) for each in by_caller),
    }


def _exact(ticks: list[int], rate: int, burst: int) -> int:
    """How many of these one bucket admits that knows nothing but numbers."""
    admitted, debt, before = 0, 0.0, ticks[0]
    for tick in ticks:
        debt, before = max(0.0, debt - rate * (tick - before) / TICKS_PER_SECOND), tick
        if debt + 1 <= burst + 1e-9:
            admitted, debt = admitted + 1, debt + 1
    return admitted


def _most_over(ticks: list[int], rate: int, burst: int) -> int:
    """By how many tokens the worst interval went over burst + rate * its length; 0 when none did."""
    most, debt, before = 0.0, 0.0, ticks[0]
    for tick in ticks:
        debt, before = max(0.0, debt - rate * (tick - before) / TICKS_PER_SECOND) + 1, tick
        most = max(most, debt - burst)
    return math.ceil(most - 1e-6)


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    numbers = ("rate", "burst", "wanted_of_rate", "asked_per_second", "admitted", "refused")
    heads = ["", "rate/s", "burst", "wanted, of it", "asked/s", *numbers[4:], "over exact", "most over, tokens"]
    rows = [
        (row["where"], *(f"{row[each]:,}" for each in numbers), f"{row['over_exact']:.2%}", row["most_over"])
        for row in content["rows"]
    ]
    return {"bound": table(heads, rows)}


if __name__ == "__main__":
    main()
