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


def _fleet(content: dict[str, Any]) -> Iterator[Row]:
    rows = content["rows"]
    over = max(row["most_over"] for row in rows)
    yield _row(f"{content['gateways']} gateways: over the bound (P1)", "never", f"{over} tokens", over == 0)
    exact = [row["over_exact"] for row in rows]
    furthest = max(exact, key=lambda part: abs(part - 1))
    yield _row("admitted over exact", "within 5 %, aim 0.1 %", f"{furthest:.2%}", abs(furthest - 1) <= 0.05)


def _outage(content: dict[str, Any]) -> Iterator[Row]:
    worst = max(row["p99_us"][0] for name, row in content.items() if name != "measured") / 1e3
    yield _row("p99 of answers while the breaker is open (P4)", "below 2 ms", f"{worst:.2f} ms", worst < 2)
    back = max(row["resumed_seconds"][0] for name, row in content.items() if name != "measured")
    yield _row("limiting resumes after (P4)", "1 s", f"{back:.2f} s", back <= 1.1)


def _hot_key(content: dict[str, Any]) -> Iterator[Row]:
    flooded = content["one key, known to be out"]["p99_us_ratio"]
    computing = content["a process that computes"]["p99_us_ratio"]
    measured = f"{shown(flooded, digits=2)}; beside mere computing {shown(computing, digits=2)}"
    yield _row("a flood by one key: others' p99, x idle", "at most 1.5", measured, flooded[0] <= 1.5)


def _views(content: dict[str, Any]) -> Iterator[Row]:
    for server in ("gunicorn", "uvicorn"):
        rows = content[server]
        bare = rows["DRF view, bare"]["cpu_us"][0]
        ours = rows["DRF view, our middleware, throttle and key"]["cpu_us"][0] - bare
        drfs = rows["DRF view, DRF's throttle and token"]["cpu_us"][0] - bare
        name = f"{server}: ours on top of a bare view, to DRF's throttle and token"
        yield _row(name, "less", f"{ours:,.0f} to {drfs:,.0f} us", ours < drfs)


def _memory(content: dict[str, Any]) -> Iterator[Row]:
    each = content["rows"]["ours, token bucket"]["bytes"]
    yield _row("2,000,000 token buckets (P7)", "100 MB", f"{each * 2:.0f} MB", each <= 50)


def _exactness(content: dict[str, Any]) -> Iterator[Row]:
    worst = max(content["rows"]["ours: limiter.check"].values())
    yield _row("over the bound with clocks 500 ms apart (P1)", "at most 1", f"{worst:.2f}", worst <= 1)


def _pages(content: dict[str, Any]) -> Iterator[Row]:
    few, many = (content[size]["pages"] for size in ("few", "many"))
    slowest = max(many, key=lambda name: many[name]["median_ms"])
    took = many[slowest]["median_ms"]
    name = f"the slowest page over {content['many']['rows']['minute'] / 1e6:.0f},000,000 minutes of keys"
    yield _row(name, "below 500 ms", f"{took:.0f} ms ({slowest})", took < 500)
    more = sum(page["queries"] != few[name]["queries"] for name, page in many.items())
    yield _row("pages that cost more queries over them", "none", str(more or "none"), more == 0)


_JUDGES: dict[str, Callable[[dict[str, Any]], Iterator[Row]]] = {
    "decisions": _decisions,
    "fleet": _fleet,
    "outage": _outage,
    "hot_key": _hot_key,
    "views": _views,
    "memory": _memory,
    "exactness": _exactness,
    "pages": _pages,
}
