"""What do leases save, and what do they cost? Processes on one caller, exact and leased, on a server of their own.

    python -m bench.leases [--processes 20] [--seconds 5]

"admitted" is in parts of burst + rate x the time that really elapsed, which is never exceeded.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests import lease_fleet
from tests.servers import RedisServer

#: Requests a second, burst, and how long each process pauses between its requests.
LOADS = [(100_000, 100_000, 0.0), (5_000, 3_000, 0.0), (1_000, 1_000, 0.005), (200, 200, 0.005), (20, 50, 0.02)]
HEAD = f"{'rate/s':>8} {'burst':>8} {'asked/s':>8} {'mode':>7} {'admitted':>9} {'Redis calls per 1,000':>22}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Leases against the exact mode.")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        server = RedisServer(Path(scratch) / "redis")
        try:
            _measure(Path(scratch), server.url, options.processes, options.seconds)
        finally:
            server.stop()


def _measure(scratch: Path, redis_url: str, processes: int, seconds: float) -> None:
    os.environ.update(
        DJANGO_SETTINGS_MODULE="tests.settings",
        DATABASE_URL=f"sqlite:///{scratch / 'db.sqlite3'}",
        REDIS_URL=redis_url,
        TEST_PREFIX="bench",
    )
    import django

    django.setup()
    from django.core.management import call_command

    from ratelimit_app.models import Plan

    call_command("migrate", verbosity=0)
    _print(HEAD)
    with lease_fleet.fleet({**os.environ}) as fleet:
        for rate, burst, pause_seconds in LOADS:
            for mode in ("exact", "leased"):
                name = f"{mode}-{rate}"
                plan = Plan.objects.create(name=name, slug=name)
                limit = {"requests": rate, "period_seconds": 1, "burst": burst, "lease": mode == "leased"}
                plan.limits.create(name=name, **limit)
                outcome = fleet.run(
                    processes=processes,
                    seconds=seconds,
                    pause_seconds=pause_seconds,
                    plan_id=plan.pk,
                    bucket_identity=name,
                )
                admitted = outcome.share_of(burst + rate * outcome.seconds)
                asked = outcome.decisions / outcome.seconds
                _print(
                    f"{rate:>8,} {burst:>8,} {asked:>8,.0f} {mode:>7} {admitted:>9.1%} {outcome.calls_per_1000:>22,.0f}"
                )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
