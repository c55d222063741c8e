"""What do the tests of the pages stand on? A real Chromium that forgives nothing, signed in, on a live server.

Chromium is Debian's (`apt install chromium`), or the program that `CHROMIUM` names; without one these tests are
skipped. They run when they are asked for by path, as `make test-pages` does: they are too slow for every run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from tests.browser.visitor import Visitor

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this directory out of a run that does not name it."""
    named = (Path(argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path == HERE or HERE in path.parents for path in named) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser: one per module, because its event loop must be gone when tests with their own begin."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no Chromium; on Debian: apt install chromium")
    from playwright.sync_api import sync_playwright

    # Playwright's sync API is a greenlet inside a running event loop, where Django would refuse every query. The loop
    # stands still while a test runs, so nothing is unsafe about it.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=program,
                args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],  # as root, in a container
                timeout=120_000,
            )
            try:
                yield browser
            finally:
                browser.close()
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture
def visit(chromium: Any, transactional_db: None, live_server: Any) -> Iterator[Callable[..., Visitor]]:
    """`visit("/admin/…", dark=True, width=500)`: a superuser in front of that page.

    At the end of the test every complaint of the browser about any page fails it: errors of scripts, violations of
    the Content Security Policy, files that are missing.
    """
    visitors: list[Visitor] = []

    def sign_in_and_open(path: str, *, user: Any = None, **options: Any) -> Visitor:
        client = Client()
        client.force_login(user or get_user_model().objects.create_superuser(f"ops{len(visitors) or ''}"))
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        visitors.append(Visitor(chromium, str(live_server.url), session=session, **options))
        visitors[-1].open(path)
        return visitors[-1]

    yield sign_in_and_open

    complaints = [complaint for visitor in visitors for complaint in visitor.leave()]
    assert complaints == []
