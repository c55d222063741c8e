"""What do the templates of the pages need beside Django's own? Moments with their zone, and how fresh the data is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import template

from ratelimit_app.pages import freshness, text

register = template.Library()


@register.filter
def written(at: datetime, how: str = text.TO_THE_MINUTE) -> str:
    """A moment on the reader's clock, in one of Django's formats, with its zone: also in the hour that comes twice."""
    return text.written(at, how)


@register.inclusion_tag("admin/ratelimit_app/freshness.html")
def data_freshness() -> dict[str, Any]:
    """The line that says as of when a page is, and how old the newest data behind it; for pages without a range."""
    return freshness.freshness(now=datetime.now(UTC))
