"""How does a measurement run by itself? With its options, on a server of its own; it prints and writes its tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bench import place, results

#: Adds options of a measurement; measures; shows what was measured as Markdown.
Options = Callable[[argparse.ArgumentParser], None]
Measure = Callable[[place.Place, argparse.Namespace], dict[str, Any]]
Tables = Callable[[dict[str, Any]], dict[str, str]]


def run(section: str, question: str, *, options: Options, measure: Measure, tables: Tables) -> None:
    """Measure one section, write it down, print it. `--dry` leaves bench/results.json alone."""
    parser = argparse.ArgumentParser(description=question, prog=f"python -m bench.{section}")
    parser.add_argument("--dry", action="store_true", help="print only; bench/results.json stays as it is")
    options(parser)
    chosen = parser.parse_args()
    with place.server() as here:
        content = measure(here, chosen)
        if not chosen.dry:
            results.write(section, content, redis_url=here.redis_url)
    say("\n\n".join(tables(content).values()))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
