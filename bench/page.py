"""How do the figures get into docs/performance.md? Between its markers stands what bench/results.json says.

    python -m bench.page

A table stands between `<!-- table decisions.cost -->` and `<!-- end -->`; nobody writes there by hand,
and a test holds the page to the results.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import bars, decisions, exactness, fleet, growth, hot_key, memory, outage, pages, results, steps, views

PATH = Path(__file__).parent.parent / "docs" / "performance.md"
_PLACE = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
#: By section of the results, the tables that it makes.
SECTIONS: dict[str, Callable[[dict[str, Any]], dict[str, str]]] = {
    "decisions": decisions.tables,
    "steps": steps.tables,
    "fleet": fleet.tables,
    "outage": outage.tables,
    "hot_key": hot_key.tables,
    "views": views.tables,
    "memory": memory.tables,
    "exactness": exactness.tables,
    "growth": growth.tables,
    "pages": pages.tables,
}


def main() -> None:
    PATH.write_text(rendered(PATH.read_text(), results.read()))


def rendered(page: str, measured: dict[str, Any]) -> str:
    """The page with its tables renewed; KeyError for a marker that names no table of a measured section."""
    known = {"bars": bars.table_of(measured), "machine": results.circumstances_shown(measured)}
    for section, tables in SECTIONS.items():
        if section in measured:
            known |= {f"{section}.{name}": table for name, table in tables(measured[section]).items()}

    def table(name: str) -> str:
        section = name.partition(".")[0]
        return "Not measured yet." if section in SECTIONS and section not in measured else known[name]

    return _PLACE.sub(lambda place: f"{place[1]}\n{table(place[2])}\n\n{place[3]}", page)


if __name__ == "__main__":
    main()
