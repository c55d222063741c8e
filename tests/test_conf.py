"""Are the settings read live, and is everything that cannot be used said?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from ratelimit_app import conf

REFERENCE = Path(__file__).parent.parent / "docs" / "settings.md"


def problems(**entries: Any) -> dict[str, str]:
    with override_settings(RATELIMIT_APP=entries):
        return dict(conf.problems())


def test_the_defaults_are_in_force_without_any_setting(settings):
    del settings.RATELIMIT_APP
    current = conf.current()
    assert (current.mode, current.cache, current.prefix) == ("enforce", "ratelimit", "rl")
    assert current.prefix
    assert conf.problems() == []


def test_settings_are_read_live_inside_and_after_an_override():
    before = conf.current()
    with override_settings(RATELIMIT_APP={"MODE": "shadow", "EXEMPT_PATHS": ["/a"]}):
        assert conf.current().mode == "shadow"
        assert conf.current().exempt_paths == ("/a",)
        with override_settings(RATELIMIT_APP={"MODE": "off"}):
            assert conf.current().mode == "off"
        assert conf.current().mode == "shadow"
    assert conf.current() == before


def test_every_default_is_valid():
    defaults = {name: getattr(conf.Settings(), name.lower()) for name in conf.NAMES}
    assert problems(**defaults) == {}


def test_reading_the_settings_costs_next_to_nothing_while_they_stay_the_same():
    assert conf.current() is conf.current()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MODE", "enforced"),
        ("MODE", None),
        ("CACHE", ""),
        ("PREFIX", ""),
        ("PREFIX", 5),
        ("TIMEOUT_SECONDS", 0),
        ("TIMEOUT_SECONDS", -1),
        ("TIMEOUT_SECONDS", "0.005"),
        ("TIMEOUT_SECONDS", True),
        ("TIMEOUT_SECONDS", float("nan")),
        ("TIMEOUT_SECONDS", float("inf")),
        ("CONNECT_TIMEOUT_SECONDS", None),
        ("KEY_PREFIX", ""),
        ("KEY_HEADERS", "X-API-Key"),
        ("KEY_HEADERS", [5]),
        ("KEY_CACHE_SIZE", 1.5),
        ("KEY_CACHE_SIZE", 0),
        ("BUCKET_HASHES", -1),
        ("BUCKET_HASHES", 1_000_001),
        ("BUCKET_HASHES", 64.0),
        ("BUCKET_HASHES", "32768"),
        ("POLL_SECONDS", -1),
        ("PROXY_COUNT", -1),
        ("TRUSTED_PROXIES", "10.0.0.0/8"),
        ("EXEMPT_PATHS", "/healthz"),
        ("EXEMPT_PATHS", ["healthz"]),
        ("EXEMPT_PATHS", [""]),
        ("PATHS", ["/api/"]),
        ("PATHS", {"/api/": "sometimes"}),
        ("PATHS", {"api/": "required"}),
        ("PATHS", {5: "required"}),
        ("HEADERS", ["x"]),
        ("HEADERS", "legacy"),
        ("BUFFER_SIZE", 0),
        ("RETENTION_DAYS", 0),
        ("SITE_URL", None),
        ("ALERT_BLOCKED_PERCENT", -1),
        ("ALERT_BLOCKED_PERCENT", "5 %"),
        ("ALERT_MIN_REQUESTS", 0),
        ("ALERT_EMAILS", "on-call@example.com"),
        ("TIMEOUT", 0.005),
        ("mode", "enforce"),
    ],
)
def test_a_value_that_cannot_be_used_is_said_by_name(name, value):
    assert list(problems(**{name: value})) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUCKET_HASHES", 0),
        ("BUCKET_HASHES", 1),
        ("BUCKET_HASHES", 1_000_000),
        ("POLL_SECONDS", 0),
        ("PROXY_COUNT", 0),
        ("TIMEOUT_SECONDS", 1),
        ("HEADERS", []),
        ("HEADERS", ("ietf",)),
        ("PATHS", {}),
        ("PATHS", {"/": "optional"}),
        ("QUEUE", ""),
        ("ALERT_BLOCKED_PERCENT", 0),
        ("ALERT_P99_SECONDS", 0),
        ("ALERT_LATE_SECONDS", 0),
        ("ALERT_EMAILS", []),
    ],
)
def test_a_value_that_can_be_used_is_not_complained_of(name, value):
    assert problems(**{name: value}) == {}


@pytest.mark.parametrize("whole", [["MODE"], "enforce", 5])
def test_something_else_than_a_dict_is_said(whole):
    with override_settings(RATELIMIT_APP=whole):
        assert [name for name, _ in conf.problems()] == ["RATELIMIT_APP"]


def test_every_setting_has_a_heading_in_the_reference_and_no_heading_is_left_over():
    assert REFERENCE.exists(), f"{REFERENCE.name} is missing: it needs a heading for each of {', '.join(conf.NAMES)}"
    headings = re.findall(r"^#{2,4} +`?([A-Z][A-Z0-9_]+)`?\s*$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    missing = sorted(set(conf.NAMES) - set(headings))
    assert not missing, f"docs/settings.md has no heading for {', '.join(missing)}"
    left_over = sorted(set(headings) - set(conf.NAMES))
    assert not left_over, f"docs/settings.md describes {', '.join(left_over)}, which conf.py does not know"
    assert len(headings) == len(set(headings)), "docs/settings.md describes a setting twice"
