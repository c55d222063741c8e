"""Does the overview work in the hands of somebody on call?"""

from __future__ import annotations

import re
import uuid
from typing import Any

from django.utils import timezone

from ratelimit_app.models import Batch
from tests.browser import seeded
from tests.browser.visitor import REFRESH_NOW
from tests.overview_page import URL, used


def test_an_empty_overview_keeps_nobody_out(visit: Any) -> None:
    assert visit(URL).barriers() == []


def test_three_charts_are_drawn(visit: Any) -> None:
    seeded.fill()
    page = visit(URL).page

    assert page.locator("#rl-page[data-drawn='3']").count() == 1
    for name in ("requests", "share", "times"):
        assert page.locator(f"[data-chart={name}] canvas").count() == 1


def test_charts_follow_the_theme_and_the_window(visit: Any) -> None:
    seeded.fill()
    page = visit(URL).page
    plot = page.locator("[data-chart=requests]")
    before = plot.locator("canvas").evaluate("canvas => canvas.toDataURL()")

    page.locator(".theme-toggle").first.click()
    page.set_viewport_size({"width": 700, "height": 900})

    plot.locator("canvas").wait_for()
    page.locator("html[data-theme=dark]").wait_for()
    width = plot.bounding_box()["width"]
    page.locator(f"[data-chart=requests] .u-wrap[style*='width: {width:.0f}px']").wait_for()
    assert page.locator("[data-chart] canvas").count() == 3
    assert plot.locator("canvas").evaluate("canvas => canvas.toDataURL()") != before


def test_another_range_shows_another_time(visit: Any) -> None:
    seeded.fill()
    page = visit(URL).page

    page.get_by_role("link", name="15 min", exact=True).click()

    page.wait_for_url("**/?range=15m")
    assert page.locator("[aria-current=true]").inner_text() == "15 min"
    page.locator("#rl-requests summary").click()
    assert page.locator("#rl-requests tbody tr").count() == 15


def test_the_plan_filter_stays_when_the_range_changes(visit: Any) -> None:
    seeded.fill()
    page = visit(URL + "?range=6h").page

    page.get_by_label("Plan").select_option("Free")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile(r"range=6h&plan=free"))
    page.get_by_role("link", name="24 h", exact=True).click()
    page.wait_for_url(re.compile(r"plan=free"))

    names = page.locator("#rl-callers tbody bdi").all_inner_texts()
    assert "Nightly ETL" in names
    assert "checkout-web" not in names


def test_dragging_over_a_chart_looks_at_that_span_in_every_panel(visit: Any) -> None:
    seeded.fill()
    page = visit(URL).page
    box = page.locator("[data-chart=requests] .u-over").bounding_box()

    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=5)
    page.mouse.up()

    page.wait_for_url(re.compile(r"from=.*&to="))
    assert page.locator("[aria-current=true]").count() == 0
    assert re.search(r"\d\d:\d\d to \d\d:\d\d", page.locator("#rl-freshness").inner_text())
    for table in ("#rl-requests-table", "#rl-times-table"):
        assert 27 <= page.locator(f"{table} tbody tr").count() <= 33
    assert page.locator(".rl-pause").is_hidden(), "the past does not change"


def test_a_row_of_a_table_leads_to_its_span_without_a_mouse(visit: Any) -> None:
    seeded.fill()
    page = visit(URL + "?range=6h").page
    page.locator("#rl-requests summary").press("Enter")

    page.locator("#rl-requests tbody a").nth(5).press("Enter")

    page.wait_for_url(re.compile(r"from="))
    assert page.locator("#rl-requests-table tbody tr").count() == 5


def test_new_numbers_arrive_by_themselves_and_open_tables_and_focus_stay(visit: Any) -> None:
    seeded.fill()
    page = visit(URL).page
    page.locator("#rl-times summary").click()
    page.get_by_role("link", name="6 h", exact=True).focus()
    assert "10,000,000" not in page.locator("#rl-callers").inner_text()

    used("*", ago=1, allowed=1, refused=10_000_000)
    page.evaluate(REFRESH_NOW)

    page.locator("#rl-callers", has_text="10,000,000").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "6 h"
    assert page.locator("#rl-times-table").get_attribute("open") is not None
    assert page.locator("[data-chart=requests] canvas").count() == 1


def test_a_part_that_has_the_focus_is_left_alone(visit: Any) -> None:
    seeded.fill()
    page = visit(URL).page
    page.locator("#rl-callers .rl-scroll").focus()

    used("*", ago=1, allowed=1, refused=10_000_000)
    page.evaluate(REFRESH_NOW)

    page.locator("#rl-figures", has_text="10,0").wait_for()
    assert "10,000,000" not in page.locator("#rl-callers").inner_text()
    assert page.evaluate("document.activeElement.closest('#rl-callers') !== null")


def test_refresh_can_be_paused_and_the_address_and_links_say_so(visit: Any) -> None:
    seeded.fill()
    visitor = visit(URL + "?range=6h")
    page = visitor.page

    page.get_by_role("button", name="Pause refresh").press(" ")

    assert "paused=1" in page.url
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(REFRESH_NOW)
    page.get_by_role("link", name="1 h", exact=True).click()
    page.wait_for_url(re.compile(r"range=1h.*paused=1|paused=1.*range=1h"))
    assert not [url for url in asked if "range=6h" in url]
    resume = page.get_by_role("button", name="Resume refresh")
    with page.expect_response(lambda answer: answer.request.headers["accept"] == "application/json"):
        resume.click()
    assert "paused" not in page.url


def test_when_the_session_ends_the_page_says_that_it_is_old(visit: Any) -> None:
    seeded.fill()
    visitor = visit(URL)
    visitor.page.context.clear_cookies()

    visitor.page.evaluate(REFRESH_NOW)

    visitor.page.locator("#rl-stale", has_text="could not be refreshed").wait_for()
    assert visitor.page.locator("#rl-callers").inner_text(), "what was there stays"
    visitor.complaints.clear()  # the browser says that the answer was a redirect


def test_without_javascript_everything_is_there_but_the_refresh(visit: Any) -> None:
    seeded.fill()
    page = visit(URL, javascript=False).page

    assert page.locator(".rl-figures .rl-value").count() == 5
    assert page.locator("svg.rl-chart").is_visible()
    assert page.locator("[data-chart=requests]").is_hidden()
    assert page.locator(".rl-pause").is_hidden()
    page.locator("#rl-requests summary").click()
    assert page.locator("#rl-requests tbody tr").first.is_visible()
    page.get_by_role("link", name="15 min", exact=True).click()
    page.wait_for_url("**/?range=15m")


def test_a_hostile_name_runs_nothing(visit: Any, make_plan: Any, make_key: Any) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>\u202e"
    plan = make_plan("Free", mode="shadow")
    plan.name = hostile
    plan.save()
    key, _ = make_key(plan, name=hostile)
    used(key.bucket_identity, allowed=1, refused=9)
    Batch.objects.create(id=uuid.uuid4(), received_at=timezone.now())
    page = visit(URL).page

    with page.expect_response(lambda answer: answer.request.headers["accept"] == "application/json"):
        page.evaluate(REFRESH_NOW)

    assert "owned" not in page.title()
    assert hostile in page.locator("#rl-callers").inner_text()
    assert page.locator("#rl-page img").count() == 0


def test_a_new_key_is_copied(visit: Any) -> None:
    seeded.fill()
    page = visit("/admin/ratelimit_app/apikey/add/").page
    page.locator("#id_name").fill("From the browser")
    page.locator("#id_plan").select_option("Free")
    page.locator("[name=_save]").click()

    page.locator("[data-copies=rl-key]").click()

    page.locator("#rl-copy-status", has_text="Copied").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#rl-key").inner_text()
