"""What does the database cost us? Looking a key up, warm and cold; and decisions that end as rows, end to end.

A part of `python -m bench.growth`, which runs it once for each database; prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    "allowed_per_second": "allowed decisions of 1,000 callers written, per second",
    "refused_per_second": "refusals of 1,000 callers written, per second",
    "rows_per_second": "rows that one worker writes, each of another caller, per second",
}
EVENTS, WHO = 50_000, 1_000
_LONGEST_SECONDS = 120.0
#: From `BUFFER_SIZE` on requests help to count; ten times as many may wait.
_MOST_WAITING = 20_000


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
    """Decisions are recorded flat out; the clock stops when one worker has written all of them."""
    from ratelimit_app import shipping, usage
    from ratelimit_app.usage.tally import Tally

    outcome = {}
    with TemporaryDirectory() as scratch, _worker(Path(scratch) / "worker.log"):
        for allowed in (True, False):
            name = "allowed" if allowed else "refused"
            who = place.callers(place.plan(f"pipeline {name}"), WHO, name=name)
            decision = _decision(allowed)
            with _arriving(name) as arrived:
                for number in range(EVENTS):
                    usage.record(decision, who[number % WHO], route="bench/", method="GET", seconds=0.00005)
                    while not number % 1_000 and usage.state().records > _MOST_WAITING:
                        time.sleep(0.001)  # records wait for nobody, so the bench must: a full buffer drops
                usage.flush(_LONGEST_SECONDS)
            outcome[f"{name}_per_second"] = EVENTS / arrived()
        tally, decision = Tally(2 * EVENTS), _decision(True, name="strangers")
        for stranger in place.callers(place.plan("pipeline strangers"), EVENTS, name="stranger"):
            tally.count(decision, stranger, "bench/", "GET", 0.00005, time.time())
        with _arriving("allowed") as arrived:
            for batch in tally.freeze(everything=True):
                shipping.publish(batch)
        outcome["rows_per_second"] = EVENTS / arrived()
    usage.reset()
    shipping.disconnect()
    return outcome


@contextmanager
def _arriving(outcome: str) -> Iterator[Callable[[], float]]:
    """Waits at the end until so many more decisions are rows; then the value says how many seconds it took."""
    from django.db.models import Sum

    from ratelimit_app.models import PlanMinute

    def counted() -> int:
        return int(PlanMinute.objects.aggregate(n=Sum(outcome, default=0))["n"])

    took: list[float] = []
    before, began = counted(), time.monotonic()
    yield lambda: took[0]
    while counted() - before < EVENTS:
        if time.monotonic() - began > _LONGEST_SECONDS:
            raise RuntimeError(f"Not all {outcome} decisions arrived.")
        time.sleep(0.02)
    took.append(time.monotonic() - began)


def _decision(allowed: bool, *, name: str = "") -> Any:
    from ratelimit_app import limiter

    few = place.plan(f"decision {allowed} {name}", requests=1, period_seconds=86_400)
    (who,) = place.callers(few, 1, name=f"decision {allowed} {name}")
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
