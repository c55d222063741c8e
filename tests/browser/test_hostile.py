"""Does anything that somebody else wrote ever run, or become more than text, on any page?"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model

from ratelimit_app.models import AlertMessage, APIKey, Episode, OutageSpan, Plan, PlanVersion, Refusal, RefusalMinute
from tests.browser import happened
from tests.browser.pages import PAGES

HOSTILE = "<img src=x onerror=\"window.owned='yes'\"></script><script>window.owned='yes'</script>\u202e"
FOREIGN = "document.querySelectorAll(\"img[src='x'], body script:not([src]):not([type='application/json'])\").length"


def test_what_others_wrote_runs_on_no_page(visit: Any) -> None:
    happened.fill()
    Plan.objects.exclude(slug__in=("pro", "free")).update(name=HOSTILE[:80], description=HOSTILE)
    Plan.objects.filter(slug="pro").update(description=HOSTILE)
    APIKey.objects.exclude(name=happened.NAME).update(name=HOSTILE[:100], revoked_reason=HOSTILE)
    APIKey.objects.filter(name=happened.NAME).update(boost_reason=HOSTILE)
    get_user_model().objects.filter(username="anna").update(username=HOSTILE)
    RefusalMinute.objects.filter(route="api-items").update(route=HOSTILE)
    Refusal.objects.update(route=HOSTILE, method=HOSTILE[:10], address=HOSTILE[:64], limit_name=HOSTILE[:50])
    OutageSpan.objects.update(error=HOSTILE[:50], server=HOSTILE[:100])
    Episode.objects.update(note=HOSTILE, acknowledged_by=HOSTILE)
    AlertMessage.objects.update(error=HOSTILE)
    PlanVersion.objects.update(who=HOSTILE, reason=HOSTILE)
    visitor = visit("/admin/jsi18n/")

    shown = 0
    for name, go in PAGES.items():
        go(visitor)
        assert visitor.page.evaluate("window.owned") is None, name
        assert visitor.page.evaluate(FOREIGN) == 0, name
        shown += "<img src=x" in visitor.page.locator("main").inner_text()
    assert shown > 12
