"""Do the pages of outages say when, where, why, and what it did to whom; to those who may know?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app.alerts import words
from ratelimit_app.models import Episode, OutageSpan
from tests.admin_pages import staff
from tests.overview_page import Page, arrived, minute, redis_was_gone
from tests.overview_page import look as look_at_overview
from tests.statistics import limited, used

pytestmark = pytest.mark.django_db

LIST = "/admin/ratelimit_app/outagespan/"


def told(gateway: str, *, ago: int, minutes: int, **fields: Any) -> OutageSpan:
    start = minute(ago)
    return OutageSpan.objects.create(
        gateway=gateway,
        started_at=start,
        last_seen_at=start + timedelta(minutes=minutes),
        **{"error": "refused", "ended": 1, **fields},
    )


def look(client: Client, span: OutageSpan | None = None, query: str = "") -> Page:
    answer = client.get((f"{LIST}{span.pk}/change/" if span else LIST) + query)
    assert answer.status_code == 200
    return Page(answer.content.decode())


def links_of(page: Page) -> list[str]:
    return [link["href"] or "" for link in page.all("a") if "href" in link]


def test_the_page_of_an_outage_says_which_server_why_since_when_and_how_many_processes_noticed() -> None:
    told("a", ago=20, minutes=4, server="10.0.0.1:6379")
    told("b", ago=20, minutes=5, error="timeout", ended=0)
    span = told("c", ago=19, minutes=3, server="10.0.0.1:6379")
    arrived()

    text = look(staff("view_outagespan"), span).text

    assert "How long 5 min Processes that noticed 3" in text
    assert "State over The last process fell silent before it said that Redis answers" in text
    assert "10.0.0.1:6379 refused 2" in text
    assert "the one server timeout 1" in text
    assert "1 did not say that it answers again" in text
    assert "newest data 0 s old" in text


def test_it_says_by_limit_and_by_key_what_nobody_or_only_memory_decided(make_plan: Any, make_key: Any) -> None:
    span = told("a", ago=20, minutes=2)
    limit = make_plan("Free", on_failure="open").limits.get()
    key, _ = make_key(limit.plan, name="Acme")
    used(key.bucket_identity, at=minute(20), unchecked=1234, local=7)
    limited(limit.pk, at=minute(20), identity=key.bucket_identity, route="", unchecked=1234, local=7)
    limited(77, at=minute(19), identity="gone", route="", failed_closed=2)

    seen = look(staff("view_outagespan", "view_apikey", "view_plan", "view_overview"), span)

    assert "Passed unchecked 1,234 Answered 503 0 Decided without Redis 7" in seen.text
    assert "free Free enforce open: let the request through, unchecked 1,234 0 7" in seen.text
    assert "a deleted limit 0 2 0" in seen.text
    assert "a deleted key a deleted limit 0 2 0" in seen.text
    links = links_of(seen)
    assert f"/admin/ratelimit_app/plan/{limit.plan_id}/change/" in links
    assert any(link.startswith(f"/admin/ratelimit_app/apikey/{key.pk}/page/?from=") for link in links)
    assert any(link.startswith("/admin/ratelimit_app/overview/?from=") for link in links)


def test_it_links_only_to_what_its_reader_may_open(make_plan: Any, make_key: Any) -> None:
    span = told("a", ago=20, minutes=2)
    limit = make_plan("Free").limits.get()
    key, _ = make_key(limit.plan)
    limited(limit.pk, at=minute(20), identity=key.bucket_identity, route="", local=7)
    links = links_of(look(staff("view_outagespan"), span))
    assert {link for link in links if link.startswith("/admin/ratelimit_app/")} == {"/admin/ratelimit_app/", LIST}


def test_an_outage_that_goes_on_refreshes_itself_and_one_that_is_over_does_not() -> None:
    lasting = OutageSpan.objects.create(
        gateway="a", started_at=minute(3), last_seen_at=timezone.now(), error="refused", ended=0
    )
    over = told("a", ago=60, minutes=2)
    client = staff("view_outagespan")
    [page] = [div for div in look(client, lasting).all("div") if div.get("id") == "rl-page"]
    assert "data-live" in page
    assert "State goes on When since" in look(client, lasting).text
    [page] = [div for div in look(client, over).all("div") if div.get("id") == "rl-page"]
    assert "data-live" not in page
    parts = client.get(f"{LIST}{lasting.pk}/change/", headers={"accept": "application/json"}).json()
    assert 'id="rl-outage"' in parts["html"]


def test_the_list_has_a_line_per_outage_of_the_range_and_links_to_its_page() -> None:
    first = told("a", ago=20, minutes=2)
    told("b", ago=20, minutes=2)
    told("a", ago=30 * 60, minutes=1, error="older")
    client = staff("view_outagespan")

    today, month = look(client, query="?range=24h"), look(client)

    assert today.text.count("2 min refused") == 1
    assert "older" not in today.text
    assert "1 min older" in month.text
    assert f"{LIST}{first.pk}/change/" in links_of(today)
    assert "no data yet" in today.text
    nothing = look(client, query="?from=2020-01-01T00:00Z&to=2020-01-02T00:00Z").text
    assert "Redis answered every process in all of this time." in nothing


def test_the_overview_links_to_the_page_for_those_who_may_open_it() -> None:
    redis_was_gone(ago=10, minutes=2)
    path = f"{LIST}{OutageSpan.objects.get().pk}/change/"
    may, may_not = (look_at_overview(staff("view_overview", *more)) for more in (["view_outagespan"], []))
    assert links_of(may).count(path) == 2  # the sentence and the table
    assert LIST in links_of(may)
    assert not [link for link in links_of(may_not) if link.startswith(LIST)]
    assert "See the outage" in may_not.text


def test_an_alert_about_requests_that_redis_did_not_decide_links_to_the_outage() -> None:
    span = told("a", ago=20, minutes=2)
    episode = Episode.objects.create(
        kind="unchecked", started_at=minute(20), bad_until=minute(17), ended_at=minute(17), worst=3, threshold=0
    )
    path = f"{LIST}{span.pk}/change/"
    assert words.outage_path(episode) == path
    answer = staff("view_episode").get(f"/admin/ratelimit_app/episode/{episode.pk}/change/")
    assert path in links_of(Page(answer.content.decode()))
    other = Episode.objects.create(kind="slow", started_at=minute(20), bad_until=minute(17), worst=3, threshold=0)
    assert words.outage_path(other) == ""


@pytest.mark.parametrize("path", ["", "{span}/change/"])
def test_only_those_who_may_view_outages_see_them_and_nobody_changes_them(path: str, client: Client) -> None:
    url = LIST + path.format(span=told("a", ago=20, minutes=2).pk)
    assert client.get(url).url.startswith("/admin/login/")  # type: ignore[attr-defined]
    assert staff("view_overview").get(url).status_code == 403
    viewer = staff("view_outagespan")
    assert viewer.get(url).status_code == 200
    assert viewer.post(url, {"error": "x"}).status_code == 405
    assert viewer.get(LIST + "add/").status_code == 403


@pytest.mark.parametrize("name", ["0", "12345", "x", "1_5f", "%00"])
def test_an_outage_that_is_not_known_is_not_found(name: str) -> None:
    assert staff("view_outagespan").get(f"{LIST}{name}/change/").status_code == 404


def test_hostile_names_are_only_text_on_the_page() -> None:
    span = told("a", ago=20, minutes=2, server="<script>alert(1)</script>", error="<b>why")
    client = staff("view_outagespan")
    for url in (LIST, f"{LIST}{span.pk}/change/"):
        html = client.get(url).content.decode()
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert "&lt;b&gt;why" in html


def test_the_page_costs_the_same_queries_for_one_process_and_caller_and_for_many(make_plan: Any, make_key: Any) -> None:
    span = told("a", ago=20, minutes=2)
    plan = make_plan("Free")
    client = staff("view_outagespan", "view_apikey", "view_plan")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            look(client, span)
        return len(captured)

    def grow(times: int) -> None:
        for _ in range(times):
            number = plan.limits.count()
            told(f"p{number}", ago=20, minutes=2, server=f"node {number % 6}")
            limit = plan.limits.create(name=f"limit-{number}", requests=60, period_seconds=60, burst=20)
            limited(limit.pk, at=minute(20), identity=make_key(plan)[0].bucket_identity, route="", unchecked=3)

    grow(1)
    queries()  # what the process keeps
    few = queries()
    grow(30)
    assert queries() == few
