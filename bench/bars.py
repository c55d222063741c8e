"""Which promises do the figures keep? One row for each bar that the design sets, whatever the answer is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.results import shown, table

Row = tuple[str, str, str, str]


def table_of(measured: dict[str, Any]) -> str:
    """The bars of all sections that were measured."""
    rows = [row for section, judge in _JUDGES.items() if section in measured for row in judge(measured[section])]
    return table(["bar", "wanted", "measured", "met"], rows)


def _row(name: str, wanted: str, measured: str, met: bool) -> Row:
    return name, wanted, measured, "yes" if met else "no"


def _decisions(content: dict[str, Any]) -> Iterator[Row]:
    one = content.get("same_core", content["two_cores"])["ours: limiter.check"]
    yield _row("a decision, in PINGs (P2)", "at most 1", shown(one["ratio"], digits=2), one["ratio"][0] <= 1)
    yield _row("round trips of a decision (P2)", "1", shown(one["trips"], digits=1), one["trips"][0] < 1.05)
    known, asked = (content["refused"][name] for name in ("ours, known to be out", "ours, asking Redis"))
    times = asked["p50_us"][0] / known["p50_us"][0]
    yield _row("a known refusal, cheaper than a decision (P3)", "20 times", f"{times:.1f} times", times >= 20)
    paced = {count: row["ours: limiter.check"]["p99_us"][0] for count, row in content["paced"].items()}
    worst = max(paced.values()) / paced["1"]
    yield _row("p99 with threads, to one thread's at the same load", "at most 2", f"{worst:.1f}", worst <= 2)


_JUDGES: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "decisions": _decisions,
}
