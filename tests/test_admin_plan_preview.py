"""Does an edit of a plan say what it will do, before it does it?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app.models import PlanLimit, PlanVersion
from tests.admin_pages import PLANS, confirm, errors_of, filled_in, plan_form, staff
from tests.statistics import used

pytestmark = pytest.mark.django_db

EDITORS = ["view_plan", "change_plan", "view_planlimit", "change_planlimit", "add_planlimit", "delete_planlimit"]


@pytest.fixture
def limit(make_plan: Any) -> PlanLimit:
    found: PlanLimit = make_plan("Free", 60, 60, 20, on_failure="open").limits.get()
    return found


def url_of(limit: PlanLimit) -> str:
    return f"{PLANS}{limit.plan_id}/change/"


def text_of(page: Any) -> str:
    assert page.status_code == 200
    return page.content.decode().replace("\xa0", " ")


def test_new_numbers_are_shown_with_the_old_ones_and_nothing_is_saved(admin_client: Client, limit: PlanLimit) -> None:
    text = text_of(admin_client.post(url_of(limit), plan_form(limit, requests="600")))

    assert "60 per 60 s, burst 20 (enforce)" in text
    assert "600 per 60 s, burst 20 (enforce)" in text
    limit.refresh_from_db()
    assert limit.requests == 60
    assert not LogEntry.objects.exists()


def test_the_estimate_replays_what_was_recorded(admin_client: Client, limit: PlanLimit, make_key: Any) -> None:
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(hours=2)
    calm, busy = (make_key(limit.plan)[0] for _ in range(2))
    for minute in range(10):
        used(calm.bucket_identity, at=at + timedelta(minutes=minute), plan_id=limit.plan_id, allowed=10)
        used(busy.bucket_identity, at=at + timedelta(minutes=minute), plan_id=limit.plan_id, allowed=50)

    text = text_of(admin_client.post(url_of(limit), plan_form(limit, requests="30", burst="20")))

    # Of the busy key's 500, a bucket of 20 that gains 30 a minute lets 320 pass: 180 of 600 are refused.
    assert "0.0 % of 600 requests were blocked; with these numbers about 30.0 %." in text
    assert "Keys newly hit: 1." in text
    assert "The same model with the numbers of now: about 0.0 %." in text
    assert "Keys on this plan: 2" in text
    assert "Callers who send in short bursts are hit harder" in text


def test_without_keys_or_records_it_says_that_there_is_no_estimate(
    admin_client: Client, limit: PlanLimit, make_plan: Any, configure: Any
) -> None:
    configure(MODE="shadow")
    visitors = make_plan("Visitors", 60, 60, 20, audience="anonymous").limits.get()
    form = plan_form(visitors, plan_name="Visitors", slug="visitors", audience="anonymous", requests="6")

    nothing = text_of(admin_client.post(url_of(limit), plan_form(limit, requests="600")))
    assert "Nothing was recorded of this plan in the last 24 hours" in nothing
    assert "nobody is refused at present" in nothing
    assert "There is no estimate for this audience" in text_of(admin_client.post(url_of(visitors), form))


def test_what_cannot_be_reckoned_is_named(admin_client: Client, limit: PlanLimit, make_key: Any) -> None:
    used(make_key(limit.plan)[0].bucket_identity, at=timezone.now(), plan_id=limit.plan_id, allowed=5, unchecked=3)

    text = text_of(admin_client.post(url_of(limit), plan_form(limit, requests="1", burst="1", scope="exports")))

    assert "Not reckoned, because what is recorded does not say on which routes or from where: free." in text
    assert "3 requests were let through unchecked" in text
    assert "with these numbers about 0.0 %" in text


@pytest.mark.parametrize(("button", "mode"), [("_shadow", "shadow"), ("_enforce", "enforce")])
def test_it_is_saved_as_it_was_shown_in_the_mode_that_was_chosen(
    admin_client: Client, limit: PlanLimit, button: str, mode: str
) -> None:
    assert confirm(admin_client, url_of(limit), plan_form(limit, requests="600"), button).status_code == 302

    limit.refresh_from_db()
    assert (limit.requests, limit.burst, limit.mode) == (600, 20, mode)
    message = LogEntry.objects.get().get_change_message()
    assert f"free: 60 per 60 s, burst 20 (enforce) → 600 per 60 s, burst 20 ({mode})." in message
    assert "seen" not in message


def test_a_reason_is_kept_with_the_version_and_in_the_log_without_what_looks_like_a_key(
    admin_client: Client, limit: PlanLimit, make_key: Any
) -> None:
    _key, text = make_key(limit.plan)
    page = admin_client.post(url_of(limit), plan_form(limit, requests="600"))
    data = dict(filled_in(page)) | {"_enforce": "x", "_reason": f"Asked for by {text}\0 " + "and more " * 50}

    assert admin_client.post(url_of(limit), data).status_code == 302

    version = PlanVersion.objects.get(plan_id=limit.plan_id)
    assert (version.who, version.reason[:12], "\0" in version.reason) == ("admin", "Asked for by", False)
    logged = LogEntry.objects.get().change_message
    assert "Reason: Asked for by" in logged
    assert text[-30:] not in logged + version.reason
    assert len(version.reason) <= 200


def test_limits_that_were_not_changed_keep_their_mode(admin_client: Client, limit: PlanLimit) -> None:
    other = limit.plan.limits.create(name="other", requests=5, burst=5, mode="enforce")
    form = plan_form(limit, requests="600")
    second = plan_form(other, name="other", requests="5", burst="5", on_failure="local")
    form |= {name.replace("limits-0-", "limits-1-"): value for name, value in second.items() if "limits-0-" in name}
    form |= {"limits-TOTAL_FORMS": "2", "limits-INITIAL_FORMS": "2"}

    assert confirm(admin_client, url_of(limit), form, "_shadow").status_code == 302

    assert dict(PlanLimit.objects.values_list("name", "mode")) == {"free": "shadow", "other": "enforce"}


def test_a_limit_that_is_switched_off_stays_off_however_it_is_saved(admin_client: Client, limit: PlanLimit) -> None:
    text = text_of(admin_client.post(url_of(limit), plan_form(limit, mode="off")))
    assert 'name="_shadow"' not in text

    assert confirm(admin_client, url_of(limit), plan_form(limit, mode="off")).status_code == 302

    limit.refresh_from_db()
    assert limit.mode == "off"


def test_limits_that_are_added_and_deleted_are_shown(admin_client: Client, limit: PlanLimit) -> None:
    form = plan_form(limit, requests="60") | {"limits-0-DELETE": "on"}
    added = plan_form(name="fresh", requests="7")
    form |= {name.replace("limits-0-", "limits-1-"): value for name, value in added.items() if "limits-0-" in name}
    form |= {"limits-TOTAL_FORMS": "2", "limits-1-plan": limit.plan_id}

    text = text_of(admin_client.post(url_of(limit), form))
    assert "will be deleted" in text
    assert "does not exist" in text
    assert confirm(admin_client, url_of(limit), form).status_code == 302
    assert [each.name for each in PlanLimit.objects.all()] == ["fresh"]


@pytest.mark.parametrize("fields", [{}, {"plan_name": "Renamed"}, {"name": "renamed"}, {"on_failure": "closed"}])
def test_an_edit_that_changes_no_limit_is_saved_at_once(
    admin_client: Client, limit: PlanLimit, fields: dict[str, str]
) -> None:
    assert admin_client.post(url_of(limit), plan_form(limit, **fields)).status_code == 302


def test_going_back_shows_what_was_filled_in_and_saves_nothing(admin_client: Client, limit: PlanLimit) -> None:
    page = confirm(admin_client, url_of(limit), plan_form(limit, requests="600"), "_back")

    assert "Nothing is saved yet" in text_of(page)
    assert page.context["inline_admin_formsets"][0].formset.forms[0]["requests"].value() == "600"
    limit.refresh_from_db()
    assert limit.requests == 60


def test_of_two_who_edit_a_plan_at_once_the_second_is_told(admin_client: Client, limit: PlanLimit) -> None:
    opened = admin_client.get(url_of(limit)).context["adminform"].form["seen"].value()
    mine, theirs = (plan_form(limit, requests=number) | {"seen": opened} for number in ("600", "700"))
    asked = admin_client.post(url_of(limit), mine)
    assert confirm(admin_client, url_of(limit), theirs).status_code == 302

    data = dict(filled_in(asked)) | {"_enforce": "x"}
    for answer in (admin_client.post(url_of(limit), data), admin_client.post(url_of(limit), mine)):
        assert "Somebody else changed this plan" in errors_of(answer)["__all__"][0]
    limit.refresh_from_db()
    assert limit.requests == 700


def test_an_edit_through_the_page_begins_one_generation_that_keeps_the_used_share(
    admin_client: Client, limit: PlanLimit
) -> None:
    limit.refresh_from_db()
    assert confirm(admin_client, url_of(limit), plan_form(limit, requests="600"), "_shadow").status_code == 302

    limit.refresh_from_db()
    assert [each["generation"] for each in limit.generations] == [2, 1]
    assert limit.as_limit().earlier[0].requests == 60


@pytest.mark.parametrize("button", ["", "_shadow", "_enforce", "_back"])
def test_who_may_not_change_a_plan_is_refused_at_each_step(limit: PlanLimit, button: str) -> None:
    form = plan_form(limit, requests="600") | ({button: "x", "_changed": "limits-0"} if button else {})

    assert staff("view_plan").post(url_of(limit), form).status_code == 403
    assert Client().post(url_of(limit), form).status_code == 302
    # Without the permission for limits, what is sent of them counts for nothing.
    staff("view_plan", "change_plan").post(url_of(limit), form)
    limit.refresh_from_db()
    assert (limit.requests, limit.mode) == (60, "enforce")


def test_editors_need_no_more_than_the_permissions_for_plans_and_limits(limit: PlanLimit) -> None:
    assert confirm(staff(*EDITORS), url_of(limit), plan_form(limit, requests="600")).status_code == 302


def test_a_change_without_the_token_against_forgery_is_refused(limit: PlanLimit, admin_user: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    for button in ({}, {"_enforce": "x"}):
        assert client.post(url_of(limit), plan_form(limit, requests="600") | button).status_code == 403


def test_hostile_text_stays_text(admin_client: Client, limit: PlanLimit) -> None:
    hostile = '"><script>alert(1)</script>'
    form = plan_form(limit, requests="600", plan_name=hostile, scope="<b>x</b>") | {"_x": hostile, hostile: "1"}

    page = admin_client.post(url_of(limit), form)

    assert "<script>alert" not in text_of(page)
    assert "<b>x</b>" not in text_of(page)
    assert dict(filled_in(page))["name"] == hostile


def test_the_page_costs_the_same_for_many_keys(admin_client: Client, limit: PlanLimit, make_key: Any) -> None:
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=5)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            text_of(admin_client.post(url_of(limit), plan_form(limit, requests="600")))
        return len(captured)

    def add_keys(count: int) -> None:
        for _ in range(count):
            used(make_key(limit.plan)[0].bucket_identity, at=at, plan_id=limit.plan_id, allowed=3, refused=1)

    add_keys(3)
    queries()
    few = queries()
    add_keys(297)

    assert queries() == few
    text = text_of(admin_client.post(url_of(limit), plan_form(limit, requests="600")))
    assert "Reckoned from 50 keys, those blocked most and the busiest of late, with 16.7 % of the requests" in text
