"""What do decisions look like? Ready-made ones, and a way to read what was made of them."""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, cast

import redis

from ratelimit_app import shipping
from ratelimit_app.limits import Caller, Decision, Level, Limit, Weighed

CALLER = Caller(key_id=7, plan_id=3, bucket_identity="aaaa", user_id="1", address="192.0.2.1")
LIMIT = Limit(id=11, name="pro", requests=60, period_seconds=60, burst=20)
SLOW_LIMIT = Limit(id=12, name="daily", requests=1, period_seconds=86_400, burst=1)
SHADOW_LIMIT = Limit(id=13, name="trial", requests=1, period_seconds=1, burst=1, mode="shadow")
CLOSED_LIMIT = Limit(id=14, name="login", requests=1, period_seconds=1, burst=1, on_failure="closed")


def caller(number: int) -> Caller:
    return Caller(key_id=number, plan_id=3, bucket_identity=f"caller-{number}")


def _weighed(limit: Limit, *, wait_seconds: int) -> Weighed:
    level = Level(remaining=limit.capacity, next_ticks=0, full_ticks=0)
    return Weighed(limit, b"bucket", level, charged=0, wait_ticks=wait_seconds * 10_000_000)


ALLOWED = Decision(True, (_weighed(LIMIT, wait_seconds=0),))
WOULD_REFUSE = Decision(True, (_weighed(LIMIT, wait_seconds=0), _weighed(SHADOW_LIMIT, wait_seconds=2)))
UNCHECKED = Decision(True, source="unchecked", failure="timeout", unweighed=(LIMIT,))
LOCAL = ALLOWED._replace(source="local", failure="timeout")
OFF = Decision(True, source="off")


def refused(*, limits: tuple[Limit, ...] = (LIMIT,), receipt: str = "") -> Decision:
    """Refused by each of these, the later ones for longer."""
    weighed = tuple(_weighed(limit, wait_seconds=5 + place) for place, limit in enumerate(limits))
    return Decision(False, weighed, receipt=receipt or str(uuid.uuid4()))


def failed_closed() -> Decision:
    return Decision(
        False, source="unchecked", failure="timeout", unweighed=(LIMIT, CLOSED_LIMIT), receipt=str(uuid.uuid4())
    )


OUTCOMES = ("allowed", "refused", "would_refuse", "unchecked", "failed_closed", "local")


def totals(batches: Iterable[dict[str, Any]]) -> Counter[str]:
    """How many decisions of each outcome the batches hold, and how many were dropped, by kind."""
    found: Counter[str] = Counter()
    for batch in batches:
        for row in batch.get("usage", ()):
            found.update(dict(zip(OUTCOMES, row[3:], strict=True)))
        for _minute, kind, count in batch.get("dropped", ()):
            found[f"dropped {kind}"] += count
    return +found


def decided(found: Counter[str]) -> int:
    """All decisions that `totals` counted: would-refuse and local ones were allowed or refused as well."""
    return sum(found[outcome] for outcome in OUTCOMES if outcome not in ("would_refuse", "local"))


def queued(client: redis.Redis, *, queue: str) -> Iterator[dict[str, Any]]:
    """Take the batches off a queue of Celery in Redis, as a worker would."""
    while message := cast("bytes | None", client.lpop(queue)):
        envelope = json.loads(message)
        assert envelope["headers"]["task"] == shipping.TASK
        _args, keywords, _embed = json.loads(base64.b64decode(envelope["body"]))
        yield keywords["batch"]
