"""What do the pages look like? `make screenshots` writes docs/*.png, light and dark, from the seeded data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import seeded
from tests.overview_page import URL

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: name of the file, address, width
PAGES = [("overview", URL, 1280)]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("name", "path", "width"), PAGES, ids=[name for name, *_ in PAGES])
def test_screenshot(name: str, path: str, width: int, dark: bool, visit: Any, settings: Any) -> None:
    settings.TIME_ZONE = "UTC"
    seeded.fill()
    visitor = visit(path, dark=dark, width=width)
    visitor.page.screenshot(path=DOCS / f"{name}-{'dark' if dark else 'light'}.png", full_page=True)
