"""How many bytes of Redis does a bucket take? Ours by each algorithm, the textbook's, and those of other limiters.

    python -m bench.memory [--buckets 2000000] [--keys 125000] [--rivals 15625]

`used_memory` before and after, by the number of callers who made one request each; and what one caller takes who
made 1,000, when the server is asked for the size of its keys. Token buckets in hashes are 2,000,000, as promised; a
leaky bucket takes what a token bucket takes. Whatever has a key of its own gets a 16th of the callers, other limiters
a 128th, so that the server's table of names is filled alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import redis

from bench import alone, place, rivals
from bench.results import table

WINDOWS = ("fixed_window", "sliding_window", "sliding_log")
TEXTBOOK = "textbook: a hash of two fields, with expiry"
ACTIVE_CALLS = 1_000
#: Calls that are sent at once where only the server matters.
_BATCH = 1_000


def main() -> None:
    alone.run("memory", "How many bytes does a bucket take?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--buckets", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=125_000)
    parser.add_argument("--rivals", type=int, default=15_625)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    if here.server_pid is None:
        raise SystemExit("Memory is measured on a server of its own, which REDIS_SERVER names: it is emptied.")
    rows: dict[str, Any] = {}
    with here.client(socket_timeout=600) as client:  # to empty it takes some seconds
        token_buckets = filling(client, "token_bucket")
        rows["ours, token bucket"] = _measured(client, token_buckets, options.buckets)
        with place.limiter_at(here.redis_url, BUCKET_HASHES=0):
            rows["ours, token bucket, each a key"] = _measured(client, token_buckets, options.keys)
        for algorithm in WINDOWS:
            name = f"ours, {algorithm.replace('_', ' ')}"
            rows[name] = _measured(client, filling(client, algorithm), options.keys)
        rows[TEXTBOOK] = _measured(client, _textbook(client), options.keys)
        for rival in rivals.all_rivals() if options.rivals else []:
            if "DRF throttle" not in rival.name and "Django's cache" not in rival.name:  # the same keys again
                rows[rival.name] = _measured(client, _by_calls(rival, here.redis_url), options.rivals)
    return {"buckets": options.buckets, "keys": options.keys, "rivals": options.rivals, "rows": rows}


#: Makes so many requests for each of so many callers, from a first one on.
Fill = Callable[[int, int, int], None]


def _measured(client: redis.Redis, fill: Fill, count: int) -> dict[str, Any]:
    _empty(client)
    fill(1, 1, 0)  # scripts and connections are there
    before = _used(client)
    fill(count, 1, 0)
    each = (_used(client) - before) / count
    _empty(client)
    fill(1, ACTIVE_CALLS, 0)
    active = sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter(count=1_000))
    return {"bytes": round(each, 1), "active_bytes": active}


def _empty(client: redis.Redis) -> None:
    client.execute_command("FLUSHALL", "SYNC")  # type: ignore[no-untyped-call]  # or it is freed later, in between


def _used(client: redis.Redis) -> int:
    client.memory_purge()
    memory: dict[str, Any] = client.info("memory")
    return int(memory["used_memory"])


def filling(client: redis.Redis, algorithm: str) -> Fill:
    """Buckets of ours by the script that makes them, many in one message."""
    from ratelimit_app import limiter
    from ratelimit_app.buckets import questions
    from ratelimit_app.limits import Caller

    # Long enough that nothing expires meanwhile.
    plan_id = place.plan(algorithm, requests=2_000, period_seconds=86_400 * 1_000, algorithm=algorithm)
    limits = limiter._limits(Caller(plan_id=plan_id), "", "", None)
    plan = questions.prepared(limits, 1, 0)

    def fill(callers: int, calls: int, first: int = 0) -> None:
        client.script_load(plan.script.text)
        connection = client.connection_pool.get_connection()
        batch: list[bytes] = []

        def send() -> None:
            connection.send_packed_command(batch)  # type: ignore[no-untyped-call]  # redis-py says nothing of its types
            for _ in batch:
                connection.read_response()
            batch.clear()

        for number in range(first, first + callers):
            address = questions.address_of(plan, Caller(bucket_identity=f"{number:016x}"))
            question = questions.question_to(plan, address, questions.LIVE)
            batch += [question.about(address.keys, 10**12, address.fields)] * calls
            if len(batch) >= _BATCH:
                send()
        send()
        client.connection_pool.release(connection)

    return fill


_TEXTBOOK = """
for number = ARGV[1], ARGV[1] + ARGV[2] - 1 do
  local key = string.format('bucket:%016x', number)
  redis.call('HSET', key, 'tokens', '999.0', 'updated', '1767225600.123456')
  redis.call('PEXPIRE', key, 86400000)
end
"""


def _textbook(client: redis.Redis) -> Fill:
    def fill(callers: int, calls: int, first: int = 0) -> None:
        for start in range(first, first + callers, _BATCH):
            client.eval(_TEXTBOOK, 0, start, min(_BATCH, first + callers - start))

    return fill


def _by_calls(rival: rivals.Rival, url: str) -> Fill:
    # Of a small limit one request is a large part, so that nothing expires while others are asked for.
    once, often = rival.make(url, 3), rival.make(url, ACTIVE_CALLS)

    def fill(callers: int, calls: int, first: int = 0) -> None:
        attempt = once if calls == 1 else often
        for number in range(first, first + callers):
            for _ in range(calls):
                attempt(number)

    return fill


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    rows = sorted(content["rows"].items(), key=lambda item: float(item[1]["bytes"]))
    return {
        "bytes": table(
            ["", "bytes a bucket", "MB for 2,000,000", f"bytes after {ACTIVE_CALLS:,} requests"],
            [
                (name, f"{row['bytes']:.0f}", f"{row['bytes'] * 2:.0f}", f"{row['active_bytes']:,}")
                for name, row in rows
            ],
        )
    }


if __name__ == "__main__":
    main()
