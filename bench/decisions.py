"""What does a decision cost, beside one PING through redis-py's own pool?

    python -m bench.decisions [--rounds 15] [--calls 2000]

Microseconds at p50 and p99, medians over interleaved rounds, and the ratio to the PING of the same
round: absolute numbers are this machine's, ratios travel. Promise: a whole `limiter.check` of one
limit costs no more than the PING, one that is known to be out of tokens a twentieth of a decision.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.servers import RedisServer


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a decision.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        server = RedisServer(Path(scratch) / "redis")
        try:
            _measure(scratch, server.url, options.rounds, options.calls)
        finally:
            server.stop()


def _measure(scratch: str, redis_url: str, rounds: int, calls: int) -> None:
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{scratch}/db.sqlite3",
        "REDIS_URL": redis_url,
        "TEST_PREFIX": "bench",
    }
    import django

    django.setup()
    import redis
    from django.core.management import call_command

    from ratelimit_app import limiter, usage
    from ratelimit_app.limits import Caller
    from ratelimit_app.models import Plan

    call_command("migrate", verbosity=0)

    def caller(name: str, limits: int, *, requests: int, burst: int) -> Caller:
        plan = Plan.objects.create(name=name, slug=name)
        for number in range(limits):
            plan.limits.create(name=f"{name}{number}", requests=requests, period_seconds=1, burst=burst)
        return Caller(key_id=plan.pk, plan_id=plan.pk, bucket_identity=name)

    plenty = {"requests": 1_000_000, "burst": 100_000_000}
    one, three = caller("one", 1, **plenty), caller("three", 3, **plenty)
    plan = Plan.objects.create(name="out", slug="out")
    plan.limits.create(name="out", requests=1, period_seconds=86_400, burst=1)
    out = Caller(key_id=plan.pk, plan_id=plan.pk, bucket_identity="out")
    limiter.check(out)
    ping = redis.Redis.from_url(redis_url).ping
    cases: dict[str, Callable[[], object]] = {
        "PING, redis-py's pool": ping,
        "check, one limit": lambda: limiter.check(one),
        "check, three limits": lambda: limiter.check(three),
        "check, known to be out": lambda: limiter.check(out),
    }
    p50s: dict[str, list[float]] = {name: [] for name in cases}
    p99s: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, call in cases.items():
            took = _timed(call, calls)
            p50s[name].append(took[calls // 2])
            p99s[name].append(took[calls * 99 // 100])
    usage.reset()
    pings = p50s["PING, redis-py's pool"]
    sys.stdout.write(f"{'':24} {'p50 us':>8} {'p99 us':>8} {'x PING':>8}\n")
    for name in cases:
        ratio = median(p50 / ping_p50 for p50, ping_p50 in zip(p50s[name], pings, strict=True))
        sys.stdout.write(f"{name:24} {median(p50s[name]):8.1f} {median(p99s[name]):8.1f} {ratio:8.2f}\n")


def _timed(call: Callable[[], object], calls: int) -> list[float]:
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        took.append((time.perf_counter() - began) * 1e6)
    return sorted(took)


if __name__ == "__main__":
    main()
