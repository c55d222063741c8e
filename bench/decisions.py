"""What does a decision cost, beside one PING through redis-py's own pool, and beside other limiters?

    python -m bench.decisions [--rounds 15] [--calls 500] [--dry]

Everybody decides by the same limit, 1,000 a minute, for 1,000 callers in turn, on the same server, in
interleaved rounds. Promises: a whole `limiter.check` costs no more than the PING (P2), the refusal of
a caller who is known to be out of tokens a twentieth of a decision (P3).
"""

from __future__ import annotations

import argparse
from typing import Any

from bench import alone, concurrent_decisions, ours, place, rivals, rounds
from bench.results import shown, table

PING = "PING, redis-py's pool"
BARE = "EVALSHA of `return 1`, bare socket"
OWN_BARE = "ours: the script alone, bare socket"
CHECK = "ours: limiter.check"
KNOWN = "ours, known to be out"
#: Tokens of the caller whose refusals are measured; they come back at 5 a minute, too slowly to matter.
FEW = 5


def main() -> None:
    alone.run("decisions", "What does a decision cost?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=500)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    url = here.redis_url
    plan_id = place.plan("default")
    attempts: dict[str, rounds.Attempt] = {
        BARE: rivals.bare_script(url),
        PING: rivals.ping(url),
        CHECK: ours.checks(plan_id),
        "ours: limiter.check, three limits": ours.checks(place.plan("three", limits=3)),
        "ours: PlanThrottle": ours.throttle(plan_id),
        "ours: middleware, key and headers": ours.middleware(plan_id),
    }
    attempts |= {rival.name: rival.make(url, place.REQUESTS) for rival in rivals.all_rivals()}
    rounds.warmed(attempts)
    attempts[OWN_BARE] = ours.bare_script(plan_id, url)  # the server knows the script by now
    content: dict[str, Any] = {}
    if here.server_pid:
        with rounds.same_core(here):
            content["same_core"] = _measured(here, attempts, options)
    content["two_cores"] = _measured(here, attempts, options)
    content["refused"] = _measured(here, _refusals(url), options)
    content |= concurrent_decisions.measure(here, plan_id, options)
    return content


def _measured(here: place.Place, attempts: dict[str, rounds.Attempt], options: argparse.Namespace) -> dict[str, Any]:
    samples = rounds.interleaved(here, attempts, rounds=options.rounds, calls=options.calls)
    return {name: rounds.figures(samples[name], samples[PING]) for name in attempts}


def _refusals(url: str) -> dict[str, rounds.Attempt]:
    """Everybody refuses the same caller, again and again."""
    from ratelimit_app import denials, limiter

    plan_id = place.plan("few", requests=FEW)
    known, asked = place.callers(plan_id, 2, name="refused")

    def asked_again() -> object:
        denials.forget()  # a few nanoseconds; so Redis is asked each time
        return limiter.check(asked)

    attempts: dict[str, rounds.Attempt] = {
        PING: rivals.ping(url),
        KNOWN: lambda _number: limiter.check(known),
        "ours, asking Redis": lambda _number: asked_again(),
    }
    for rival in rivals.all_rivals():
        attempts[rival.name] = _always_the_same(rival.make(url, FEW))
    for attempt in list(attempts.values())[1:]:
        for _ in range(FEW):
            attempt(0)
    return attempts


def _always_the_same(attempt: rounds.Attempt) -> rounds.Attempt:
    return lambda _number: attempt(-1)


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    same, two = content.get("same_core", content["two_cores"]), content["two_cores"]
    cost = table(
        ["", "x PING", "p50 us", "CPU us", "server us", "trips", "two cores: p50", "p99", "per second"],
        [
            (
                name,
                shown(row["ratio"], digits=2, spread=True),
                *(shown(row[figure]) for figure in ("p50_us", "client_us", "server_us")),
                shown(row["trips"], digits=1),
                *(shown(two[name][figure], digits=0) for figure in ("p50_us", "p99_us", "per_second")),
            )
            for name, row in sorted(same.items(), key=lambda item: float(item[1]["ratio"][0]))
        ],
    )
    refused = table(
        ["refused", "x PING", "p50 us", "p99 us", "per second", "trips"],
        [
            (
                name,
                shown(row["ratio"], digits=2),
                *(shown(row[figure]) for figure in ("p50_us", "p99_us")),
                shown(row["per_second"], digits=0),
                shown(row["trips"], digits=1),
            )
            for name, row in sorted(content["refused"].items(), key=lambda item: float(item[1]["ratio"][0]))
        ],
    )
    return {"cost": cost, "refused": refused, **concurrent_decisions.tables(content)}


if __name__ == "__main__":
    main()
