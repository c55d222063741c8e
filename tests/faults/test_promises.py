"""Does the README promise only what is tested? Each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from ratelimit_app import breaker
from ratelimit_app.conf import Settings
from tests.faults import kinds

ROOT = Path(__file__).resolve().parent.parent.parent
OTHERS = (ROOT / "tests/test_outage.py", ROOT / "tests/test_project.py")


def named_in_the_last_column():
    section = (ROOT / "README.md").read_text().partition("### What breaks, and what you will see")[2]
    tables = section.partition("```")[0]
    return re.findall(r"\| `([^`]{3,})` \|$", tables, re.MULTILINE)


def test_each_way_to_fail_has_its_line_and_each_line_its_test():
    code = "".join(path.read_text() for path in [*Path(__file__).parent.glob("test_*.py"), *OTHERS])
    tests = re.findall(r"def (test_\w+)", code)
    named = named_in_the_last_column()
    assert {fault.name for fault in kinds.ALL} <= set(named)
    for words in set(named) - {fault.name for fault in kinds.ALL} - {"make soak"}:
        assert [name for name in tests if words in name], words


def test_the_numbers_are_those_of_the_code():
    settings = Settings()
    assert (settings.timeout_seconds, settings.connect_timeout_seconds) == (0.005, 0.020)  # "5 ms", "20 ms"
    assert breaker.FAILURES_IN_A_ROW == 3
    assert breaker.LONGEST_PAUSE_SECONDS == 1.0
