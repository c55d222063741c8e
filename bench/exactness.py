"""How much passes, in parts of what may? With clocks that differ, flat out, paced, and across a window's edge.

    python -m bench.exactness [--processes 4] [--seconds 1]

100 a minute for one caller, everybody on the same server. "over" is what was admitted over burst + rate * T; what
windows promise is less than that, so a window may well be below 1, and is at its edge. Half of the processes
have a clock that is ahead. Time is changed in Python, before a limiter is imported that might take hold of it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench import alone, gateways, place, rivals
from bench.results import table
from bench.rounds import Attempt

REQUESTS = 100
SKEWS_MS = (0, 50, 500)
#: Of all processes together, in the paced runs.
PER_SECOND = 120.0
OURS = "ours: limiter.check"
#: Before the edge and after it: so many requests each.
AT_THE_EDGE = 2 * REQUESTS
SECONDS_BEFORE = 3.0

#: Each run needs a caller with a full bucket.
_fresh = itertools.count()


def main() -> None:
    alone.run("exactness", "How much passes?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.0)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    plan_id = place.plan("exact", requests=REQUESTS)

    def ours(url: str, requests: int) -> Attempt:
        from ratelimit_app import limiter
        from ratelimit_app.limits import Caller

        return lambda number: limiter.check(Caller(plan_id=plan_id, bucket_identity=f"exact{number}")).allowed

    makers: dict[str, Callable[[str, int], Attempt]] = {OURS: ours}
    makers |= {each.name: each.make for each in rivals.all_rivals() if "DRF throttle" not in each.name}
    rows: dict[str, dict[str, float]] = {name: {} for name in makers}
    for skew in SKEWS_MS:
        for name, make in makers.items():
            (over,) = _over(here, [make], options.processes, skew, seconds=options.seconds, per_second=0)
            rows[name][f"flat_out_{skew}"] = over
        paced = _over(here, list(makers.values()), options.processes, skew, seconds=3.0, per_second=PER_SECOND)
        for name, over in zip(makers, paced, strict=True):
            rows[name][f"paced_{skew}"] = over
    for name, over in zip(makers, _at_the_edge(here, makers), strict=True):
        rows[name]["edge"] = over
    return {"rows": rows, "processes": options.processes}


def _over(
    here: place.Place, makers: list[Any], processes: int, skew_ms: int, *, seconds: float, per_second: float
) -> list[float]:
    """For each maker, what so many processes of it were admitted; all of them at once."""
    caller = next(_fresh)

    def work(number: int, begin: gateways.Begin) -> Any:
        if number % 2:
            _go_ahead(skew_ms / 1_000)
        attempt = makers[number // processes](here.redis_url, REQUESTS)
        attempt(-1 - number)
        admitted = 0

        def ask(_count: int) -> None:
            nonlocal admitted
            admitted += bool(attempt(caller))

        first = begin()
        gateways.paced(first, seconds, per_second / processes, ask)
        return {"admitted": admitted, "first": first, "last": time.monotonic()}

    reports = gateways.run(len(makers) * processes, work)
    overs = []
    for start in range(0, len(reports), processes):
        its = reports[start : start + processes]
        elapsed = max(each["last"] for each in its) - its[0]["first"]
        overs.append(_part(sum(each["admitted"] for each in its), elapsed))
    return overs


def _at_the_edge(here: place.Place, makers: dict[str, Callable[[str, int], Attempt]]) -> list[float]:
    """Right before a window ends, and right after: what somebody gets who knows where the edge is."""
    caller = next(_fresh)

    def work(number: int, begin: gateways.Begin) -> Any:
        name, make = list(makers.items())[number]
        attempt = make(here.redis_url, REQUESTS)
        begin()
        edge = _edge(name, caller)
        attempt(caller)
        time.sleep(max(0.0, edge - SECONDS_BEFORE - time.time()))  # to just before the edge
        first, admitted = time.monotonic(), 0
        for _ in range(AT_THE_EDGE):
            admitted += bool(attempt(caller))
        time.sleep(max(0.0, edge + 0.05 - time.time()))  # to just behind it
        for _ in range(AT_THE_EDGE):
            admitted += bool(attempt(caller))
        return _part(admitted, time.monotonic() - first)

    return [float(over) for over in gateways.run(len(makers), work)]


def _edge(name: str, caller: int) -> float:
    """When the window ends: a period after the first request, which is next; only django-ratelimit's stands still."""
    if name == "django-ratelimit":
        from django_ratelimit.core import _get_window

        edge = 1.0 + float(_get_window(str(caller), place.PERIOD_SECONDS))
        return edge if edge - time.time() > SECONDS_BEFORE else edge + place.PERIOD_SECONDS
    return time.time() + place.PERIOD_SECONDS


def _part(admitted: int, elapsed_seconds: float) -> float:
    return round(admitted / (REQUESTS + REQUESTS / place.PERIOD_SECONDS * elapsed_seconds), 3)


def _go_ahead(seconds: float) -> None:
    """The clock of this process is ahead, for whoever is imported from now on."""
    for keeper in ("rest_framework.throttling", "limits", "pyrate_limiter", "throttled"):
        assert keeper not in sys.modules, f"{keeper} may hold the true clock"
    # Not functions: as an attribute of a class, which DRF makes of it, one of those would become a method.
    time.time = partial(_later, time.time, seconds)
    time.time_ns = partial(_later, time.time_ns, int(seconds * 1e9))


def _later(clock: Callable[[], Any], by: Any) -> Any:
    return clock() + by


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    columns = [f"{how}_{skew}" for how in ("flat_out", "paced") for skew in SKEWS_MS]
    heads = [f"{how}, {skew} ms" for how in ("flat out", "paced") for skew in SKEWS_MS]
    rows = sorted(content["rows"].items(), key=lambda item: (item[0] != OURS, max(item[1].values())))
    return {
        "over": table(
            ["over", *heads, "at the edge"],
            [(name, *(f"{row[column]:.2f}" for column in columns), f"{row['edge']:.2f}") for name, row in rows],
        )
    }


if __name__ == "__main__":
    main()
