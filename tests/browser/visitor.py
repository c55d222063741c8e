"""Who looks at the pages? A person with a browser: a theme, a window, and complaints that are written down."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from django.conf import settings

#: WCAG 2.2 A and AA, and what came before them. Preloading would write styles into the page, which the policy forbids.
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]},
    "preload": False,
}
#: Runs before the scripts of each page. The console says the same, but less precisely.
WRITE_DOWN_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP ${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
});
"""
#: Links change their colour slowly, and half-way nobody could read them.
WAIT_FOR_COLOURS = """
() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
  .then(() => Promise.allSettled(document.getAnimations().map((animation) => animation.finished)))
  .then(() => null)
"""
#: A test need not wait for the next refresh: becoming visible is one.
REFRESH_NOW = "document.dispatchEvent(new Event('visibilitychange'))"
PATIENCE_MILLISECONDS = 120_000


class Visitor:
    """One browser window. `page` is Playwright's, to be driven directly."""

    def __init__(
        self,
        browser: Any,
        server: str,
        *,
        session: str,
        dark: bool = False,
        width: int = 1280,
        height: int = 900,
        time_zone: str = "UTC",
        javascript: bool = True,
    ) -> None:
        self.server = server
        self.complaints: list[str] = []
        self._context = browser.new_context(
            color_scheme="dark" if dark else "light",
            viewport={"width": width, "height": height},
            timezone_id=time_zone,
            java_script_enabled=javascript,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._context.set_default_timeout(PATIENCE_MILLISECONDS)
        self._context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": server}])
        self._context.add_init_script(WRITE_DOWN_VIOLATIONS)
        self.page = self._context.new_page()
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))

    def open(self, path: str) -> None:
        """Go to a page and wait until it and its scripts are there."""
        self.page.goto(self.server + path, wait_until="load")

    def show(self, *, width: int, dark: bool) -> None:
        """Look at the same page in another window, or by night."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme="dark" if dark else "light")
        self.page.evaluate(WAIT_FOR_COLOURS)

    def barriers(self) -> list[str]:
        """What axe finds on the page as it is now: violations of WCAG A and AA, each with where it is."""
        violations = Axe().run(self.page, options=RULES).response["violations"]
        return [
            f"{violation['id']}: {violation['help']}: {node['html'][:200]}"
            for violation in violations
            for node in violation["nodes"]
        ]

    def leave(self) -> list[str]:
        """Close the window. Returns what the browser complained about."""
        self._context.close()
        return self.complaints

    def _listen(self, message: Any) -> None:
        is_about_us = not message.location["url"].endswith("/favicon.ico")  # the tests' site has none
        if message.type in ("error", "warning") and is_about_us:
            self.complaints.append(f"{self.page.url}: {message.text}")
