"""Did a decision become dearer? `make bench-check`: ratios to the bare round trip, with generous margins, in a minute.

    python -m bench.regression

Times are the machine's, ratios nearly not: client and server share one core, rounds are interleaved, and what
fails is measured again, twice, before it counts. The bounds are what was measured on a busy machine, and half
as much again; whoever makes a decision cheaper may lower them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median

from bench import ours, place, rivals, rounds
from bench.alone import say
from bench.results import table

PING, ONE, THREE, KNOWN = "PING", "one limit", "three limits", "known to be out"
ROUNDS, CALLS, ATTEMPTS = 15, 300, 3

Samples = dict[str, list[rounds.Sample]]
#: What is looked at, how it is read from the samples, and the most that it may be.
BOUNDS: list[tuple[str, Callable[[Samples], float], float]] = [
    ("limiter.check, in PINGs of redis-py's pool", lambda samples: _ratio(samples, ONE, PING), 2.2),
    ("three limits, to one limit", lambda samples: _ratio(samples, THREE, ONE), 2.0),
    ("a known refusal, to limiter.check", lambda samples: _ratio(samples, KNOWN, ONE), 0.35),
    ("round trips of a decision", lambda samples: _trips(samples, ONE), 1.05),
    ("round trips of a decision over three limits", lambda samples: _trips(samples, THREE), 1.05),
    ("round trips of a known refusal", lambda samples: _trips(samples, KNOWN), 0.05),
]


def main() -> None:
    with place.server() as here:
        best = _measured(here)
        for _ in range(ATTEMPTS - 1):
            if not _too_dear(best):
                break
            say(f"Measured again: {', '.join(_too_dear(best))}")
            best = {name: min(best[name], value) for name, value in _measured(here).items()}
    say(table(["", "is", "may be"], [(name, f"{best[name]:.2f}", f"{most:.2f}") for name, _read, most in BOUNDS]))
    if dear := _too_dear(best):
        sys.exit(f"Dearer than it may be: {', '.join(dear)}")


def _measured(here: place.Place) -> dict[str, float]:
    attempts = _attempts(here)
    with rounds.same_core(here):
        samples = rounds.interleaved(here, attempts, rounds=ROUNDS, calls=CALLS)
    return {name: read(samples) for name, read, _most in BOUNDS}


_made: dict[str, rounds.Attempt] = {}


def _attempts(here: place.Place) -> dict[str, rounds.Attempt]:
    if not _made:
        from ratelimit_app import limiter

        (out,) = place.callers(place.plan("few", requests=1), 1, name="out")
        limiter.check(out)
        _made.update(
            {
                PING: rivals.ping(here.redis_url),
                ONE: ours.checks(place.plan("one", requests=1_000_000)),
                THREE: ours.checks(place.plan("three", requests=1_000_000, limits=3)),
                KNOWN: lambda _number: limiter.check(out),
            }
        )
        rounds.warmed(_made)
    return _made


def _too_dear(values: dict[str, float]) -> list[str]:
    return [name for name, _read, most in BOUNDS if values[name] > most]


def _ratio(samples: Samples, name: str, to: str) -> float:
    return median(mine.p50_us / its.p50_us for mine, its in zip(samples[name], samples[to], strict=True))


def _trips(samples: Samples, name: str) -> float:
    return median(sample.trips for sample in samples[name])


if __name__ == "__main__":
    main()
