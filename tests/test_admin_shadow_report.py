"""Does the report say whom a limit in shadow would hurt, and is it promoted on purpose only?"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app.models import PlanLimit, PlanVersion, record_versions
from tests.admin_pages import PLANS, staff
from tests.statistics import limited, used

pytestmark = pytest.mark.django_db

REPORT = f"{PLANS}shadow/"
EDITORS = ["view_plan", "change_plan", "change_planlimit"]


@pytest.fixture
def limit(make_plan: Any) -> PlanLimit:
    found: PlanLimit = make_plan("Free", 60, 60, 20, mode="shadow").limits.get()
    return found


def minute() -> Any:
    return timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=10)


def cells(page: Any, table: str) -> list[list[str]]:
    """What a table on the page says, by row."""
    assert page.status_code == 200
    body = page.content.decode().partition(f'<table id="{table}">')[2].partition("</table>")[0].partition("<tbody>")[2]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in body.split("</tr>")]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in rows if row]


def test_it_says_by_limit_and_key_what_would_have_been_refused_beside_what_was(
    admin_client: Client, limit: PlanLimit, make_key: Any
) -> None:
    fresh, known = (make_key(limit.plan, name=name)[0] for name in ("Fresh", "Known"))
    used(fresh.bucket_identity, at=minute(), plan_id=limit.plan_id, allowed=50, would_refuse=5)
    used(known.bucket_identity, at=minute(), plan_id=limit.plan_id, allowed=30, refused=20, would_refuse=10)
    limited(limit.pk, at=minute(), identity=fresh.bucket_identity, would_refuse=5)
    limited(limit.pk, at=minute(), identity=known.bucket_identity, would_refuse=10)

    [row] = cells(admin_client.get(REPORT), "rl-trials")
    assert row[:2] == ["free", "Free"]
    assert row[3:8] == ["1", "15", "15.0\xa0% of 100", "0", "20.0\xa0%"]

    callers = cells(admin_client.get(f"{REPORT}?limit={limit.pk}"), "rl-callers")
    assert [(row[0].split()[0], *row[1:]) for row in callers] == [
        ("Fresh", "yes", "5", "0", "0", "50"),
        ("Known", "no", "10", "0", "20", "50"),
    ]


def test_limits_that_would_hurt_most_keys_anew_come_first(
    admin_client: Client, limit: PlanLimit, make_key: Any
) -> None:
    other = limit.plan.limits.create(name="other", requests=5, burst=5, mode="shadow")
    limit.plan.limits.create(name="enforced", requests=5, burst=5)
    limited(limit.pk, at=minute(), identity="one", would_refuse=1000)
    for identity in ("one", "two"):
        limited(other.pk, at=minute(), identity=identity, would_refuse=1)
    limited(other.pk, at=minute(), identity="", would_refuse=1)

    rows = cells(admin_client.get(REPORT), "rl-trials")

    assert [(row[0], row[3]) for row in rows] == [("other", "2"), ("free", "1")]


def test_the_range_in_the_address_is_the_one_that_is_counted(admin_client: Client, limit: PlanLimit) -> None:
    limited(limit.pk, at=minute() - timedelta(hours=3), identity="one", would_refuse=4)

    for query, would in (("?range=1h", "0"), ("?range=24h", "4"), ("?range=nonsense&limit=x", "4")):
        page = admin_client.get(REPORT + query)
        assert cells(page, "rl-trials")[0][4] == would
    assert "The limit in the address" in page.content.decode()


def test_under_the_setting_shadow_every_limit_is_listed(admin_client: Client, limit: PlanLimit, configure: Any) -> None:
    configure(MODE="shadow")
    limit.plan.limits.create(name="enforced", requests=5, burst=5)
    limit.plan.limits.create(name="off", requests=5, burst=5, mode="off")

    page = admin_client.get(REPORT)

    assert {row[0] for row in cells(page, "rl-trials")} == {"free", "enforced"}
    assert "every limit only counts" in page.content.decode()


def test_it_says_for_how_long_a_limit_is_in_shadow(admin_client: Client, limit: PlanLimit) -> None:
    def version(mode: str, requests: int, hours_ago: int) -> None:
        PlanLimit.objects.filter(pk=limit.pk).update(mode=mode, requests=requests)
        record_versions(using="default")
        at = timezone.now() - timedelta(hours=hours_ago)
        PlanVersion.objects.filter(pk=PlanVersion.objects.latest("pk").pk).update(at=at)

    version("shadow", 1, 90)
    version("enforce", 1, 80)
    version("shadow", 1, 70)
    version("shadow", 2, 10)

    assert "(2 days, 22 hours)" in cells(admin_client.get(REPORT), "rl-trials")[0][2].replace("\xa0", " ")


def test_promoting_takes_the_name_of_the_plan_and_a_reason(admin_client: Client, limit: PlanLimit) -> None:
    url = f"{REPORT}{limit.pk}/enforce/"
    assert admin_client.get(url).status_code == 200
    for data in ({"reason": "Tried"}, {"plan_name": "free", "reason": "Tried"}, {"plan_name": "Free"}):
        assert admin_client.post(url, data).status_code == 200
        limit.refresh_from_db()
        assert limit.mode == "shadow"

    answer = admin_client.post(url, {"plan_name": "Free", "reason": "Nobody was hurt"}, follow=True)

    assert answer.redirect_chain == [(f"{REPORT}?limit={limit.pk}", 302)]
    limit.refresh_from_db()
    assert limit.mode == "enforce"
    said = "free: 60 per 60 s, burst 20 (shadow) → 60 per 60 s, burst 20 (enforce). Reason: Nobody was hurt"
    assert LogEntry.objects.get().change_message == said
    version = PlanVersion.objects.latest("number")
    assert (version.who, version.reason, version.limits[0]["mode"]) == ("admin", "Nobody was hurt", "enforce")


def test_the_way_back_to_shadow_asks_for_a_reason_only(admin_client: Client, limit: PlanLimit) -> None:
    PlanLimit.objects.filter(pk=limit.pk).update(mode="enforce")

    assert admin_client.post(f"{REPORT}{limit.pk}/shadow/", {"reason": "It hurts"}).status_code == 302

    limit.refresh_from_db()
    assert limit.mode == "shadow"


@pytest.mark.parametrize("mode", ["enforce", "off"])
def test_what_is_enforced_already_or_off_is_not_promoted(admin_client: Client, limit: PlanLimit, mode: str) -> None:
    PlanLimit.objects.filter(pk=limit.pk).update(mode=mode)

    answer = admin_client.post(f"{REPORT}{limit.pk}/enforce/", {"plan_name": "Free", "reason": "x"}, follow=True)

    assert "in this mode already, or off" in answer.content.decode()
    limit.refresh_from_db()
    assert limit.mode == mode


def test_viewers_read_and_only_editors_of_limits_promote(limit: PlanLimit) -> None:
    promote = f"{REPORT}{limit.pk}/enforce/"
    for url in (REPORT, promote):
        assert Client().get(url).status_code == 302
        assert staff().get(url).status_code == 403
    viewer = staff("view_plan")
    assert promote not in viewer.get(REPORT).content.decode()
    assert viewer.post(REPORT).status_code == 405
    for client in (viewer, staff("view_plan", "change_plan"), staff("view_plan", "change_planlimit")):
        assert client.post(promote, {"plan_name": "Free", "reason": "x"}).status_code == 403
    limit.refresh_from_db()
    assert limit.mode == "shadow"
    editor = staff(*EDITORS)
    assert promote in editor.get(REPORT).content.decode()
    assert editor.post(promote, {"plan_name": "Free", "reason": "x"}).status_code == 302


def test_promoting_without_the_token_against_forgery_is_refused(limit: PlanLimit, admin_user: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    assert client.post(f"{REPORT}{limit.pk}/enforce/", {"plan_name": "Free", "reason": "x"}).status_code == 403


def test_names_of_keys_are_shown_to_those_who_may_see_keys(limit: PlanLimit, make_key: Any) -> None:
    key, _text = make_key(limit.plan, name="Somebody")
    limited(limit.pk, at=minute(), identity=key.bucket_identity, would_refuse=1)
    url = f"{REPORT}?limit={limit.pk}"

    assert "Somebody" not in staff("view_plan").get(url).content.decode()
    assert "Somebody" in staff("view_plan", "view_apikey").get(url).content.decode()


def test_hostile_names_stay_text(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    hostile = '"><script>alert(1)</script>'
    plan = make_plan("Free", 60, 60, 20, mode="shadow")
    limit = plan.limits.get()
    type(plan).objects.filter(pk=plan.pk).update(name=hostile)
    key, _text = make_key(plan, name=hostile)
    limited(limit.pk, at=minute(), identity=key.bucket_identity, would_refuse=1)

    for url in (f"{REPORT}?limit={limit.pk}&range=%22%3E%3Cscript%3Ealert", f"{REPORT}{limit.pk}/enforce/"):
        text = admin_client.get(url).content.decode()
        assert "<script>alert" not in text
        assert "&lt;script&gt;alert" in text
    promoted = admin_client.post(f"{REPORT}{limit.pk}/enforce/", {"plan_name": hostile, "reason": hostile}, follow=True)
    assert "<script>alert" not in promoted.content.decode()
    limit.refresh_from_db()
    assert limit.mode == "enforce"


def test_the_report_costs_the_same_for_many_keys(admin_client: Client, limit: PlanLimit, make_key: Any) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            for url in (REPORT, f"{REPORT}?limit={limit.pk}"):
                assert admin_client.get(url).status_code == 200
        return len(captured)

    def add_keys(count: int) -> None:
        for _ in range(count):
            key, _text = make_key(limit.plan)
            used(key.bucket_identity, at=minute(), plan_id=limit.plan_id, allowed=3, would_refuse=1)
            limited(limit.pk, at=minute(), identity=key.bucket_identity, would_refuse=1)

    add_keys(3)
    queries()
    few = queries()
    add_keys(297)

    assert queries() == few
    assert cells(admin_client.get(REPORT), "rl-trials")[0][3] == "300"
