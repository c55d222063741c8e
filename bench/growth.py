"""What becomes dearer when there is more of it? Buckets, limits, gateways, keys; and what does the pipeline carry?

    python -m bench.growth [--rounds 8] [--buckets 100000] [--keys 20000]

`--buckets 2000000 --keys 2000000` is what the app is sized for, and takes a quarter of an hour to fill.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

from bench import alone, gateways, memory, ours, pipeline, place, rivals, rounds
from bench.results import figure, shown, table
from tests.servers import PostgresServer

PING = "PING"
GATEWAYS = (1, 4, 16, 40)
LIMITS = (1, 2, 3, 5, 10)


def main() -> None:
    alone.run(
        "growth", "What becomes dearer when there is more of it?", options=_options, measure=measure, tables=tables
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--buckets", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=20_000)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    content: dict[str, Any] = {"limits": _limits(here, options.rounds), "gateways": _gateways(here)}
    content["buckets"] = _buckets(here, options)
    content["databases"] = {"SQLite": _in_database(here, None, options.keys)}
    try:
        postgres = PostgresServer(here.scratch / "postgres")
    except RuntimeError as missing:
        alone.say(f"Without PostgreSQL: {missing}")
        return content
    try:
        content["databases"]["PostgreSQL"] = _in_database(here, postgres.url, options.keys)
    finally:
        postgres.stop()
    return content


def _limits(here: place.Place, number_of_rounds: int) -> dict[str, Any]:
    attempts = {PING: rivals.ping(here.redis_url)}
    attempts |= {str(count): ours.checks(place.plan(f"limits{count}", limits=count)) for count in LIMITS}
    with rounds.same_core(here):
        samples = rounds.interleaved(here, rounds.warmed(attempts), rounds=number_of_rounds, calls=300)
    return {count: rounds.figures(samples[count], samples[PING]) for count in map(str, LIMITS)}


def _gateways(here: place.Place) -> dict[str, Any]:
    """Flat out, each for callers of its own: where is the server's limit?"""
    plan_id = place.plan("flat-out", requests=100_000_000)

    def work(number: int, begin: gateways.Begin) -> Any:
        attempt = ours.checks(plan_id, name=f"gateway{number}-")
        attempt(0)
        took: list[float] = []

        def ask(count: int) -> None:
            start = time.perf_counter()
            attempt(count % rounds.CALLERS)
            took.append(time.perf_counter() - start)

        gateways.paced(begin(), 2.0, 0, ask)
        return {"asked": len(took), "p": rounds.percentiles(took, 50, 99)}

    rows: dict[str, list[dict[str, float]]] = {str(count): [] for count in GATEWAYS}
    with here.client() as watcher:
        for _ in range(3):
            for count, outcomes in rows.items():
                before = rounds.work_of(watcher)[0]
                reports = gateways.run(int(count), work)
                asked = sum(each["asked"] for each in reports)
                busy = (rounds.work_of(watcher)[0] - before) / asked * 1e6
                p50, p99 = (max(each["p"][place_] for each in reports) for place_ in (0, 1))
                outcomes.append({"per_second": asked / 2.0, "server_us": busy, "p50_us": p50, "p99_us": p99})
    return {
        count: {what: figure(e[what] for e in outcomes) for what in outcomes[0]} for count, outcomes in rows.items()
    }


def _buckets(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    plan_id = place.plan("buckets")
    attempts = rounds.warmed({PING: rivals.ping(here.redis_url), "check": ours.checks(plan_id, name="among")})
    rows = {}
    with here.client() as client:
        fill, held = memory.filling(client, "token_bucket"), 0
        for count in (1_000, options.buckets):
            fill(count - held, 1, held)
            held = count
            with rounds.same_core(here):
                samples = rounds.interleaved(here, attempts, rounds=options.rounds, calls=300)
            rows[str(count)] = rounds.figures(samples["check"], samples[PING])
    return rows


def _in_database(here: place.Place, url: str | None, keys: int) -> dict[str, Any]:
    """Another database needs another process."""
    url = url or f"sqlite:///{here.scratch / 'growth.sqlite3'}"
    own = f"growth-{url.partition(':')[0]}"  # row numbers begin anew, so the names in Redis must differ
    environment = {**os.environ, **place.environment(here, BENCH_PREFIX=own), "DATABASE_URL": url}
    command = [sys.executable, "-m", "bench.pipeline", "--keys", str(keys)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --- Shown -------------------------------------------------------------------------------------


def _decisions(head: str, rows: dict[str, Any]) -> str:
    cells = [(f"{int(count):,}", *(shown(row[x], digits=2) for x in _FIGURES)) for count, row in _by_number(rows)]
    return table([head, "x PING", "p50 us", "server us", "trips"], cells)


def _by_number(rows: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(rows.items(), key=lambda item: int(item[0]))


_FIGURES = ("ratio", "p50_us", "server_us", "trips")


def tables(content: dict[str, Any]) -> dict[str, str]:
    many = [
        (count, *(shown(row[x], digits=0) for x in ("per_second", "p50_us", "p99_us")), shown(row["server_us"]))
        for count, row in _by_number(content["gateways"])
    ]
    databases = content["databases"]
    return {
        "limits": _decisions("limits of the plan", content["limits"]),
        "buckets": _decisions("buckets in Redis", content["buckets"]),
        "gateways": table(["gateways, flat out", "per second", "p50 us", "p99 us", "server us"], many),
        "databases": table(
            ["", *databases],
            [(what, *(f"{each[name]:,.0f}" for each in databases.values())) for name, what in pipeline.SHOWN.items()],
        ),
    }


if __name__ == "__main__":
    main()
