"""Where does a decision spend its microseconds? Each step timed within real decisions, and the server's part by itself.

    python -m bench.steps [--calls 3000]

One token bucket, one thread, client and server on one core. A step's time is its own, without the steps
that it calls; the median over all decisions. Steps are functions of the limiter that are wrapped while this
runs, at some 0.2 us each. One that is not there any more is left out, and its time is its caller's: rename it here.
The server's part is its CPU time, when many commands come in one message.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench import alone, place, rounds
from bench.results import table

WHOLE = "= limiter.check, without the clocks"


def main() -> None:
    alone.run("steps", "Where does a decision spend its time?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=3_000)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    from ratelimit_app import denials, limiter

    plan_id, few = place.plan("default", requests=100_000_000), place.plan("few", requests=1)
    allowed, refused, known = (*place.callers(plan_id, 1), *place.callers(few, 2, name="refused"))

    def asked() -> None:
        denials.forget()
        limiter.check(refused)

    cases: dict[str, Callable[[], object]] = {
        "allowed": lambda: limiter.check(allowed),
        "refused": asked,
        "known": lambda: limiter.check(known),
    }
    with rounds.same_core(here):
        content: dict[str, Any] = {name: _in_place(here.redis_url, ask, options.calls) for name, ask in cases.items()}
        content["server"] = _in_the_server(here, allowed)
    return content


def _in_place(redis_url: str, ask: Callable[[], object], calls: int) -> dict[str, float]:
    for _ in range(100):
        ask()
    whole = []
    for _ in range(calls):
        began = time.perf_counter()
        ask()
        whole.append(time.perf_counter() - began)
    spent: dict[str, list[float]] = {}
    with _clocks(redis_url) as clock:
        for _ in range(100):
            ask()
        for _ in range(calls):
            clock.spent.clear()
            ask()
            for name, seconds in clock.spent.items():
                spent.setdefault(name, []).append(seconds)
    own = {name: round(median(each) * 1e6, 2) for name, each in spent.items() if len(each) > calls / 2}
    return {WHOLE: round(median(whole) * 1e6, 2), **own}


class _Clock:
    """Adds up each step's own time, without that of the steps inside."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inside = [0.0]

    def around(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        spent, inside, now = self.spent, self._inside, time.perf_counter

        def timed(*args: Any, **kwargs: Any) -> Any:
            inside.append(0.0)
            began = now()
            try:
                return step(*args, **kwargs)
            finally:
                took = now() - began
                spent[name] = spent.get(name, 0.0) + took - inside.pop()
                inside[-1] += took

        return timed


@contextmanager
def _clocks(redis_url: str) -> Iterator[_Clock]:
    from ratelimit_app import breaker, buckets, changes, conf, connections, denials, leases, limiter, plan_cache, usage
    from ratelimit_app.buckets import questions
    from ratelimit_app.connections import server

    clock = _Clock()
    steps: list[tuple[str, Any, str]] = [
        ("check: what it does itself", limiter, "check"),
        ("which limits", limiter, "_limits"),
        ("which limits", changes, "watch"),
        ("which limits", conf, "current"),
        ("which limits", plan_cache, "table"),
        ("is it known, is the breaker closed", limiter, "_known_without_asking"),
        ("is it known, is the breaker closed", denials, "find"),
        ("is it known, is the breaker closed", breaker.Breaker, "demand_closed"),
        ("does a lease cover it", leases, "cover"),
        ("buckets.take, what it does itself", buckets, "take"),
        ("buckets.take, what it does itself", buckets, "_take"),
        ("plan of arguments, from memory", questions, "prepared"),
        ("names of the buckets", questions, "address_of"),
        ("connections.ask, nonce", connections, "ask"),
        ("connections.ask, nonce", connections, "_without_nonce"),
        ("pack the message", connections.Question, "about"),
        ("pack the message", questions, "question_to"),
        ("exchange: find the server, take a connection, put it back", connections, "_exchange"),
        ("exchange: find the server, take a connection, put it back", server.Server, "ask"),
        ("send: the system call", _Wire, "sendall"),
        ("wait and receive: server, switches, system call", _Wire, "recv"),
        ("ask: read the reply", server.Connection, "ask"),
        ("answer: reply to Decision", buckets, "_answer"),
        ("learn: the breaker; remember a refusal", limiter, "_learn"),
        ("learn: the breaker; remember a refusal", denials, "note"),
        ("conclude: receipt of a refusal", limiter, "_concluded"),
        ("count for the statistics", usage, "record"),
    ]
    steps = [(step, owner, name) for step, owner, name in steps if hasattr(owner, name)]
    before = [(owner, name, getattr(owner, name)) for _step, owner, name in steps]
    connect = server.Connection.__init__

    def connect_by_wire(self: Any, opened: Any) -> None:
        connect(self, opened)
        self._socket, self._is_plain = _Wire(self._socket), False

    server.Connection.__init__ = connect_by_wire  # type: ignore[method-assign]
    for step, owner, name in steps:
        setattr(owner, name, clock.around(step, getattr(owner, name)))
    try:
        with place.limiter_at(redis_url):  # which begins with new connections, and ends with none
            yield clock
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
        server.Connection.__init__ = connect  # type: ignore[method-assign]


class _Wire:
    """A socket whose system calls can be timed."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self.gettimeout = wrapped.gettimeout

    def sendall(self, message: bytes) -> None:
        self._wrapped.sendall(message)

    def recv(self, size: int) -> bytes:
        return bytes(self._wrapped.recv(size))


#: One token bucket and nothing else: the least that a script of this kind can do, to compare with.
_LEAST = """
local now = redis.call('TIME')
now = (tonumber(now[1]) - 1767225600) * 10000000 + tonumber(now[2]) * 10
local debt = math.max(0, (tonumber(redis.call('GET', KEYS[1]) or 0)) - now)
local charge, capacity = tonumber(ARGV[2]), tonumber(ARGV[3])
local allowed = debt + charge <= capacity
if allowed then
  redis.call('SET', KEYS[1], now + debt + charge, 'PX', math.ceil((debt + charge) / 10000))
end
return { tonumber(ARGV[1]), now, allowed and 1 or 0, debt }
"""


def _in_the_server(here: place.Place, who: Any) -> dict[str, float]:
    """CPU time of the server per command, the best of some rounds, when many come in one message."""
    from ratelimit_app import limiter
    from ratelimit_app.buckets import questions

    limits = limiter._limits(who, "", "", None)
    plan = questions.prepared(limits, 1, 0)
    address = questions.address_of(plan, who)
    message = questions.question_to(plan, address, questions.LIVE).about(address.keys, 10**12, address.fields)
    charge, capacity = limits[0].interval_ticks, limits[0].capacity_ticks
    with here.client() as client:
        nothing, least = client.script_load("return 1"), client.script_load(_LEAST)
        words = place.words_of(message)
        commands: dict[str, tuple[Any, ...]] = {
            "PING": ("PING",),
            "EVALSHA of `return 1`": ("EVALSHA", nothing, 0),
            "EVALSHA of one bucket and nothing else": ("EVALSHA", least, 1, b"least", 1, charge, capacity),
            "EVALSHA of the decision": words,
        }
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(15):
            for name, command in commands.items():
                before = rounds.work_of(client)[0]
                pipeline = client.pipeline(transaction=False)
                for _ in range(2_000):
                    pipeline.execute_command(*command)
                pipeline.execute()
                best[name] = min(best[name], (rounds.work_of(client)[0] - before) / 2_000 * 1e6)
    return {name: round(each, 2) for name, each in best.items()}


# --- Shown -------------------------------------------------------------------------------------

_HEADS = {
    "allowed": "one allowed decision",
    "refused": "one refusal, Redis asked",
    "known": "one refusal, from memory",
    "server": "CPU time of the server, pipelined",
}


def tables(content: dict[str, Any]) -> dict[str, str]:
    return {name: table([head, "us"], _dearest_first(content[name])) for name, head in _HEADS.items()}


def _dearest_first(steps: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(steps.items(), key=lambda step: -step[1])


if __name__ == "__main__":
    main()
