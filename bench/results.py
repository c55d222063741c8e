"""What is written down? bench/results.json: machine, versions, and each figure as a median and its spread.

A figure is [median, lower quartile, upper quartile] over interleaved rounds. `table` shows them.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import redis

PATH = Path(__file__).with_name("results.json")
_PACKAGES = (
    *("Django", "djangorestframework", "django-redis", "redis", "hiredis", "celery", "gunicorn", "uvicorn"),
    *("django-ratelimit", "django-smart-ratelimit", "drf-ratelimit-plus", "limits", "pyrate-limiter", "throttled-py"),
)

Figure = list[float]


def figure(values: Iterable[float], *, digits: int = 3) -> Figure:
    """The median of a round's values and its quartiles."""
    values = list(values)
    low, high = (quantiles(values, n=4)[0], quantiles(values, n=4)[2]) if len(values) > 1 else (values[0], values[0])
    return [round(value, digits) for value in (median(values), low, high)]


def write(section: str, content: dict[str, Any], *, redis_url: str) -> None:
    """Put one section into the file, with where and when it was measured; the others stay."""
    everything = read()
    everything[section] = {"measured": _circumstances(redis_url), **content}
    PATH.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")


def read() -> dict[str, Any]:
    """All sections by name; none before the first measurement."""
    return dict(json.loads(PATH.read_text())) if PATH.exists() else {}


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows as a table in Markdown, numbers to the right, columns in line so that a terminal shows them too."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in [list(heads), *texts]) for place in range(len(heads))]
    lines = [
        _line(heads, widths),
        "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|",
    ]
    return "\n".join([*lines, *(_line(row, widths) for row in texts)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join([first.strip().ljust(widths[0]), *others])} |"


def shown(value: Figure | float, *, digits: int = 1, spread: bool = False) -> str:
    """A figure's median, and its quartiles if asked for."""
    if not isinstance(value, list):
        return f"{value:,.{digits}f}"
    text = f"{value[0]:,.{digits}f}"
    return f"{text} ({value[1]:,.{digits}f}–{value[2]:,.{digits}f})" if spread else text  # noqa: RUF001 - a range


def circumstances_shown(measured: dict[str, Any]) -> str:
    """What was measured on, and with: a line for each kind of machine, server and set of versions."""
    lines: dict[str, list[str]] = {}
    for section, content in measured.items():
        on = content["measured"]
        versions = ", ".join(f"{name} {version}" for name, version in on["packages"].items())
        text = (
            f"{on['machine']['processor']}, {on['machine']['cores']} cores, {on['machine']['system']}; {on['server']}; "
            f"Python {on['python']}; {versions}."
        )
        lines.setdefault(text, []).append(f"{section} ({on['at'][:10]}, load {on['load_after']} at its end)")
    return "\n".join(f"- {', '.join(sorted(sections))}: {text}" for text, sections in lines.items())


def _circumstances(redis_url: str) -> dict[str, Any]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        info: dict[str, Any] = client.info("server")
    name = info.get("server_name", "redis")
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "server": f"{name} {info.get(f'{name}_version', info['redis_version'])}",
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.system(),
        },
        "load_after": round(os.getloadavg()[0], 1),
        "python": sys.version.split()[0],
        "packages": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
