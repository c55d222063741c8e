"""Can somebody on call find what is wrong, look at its time, and say that they take care of it?"""

from __future__ import annotations

import re
from typing import Any

from django.contrib.admin.models import LogEntry

from ratelimit_app.models import Episode
from tests.browser import happened
from tests.overview_page import URL

ALERTS = "/admin/ratelimit_app/episode/"
OUTAGES = "/admin/ratelimit_app/outagespan/"


def test_an_open_alert_is_found_from_the_overview_and_acknowledged(visit: Any) -> None:
    happened.fill()
    page = visit(URL).page
    assert "34.1 % of its requests blocked" in page.locator("#rl-attention").inner_text()

    page.goto(page.url.replace(URL, ALERTS))
    page.get_by_role("link", name="open", exact=True).click()
    page.locator("#result_list").get_by_role("link", name="a key is blocked a lot").click()
    page.get_by_label("Note").fill("I have written to them.")
    page.get_by_role("button", name="Save", exact=True).click()

    page.locator(".messagelist").wait_for()
    episode = Episode.objects.get(kind="key_blocked")
    assert (episode.note, episode.acknowledged_by, episode.ended_at) == ("I have written to them.", "ops", None)
    assert LogEntry.objects.get().object_id == str(episode.pk)
    page.goto(page.url.partition("/admin/")[0] + URL)
    assert "ops takes care of it." in page.locator("#rl-attention").inner_text()


def test_alerts_are_filtered_by_state(visit: Any) -> None:
    happened.fill()
    page = visit(ALERTS).page
    assert page.locator("#result_list tbody tr").count() == 2

    page.get_by_role("link", name="over", exact=True).click()

    page.wait_for_url("**/?state=ended")
    assert page.locator("#result_list tbody tr").count() == 1
    assert "requests not decided by Redis" in page.locator("#result_list").inner_text()


def test_an_alert_that_is_over_leads_to_its_own_time(visit: Any) -> None:
    happened.fill()
    page = visit(ALERTS + "?state=ended").page
    page.locator("#result_list").get_by_role("link", name="requests not decided by Redis").click()
    assert "The failover took four minutes." in page.get_by_label("Note").input_value()

    page.get_by_role("link", name="what happened at that time").click()

    page.wait_for_url(re.compile(r"from=.*to="))
    assert page.locator("[data-chart=requests] canvas").count() == 1
    assert re.search(r"\d\d:\d\d to \d\d:\d\d", page.locator("#rl-freshness").inner_text())
    assert "passed unchecked" in page.locator("#rl-attention").inner_text()


def test_an_outage_leads_to_the_requests_of_its_time(visit: Any) -> None:
    happened.fill()
    page = visit(URL).page

    page.locator("#rl-undecided tbody th a").click()

    page.wait_for_url(re.compile("(from=.*to=|/outagespan/)"))
    assert "timeout" in page.locator("#content").inner_text()
    assert re.search(r"1\d\d,\d{3}", page.locator("#content").inner_text()), "how many passed unchecked"


def test_outages_are_listed_with_their_reason(visit: Any) -> None:
    happened.fill()

    page = visit(OUTAGES).page

    assert page.locator("#content").get_by_text("timeout").first.is_visible()
