"""What do the pages look like? `make screenshots` writes docs/*.png, light and dark, from the seeded data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from ratelimit_app.models import APIKey
from tests.browser import seeded
from tests.overview_page import URL

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: By the name of the file, the address, given the seeded keys.
PAGES: dict[str, Callable[[dict[str, APIKey]], str]] = {
    "overview": lambda keys: URL,
    "key": lambda keys: reverse("admin:ratelimit_app_apikey_page", args=[keys["Acme mobile app"].pk]),
    "shadow": lambda keys: reverse("admin:ratelimit_app_plan_shadow"),
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_screenshot(name: str, dark: bool, visit: Any, settings: Any) -> None:
    settings.TIME_ZONE = "UTC"
    visitor = visit(PAGES[name](seeded.fill()), dark=dark, width=1280)
    visitor.page.screenshot(path=DOCS / f"{name}-{'dark' if dark else 'light'}.png", full_page=True)
