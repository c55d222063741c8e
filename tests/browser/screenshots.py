"""What do the pages look like? `make screenshots` writes docs/*.png, light and dark, from the seeded data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import happened
from tests.browser.pages import PAGES

DOCS = Path(__file__).resolve().parents[2] / "docs"
WIDTH, TALLEST = 1280, 2100


@pytest.mark.parametrize("name", PAGES)
def test_screenshot(name: str, visit: Any, settings: Any) -> None:
    settings.TIME_ZONE = "UTC"
    happened.fill()
    visitor = visit("/admin/jsi18n/")
    PAGES[name](visitor)
    for dark in (False, True):
        visitor.show(width=WIDTH, dark=dark)
        path = DOCS / f"{name}-{'dark' if dark else 'light'}.png"
        height = min(TALLEST, visitor.page.evaluate("document.documentElement.scrollHeight"))
        visitor.page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
