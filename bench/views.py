"""What does a whole request cost? Over HTTP, under gunicorn and uvicorn: views bare, with DRF's own means, with ours.

    python -m bench.views [--rounds 8] [--requests 150]

One worker process, one client that asks again as soon as it was answered, with 50 keys in turn. "CPU" is what
the worker computed per request, all its threads included: it does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import alone, place, rounds
from bench.results import figure, shown, table
from project.demo import processes
from tests.servers import running, wait_for_port

KEYS = 50


@dataclass(frozen=True, slots=True)
class Variant:
    """What is asked, of which of the two servers, with whose key, and how it should be answered."""

    name: str
    path: str
    key: str = ""
    has_middleware: bool = False
    status: int = 200


DRF = [
    Variant("DRF view, bare", "/bare/"),
    Variant("DRF view, DRF's throttle and token", "/drf/", "token"),
    Variant("DRF view, our throttle and key", "/ours/", "key"),
    Variant("DRF view, our middleware, throttle and key", "/ours/", "key", has_middleware=True),
    Variant("refused by DRF's throttle", "/drf-few/", "one token", status=429),
    Variant("refused by our middleware", "/ours/", "one key", has_middleware=True, status=429),
]
PLAIN = [
    Variant("plain view, bare", "/plain/"),
    Variant("plain view, our middleware and key", "/plain-ours/", "key", has_middleware=True),
]
ASYNC = [
    Variant("async view, bare", "/async/"),
    Variant("async view, our middleware and key", "/async-ours/", "key", has_middleware=True),
]
SERVERS = {"gunicorn": DRF + PLAIN, "uvicorn": DRF + ASYNC}


def main() -> None:
    alone.run("views", "What does a whole request cost?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=150)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    keys = _keys()
    return {server: _under(here, server, variants, keys, options) for server, variants in SERVERS.items()}


def _keys() -> dict[str, list[str]]:
    from django.contrib.auth.models import User
    from rest_framework.authtoken.models import Token

    from ratelimit_app.models import APIKey, Plan

    many = Plan.objects.get(pk=place.plan("many"))
    few = Plan.objects.get(pk=place.plan("few", requests=5, period_seconds=86_400))
    users = [User.objects.create(username=f"user{number}") for number in range(KEYS + 1)]
    one, *tokens = [f"Token {Token.objects.create(user=user).key}" for user in users]
    return {
        "": [""],
        "token": tokens,
        "one token": [one],
        "key": [f"Bearer {APIKey.objects.create_key(plan=many, name='bench')[1]}" for _ in range(KEYS)],
        "one key": [f"Bearer {APIKey.objects.create_key(plan=few, name='bench')[1]}"],
    }


def _under(
    here: place.Place, server: str, variants: list[Variant], keys: dict[str, list[str]], options: argparse.Namespace
) -> dict[str, Any]:
    outcomes: dict[str, list[tuple[float, float, float]]] = {variant.name: [] for variant in variants}
    with _served(here, server, "") as bare, _served(here, server, "1") as limited:
        for number in range(options.rounds + 1):
            for variant in variants:
                port, pid = limited if variant.has_middleware else bare
                outcome = _round(port, pid, variant, keys[variant.key], options.requests, warm=bool(number))
                if number:
                    outcomes[variant.name].append(outcome)
    names = ("cpu_us", "p50_us", "p99_us")
    return {
        name: {what: figure(values, digits=1) for what, values in zip(names, zip(*outcome, strict=True), strict=True)}
        for name, outcome in outcomes.items()
    }


@contextlib.contextmanager
def _served(here: place.Place, server: str, middleware: str) -> Iterator[tuple[int, int]]:
    """A server with one worker; its port, and the process id of its head."""
    port = processes.free_port()
    commands = {
        "gunicorn": ["gunicorn", "--bind", f"127.0.0.1:{port}", "django.core.wsgi:get_wsgi_application()"],
        "uvicorn": ["uvicorn", "--port", str(port), "--factory", "django.core.asgi:get_asgi_application"],
    }
    quiet = {"gunicorn": ["--log-level", "error"], "uvicorn": ["--log-level", "error", "--no-access-log"]}
    name, *arguments = commands[server]
    environment = place.environment(here, BENCH_MIDDLEWARE=middleware, BENCH_POLL_SECONDS="1")
    log_path = here.scratch / f"{server}{middleware}.log"
    command = [sys.executable, "-m", name, *quiet[server], *arguments]
    with running(command, log_path=log_path, environment=environment) as process:
        wait_for_port(port, process=process, log_path=log_path)
        yield port, process.pid


def _round(
    port: int, pid: int, variant: Variant, keys: list[str], requests: int, *, warm: bool
) -> tuple[float, float, float]:
    """CPU of the server per request, p50 and p99 of an answer."""
    took = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    computed = _cpu_seconds(pid)
    for number in range(requests):
        headers = {"Authorization": keys[number % len(keys)]} if variant.key else {}
        began = time.perf_counter()
        connection.request("GET", variant.path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        took.append(time.perf_counter() - began)
        # Until it is warm, those who are to be refused may still have tokens.
        if answer.status != variant.status and warm:
            raise RuntimeError(f"{variant.name}: {answer.status} instead of {variant.status}: {body[:200]!r}")
    connection.close()
    p50, p99 = rounds.percentiles(took, 50, 99)
    return (_cpu_seconds(pid) - computed) / requests * 1e6, p50, p99


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and its children, threads that ended included."""
    its_clock = (~pid << 3) | 2  # what clock_getcpuclockid(3) returns on Linux
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return time.clock_gettime(its_clock) + sum(_cpu_seconds(int(child)) for child in children)


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    return {server: _table(server, content[server]) for server in SERVERS}


def _table(server: str, rows: dict[str, Any]) -> str:
    bare = {"plain": "plain view, bare", "async": "async view, bare"}

    def on_top(name: str) -> str:
        base = rows[bare.get(name.split()[0], "DRF view, bare")]["cpu_us"][0]
        return f"{rows[name]['cpu_us'][0] - base:+,.0f}"

    cells = []
    for variant in SERVERS[server]:
        cpu, *latencies = (shown(rows[variant.name][each], digits=0) for each in ("cpu_us", "p50_us", "p99_us"))
        cells.append((variant.name, cpu, on_top(variant.name), *latencies))
    return table([server, "CPU us", "on top of bare", "p50 us", "p99 us"], cells)


if __name__ == "__main__":
    main()
