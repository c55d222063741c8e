"""Does one caller who floods slow the others down? Others ask at a pace while a process floods with one key.

    python -m bench.hot_key [--rounds 6]

Two gateways: one serves the others and is timed, the other serves the flood, flat out. On a machine with
few cores the flood takes time from everybody by computing alone; so there is a process that only computes, to
compare with, and a flood that asks Redis each time, as it would be if refusals were not remembered.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from bench import alone, gateways, place, rounds
from bench.results import figure, shown, table

IDLE, COMPUTING, KNOWN, ASKING = "nobody", "a process that computes", "one key, known to be out", "one key, Redis asked"
OTHERS, OTHERS_PER_SECOND, SECONDS = 100, 400.0, 1.5


def main() -> None:
    alone.run("hot_key", "Does one caller who floods slow others?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=6)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    plan_id = place.plan("default")
    others = place.callers(plan_id, OTHERS, name="other")
    (abuser,) = place.callers(place.plan("small", requests=10), 1, name="abuser")
    floods: dict[str, Callable[[int], object] | None] = {
        IDLE: None,
        COMPUTING: lambda number: sum(range(1_000)),
        KNOWN: lambda number: _check(abuser),
        ASKING: lambda number: _asking(abuser),
    }
    outcomes: dict[str, list[dict[str, float]]] = {name: [] for name in floods}
    for _ in range(options.rounds):
        for name, flood in floods.items():
            outcomes[name].append(_once(others, flood))
    idle = outcomes[IDLE]
    return {
        name: {
            **{what: figure(each[what] for each in outcome) for what in ("p50_us", "p99_us", "flood_per_second")},
            **{
                f"{what}_ratio": figure(each[what] / calm[what] for each, calm in zip(outcome, idle, strict=True))
                for what in ("p50_us", "p99_us")
            },
        }
        for name, outcome in outcomes.items()
    }


def _once(others: list[Any], flood: Callable[[int], object] | None) -> dict[str, float]:
    def work(number: int, begin: gateways.Begin) -> Any:
        if number == 1:
            assert flood is not None
            flood(0)
            return gateways.paced(begin(), SECONDS, 0, flood)
        took: list[float] = []

        def ask(count: int) -> None:
            start = time.perf_counter()
            _check(others[count % OTHERS])
            took.append(time.perf_counter() - start)

        ask(0)
        took.clear()
        gateways.paced(begin(), SECONDS, OTHERS_PER_SECOND, ask)
        return rounds.percentiles(took, 50, 99)

    (p50, p99), *flooded = gateways.run(1 if flood is None else 2, work)
    return {"p50_us": p50, "p99_us": p99, "flood_per_second": sum(flooded) / SECONDS}


def _check(who: Any) -> object:
    from ratelimit_app import limiter

    return limiter.check(who)


def _asking(who: Any) -> object:
    from ratelimit_app import denials

    denials.forget()
    return _check(who)


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    heads = ["who floods", "a second", "others: p50 us", "p99 us", "p50, x idle", "p99, x idle"]
    rows = [
        (
            name,
            *(shown(row[what], digits=0) for what in ("flood_per_second", "p50_us", "p99_us")),
            *(shown(row[what], digits=2) for what in ("p50_us_ratio", "p99_us_ratio")),
        )
        for name, row in ((name, content[name]) for name in (IDLE, COMPUTING, KNOWN, ASKING))
    ]
    return {"others": table(heads, rows)}


if __name__ == "__main__":
    main()
