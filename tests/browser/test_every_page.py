"""Is there a page that keeps somebody out, breaks the site's policy, or does not fit a telephone?"""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import happened
from tests.browser.pages import PAGES

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.parametrize("name", PAGES)
def test_nobody_is_kept_out(name: str, visit: Any) -> None:
    happened.fill()
    visitor = visit("/admin/jsi18n/")  # the least of all pages: this only signs in
    PAGES[name](visitor)

    visitor.page.evaluate("document.querySelectorAll('main details').forEach((part) => { part.open = true; })")
    for dark in (False, True):
        for width in (1280, 390):
            visitor.show(width=width, dark=dark)
            assert visitor.barriers() == [], f"{width} wide, {'dark' if dark else 'light'}"
            assert visitor.page.evaluate(OVERFLOW) <= 0, "the page itself never scrolls sideways"


def test_the_index_of_the_app_breaks_no_policy(visit: Any) -> None:
    visit("/admin/ratelimit_app/")  # Django's own, and so are its colours
