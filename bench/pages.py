"""How long do the pages of the people on call take, over full tables and over nearly empty ones?

    python -m bench.pages [--keys 50000] [--minutes 5000000]

`--minutes` is how many rows count what one key got in one minute. On a PostgreSQL of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

import psycopg

from bench import alone, place
from bench.results import table
from tests.servers import PostgresServer

FEW_KEYS, FEW_MINUTES = 100, 10_000


def main() -> None:
    alone.run("pages", "How long do pages take over full tables?", options=_options, measure=measure, tables=tables)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--minutes", type=int, default=5_000_000)


def measure(here: place.Place, options: argparse.Namespace) -> dict[str, Any]:
    server = PostgresServer(here.scratch / "postgres")
    try:
        return {
            "few": _in_database(here, server, "few", keys=FEW_KEYS, minutes=FEW_MINUTES),
            "many": _in_database(here, server, "many", keys=options.keys, minutes=options.minutes),
        }
    finally:
        server.stop()


def _in_database(here: place.Place, server: PostgresServer, name: str, *, keys: int, minutes: int) -> dict[str, Any]:
    """Another database needs another process."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server.url.rpartition("/")[0] + f"/{name}"
    # The settings of the tests have an admin.
    settings = {**place.environment(here), "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    command = [sys.executable, "-m", "bench.page_times", "--keys", str(keys), "--minutes", str(minutes)]
    done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


# --- Shown -------------------------------------------------------------------------------------


def tables(content: dict[str, Any]) -> dict[str, str]:
    few, many = content["few"], content["many"]
    rows = [
        (
            name,
            f"{few['pages'][name]['median_ms']:,.0f}",
            f"{page['median_ms']:,.0f}",
            f"{page['most_ms']:,.0f}",
            few["pages"][name]["queries"],
            page["queries"],
        )
        for name, page in many["pages"].items()
    ]
    sizes = [
        (f"{each['keys']:,}", *(f"{each['rows'][span]:,}" for span in ("minute", "hour", "day")))
        for each in (few, many)
    ]
    keys = f"{many['keys']:,} keys"
    return {
        "rows": table(["keys", "of a key's minute", "of its hour", "of its day"], sizes),
        "times": table(
            ["", f"{few['keys']} keys: ms", f"{keys}: ms", "slowest of 5", f"queries: {few['keys']} keys", keys], rows
        ),
    }


if __name__ == "__main__":
    main()
