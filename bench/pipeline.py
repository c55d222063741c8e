"""What does the database cost us? Looking a key up, warm and cold; and decisions that end as rows, end to end.

A part of `python -m bench.growth`, which runs it once for each database; prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench import place
from tests.servers import running

SHOWN = {
    "keys": "keys in the table",
    "warm_us": "look-up, warm: p50 us",
    "cold_us": "look-up, cold: p50 us",
    "unknown_us": "look-up of a key that nobody has: p50 us",
    "allowed_per_second": "allowed decisions written, per second",
    "refused_per_second": "refusals written, per second",
}
EVENTS, WHO = 50_000, 1_000
_LONGEST_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, required=True)
    options = parser.parse_args()
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    sys.stdout.write(json.dumps({"keys": options.keys, **_look_ups(options.keys), **_pipeline()}) + "\n")


def _look_ups(count: int) -> dict[str, float]:
    from ratelimit_app import conf, key_cache, keys
    from ratelimit_app.models import APIKey, Plan

    plan = Plan.objects.get(pk=place.plan("keys"))
    made = [keys.generate(conf.current().key_prefix) for _ in range(count)]
    APIKey.objects.bulk_create(
        [APIKey(plan=plan, name="bench", public_id=m.public_id, digest=m.digest) for _text, m in made], batch_size=2_000
    )
    texts = [text for text, _material in made[:: max(1, count // 1_000)]]
    strangers = [keys.generate(conf.current().key_prefix)[0] for _ in texts]
    key_cache.forget(None)
    cold = _p50_us(key_cache.find, texts)
    return {
        "cold_us": cold,
        "warm_us": _p50_us(key_cache.find, texts),
        "unknown_us": _p50_us(key_cache.find, strangers),
    }


def _p50_us(find: Callable[[str], object], texts: list[str]) -> float:
    took = []
    for text in texts:
        began = time.perf_counter()
        find(text)
        took.append(time.perf_counter() - began)
    return median(took) * 1e6


def _pipeline() -> dict[str, float]:
    """Decisions are recorded as fast as the flush thread adds them up; the clock stops when all of them are rows."""
    from django.db.models import Sum

    from ratelimit_app import usage
    from ratelimit_app.models import UsageMinute

    outcome = {}
    with TemporaryDirectory() as scratch, _worker(Path(scratch) / "worker.log"):
        for allowed in (True, False):
            name = "allowed" if allowed else "refused"
            who = place.callers(place.plan(f"pipeline {name}"), WHO, name=name)
            decision, before = _decision(allowed), UsageMinute.objects.aggregate(n=Sum(name))["n"] or 0
            began = time.monotonic()
            for number in range(EVENTS):
                usage.record(decision, who[number % WHO], route="bench/", method="GET", seconds=0.00005)
                while not number % 1_000 and usage.state().records > 1_000:
                    time.sleep(0.001)  # records wait for nobody, so the bench must: a full buffer drops
            usage.flush(_LONGEST_SECONDS)
            while (UsageMinute.objects.aggregate(n=Sum(name))["n"] or 0) - before < EVENTS:
                if time.monotonic() - began > _LONGEST_SECONDS:
                    raise RuntimeError(f"Not all {name} decisions arrived: {usage.state()}")
                time.sleep(0.02)
            outcome[f"{name}_per_second"] = EVENTS / (time.monotonic() - began)
    usage.reset()
    return outcome


def _decision(allowed: bool) -> Any:
    from ratelimit_app import limiter

    few = place.plan(f"decision {allowed}", requests=1, period_seconds=86_400)
    (who,) = place.callers(few, 1, name=f"decision {allowed}")
    decision = limiter.check(who)
    if not allowed:
        decision = limiter.check(who)._replace(receipt="")
    assert decision.allowed == allowed, decision
    return decision


def _worker(log_path: Path) -> Any:
    options = ["--concurrency", "1", "--loglevel", "ERROR", "--without-mingle", "--without-gossip"]
    command = [sys.executable, "-m", "celery", "--app", "project.celery", "worker", "-Q", "bench", *options]
    return running(command, log_path=log_path, directory=Path(__file__).parent.parent)


if __name__ == "__main__":
    main()
