"""Can staff edit plans without a typing error opening the gate?"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ratelimit_app.models import Plan, PlanLimit
from tests.admin_pages import PLANS, confirm, errors_of, plan_form

pytestmark = pytest.mark.django_db


def test_a_plan_is_created_with_its_limits(admin_client: Client) -> None:
    answer = admin_client.post(PLANS + "add/", plan_form(scope="login", mode="shadow", on_failure="closed"))

    assert answer.status_code == 302
    limit = Plan.objects.get(slug="free").limits.get()
    assert (limit.requests, limit.period_seconds, limit.burst) == (60, 60, 20)
    assert (limit.scope, limit.mode, limit.on_failure) == ("login", "shadow", "closed")
    assert LogEntry.objects.filter(object_repr="Free").count() == 1


SILLY = ["0", "-1", "nan", "inf", "-inf", "1e400", "1e3", "", "   ", "0,5", "0.5", "1.000", "1,000", "1_000", "abc"]
ABSURD = ["9223372036854775808", "1" + "0" * 400, "9" * 5_000]


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("field", ["requests", "period_seconds", "burst"])
@pytest.mark.parametrize("value", SILLY + ABSURD)
def test_c10_a_typing_error_in_a_number_is_an_error_on_its_field(
    admin_client: Client, settings: Any, language: str, field: str, value: str
) -> None:
    settings.LANGUAGE_CODE = language
    settings.USE_THOUSAND_SEPARATOR = True

    errors = errors_of(admin_client.post(PLANS + "add/", plan_form(**{field: value})))

    assert list(errors) == [field]
    assert len(errors[field]) == 1
    assert not Plan.objects.exists()


@pytest.mark.parametrize("field", ["requests", "period_seconds", "burst"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "1e400", None, "", 2**63])
def test_c10_the_model_refuses_what_the_form_refuses(make_plan: Any, field: str, value: Any) -> None:
    limit = make_plan().limits.get()
    setattr(limit, field, value)

    with pytest.raises(ValidationError) as caught:
        limit.full_clean()

    assert field in caught.value.message_dict


@pytest.mark.parametrize("field", ["requests", "period_seconds", "burst"])
@pytest.mark.parametrize("value", [0, -1, 2**62])
def test_c10_the_database_refuses_what_goes_around_both(make_plan: Any, field: str, value: int) -> None:
    limit = make_plan().limits.get()

    with pytest.raises(IntegrityError), transaction.atomic():
        PlanLimit.objects.filter(pk=limit.pk).update(**{field: value})


def test_c10_more_than_can_be_counted_exactly_is_an_error_on_the_burst(admin_client: Client) -> None:
    answer = admin_client.post(PLANS + "add/", plan_form(requests="1", period_seconds="86400", burst="1000000"))

    errors = errors_of(answer)
    assert list(errors) == ["burst"]
    assert "more than 14 years" in errors["burst"][0]


@pytest.mark.parametrize(
    ("numbers", "field", "words"),
    [
        ({"algorithm": "sliding_log", "requests": "10001", "burst": ""}, "requests", "10,000 a period at most"),
        ({"algorithm": "sliding_window", "requests": "1000000000", "period_seconds": "9001"}, "requests", "exactly"),
        ({"algorithm": "token_bucket", "burst": ""}, "burst", "required"),
        ({"algorithm": "leaky_bucket", "burst": ""}, "burst", "required"),
        ({"algorithm": "backwards"}, "algorithm", "backwards"),
        ({"per": "everyone", "burst": "5", "shards": "6"}, "burst", "Each shard needs one"),
        ({"per": "everyone", "shards": "65"}, "shards", "64"),
        ({"shards": "0"}, "shards", "1"),
        ({"lease": "on", "burst": "2"}, "burst", "3 at least"),
        ({"lease": "on", "algorithm": "fixed_window", "burst": ""}, "lease", "token bucket"),
        ({"methods": "GET, PSOT"}, "methods", "PSOT"),
        ({"methods": "GET\N{LATIN SMALL LETTER O WITH DIAERESIS}"}, "methods", "HTTP method"),
    ],
)
def test_what_does_not_fit_together_is_one_error_on_the_field_to_change(
    admin_client: Client, numbers: dict[str, str], field: str, words: str
) -> None:
    errors = errors_of(admin_client.post(PLANS + "add/", plan_form(**numbers)))

    assert list(errors) == [field]
    assert len(errors[field]) == 1
    assert words in errors[field][0]
    assert not Plan.objects.exists()


def test_the_model_names_the_same_field_as_the_form(make_plan: Any) -> None:
    limit = make_plan().limits.get()
    for changes, field in [
        ({"algorithm": "sliding_log", "requests": 10_001}, "requests"),
        ({"per": "everyone", "requests": 5, "burst": 5, "shards": 6}, "burst"),
        ({"per": "everyone", "algorithm": "fixed_window", "requests": 5, "burst": 50, "shards": 6}, "requests"),
    ]:
        limit.refresh_from_db()
        for name, value in changes.items():
            setattr(limit, name, value)
        with pytest.raises(ValidationError) as caught:
            limit.full_clean()
        assert list(caught.value.message_dict) == [field]


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window", "sliding_log"])
def test_windows_and_logs_need_no_burst(admin_client: Client, algorithm: str) -> None:
    assert admin_client.post(PLANS + "add/", plan_form(algorithm=algorithm, burst="")).status_code == 302

    limit = PlanLimit.objects.get()
    assert (limit.algorithm, limit.burst, limit.shards) == (algorithm, 60, 10)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("", ""),
        ("post", "POST"),
        (" post, Put ", "POST,PUT"),
        ("GET;HEAD", "GET"),
        ("head", "GET"),
        ("POST POST\tDELETE,", "POST,DELETE"),
    ],
)
def test_methods_are_stored_as_they_are_compared(admin_client: Client, typed: str, stored: str) -> None:
    assert admin_client.post(PLANS + "add/", plan_form(methods=typed)).status_code == 302
    assert PlanLimit.objects.get().methods == stored


def test_the_form_says_what_an_algorithm_remembers_and_what_shards_ask_for(admin_client: Client) -> None:
    page = admin_client.get(PLANS + "add/").content.decode()

    for words in ("about 10 bytes for each request", "10,000 at most", "Burst at least as many", "POST, PUT"):
        assert words in page


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "60 per 60 s, burst 20"),
        ({"algorithm": "leaky_bucket"}, "60 per 60 s, queue 20"),
        ({"algorithm": "sliding_log", "per": "user"}, "60 per 60 s, sliding log, per user"),
        ({"scope": "exports", "methods": "post"}, "60 per 60 s, burst 20, on POST exports"),
        (
            {"requests": "200000", "period_seconds": "1", "burst": "200000", "per": "everyone", "mode": "shadow"},
            "200,000 per 1 s, burst 200,000, per everyone (shadow)",
        ),
    ],
)
def test_the_list_of_plans_says_each_limit_in_one_line(admin_client: Client, fields: dict[str, str], line: str) -> None:
    assert admin_client.post(PLANS + "add/", plan_form(**fields)).status_code == 302
    assert f">{line}<" in admin_client.get(PLANS).content.decode()


def test_the_largest_numbers_that_fit_are_stored(admin_client: Client) -> None:
    largest = plan_form(requests="1000000000", period_seconds="1", burst="2000000000")

    assert admin_client.post(PLANS + "add/", largest).status_code == 302
    slowest = plan_form(requests="1", period_seconds="450000000", burst="1", plan_name="Slow", slug="slow")
    assert admin_client.post(PLANS + "add/", slowest).status_code == 302


def test_c29_a_german_form_never_stores_half_as_five_nor_a_thousand_as_one(
    admin_client: Client, make_plan: Any, settings: Any
) -> None:
    settings.LANGUAGE_CODE = "de"
    settings.USE_THOUSAND_SEPARATOR = True
    limit = make_plan("Free").limits.get()
    url = f"{PLANS}{limit.plan_id}/change/"

    for value in ("0,5", "0.5", "1.000"):
        assert list(errors_of(admin_client.post(url, plan_form(limit, requests=value)))) == ["requests"]
    limit.refresh_from_db()
    assert limit.requests == 1
    assert confirm(admin_client, url, plan_form(limit, requests="1000", burst=" 7 ")).status_code == 302
    limit.refresh_from_db()
    assert (limit.requests, limit.burst) == (1000, 7)


def test_two_limits_of_one_name_are_an_error_and_no_crash(admin_client: Client) -> None:
    form = plan_form()
    second = {name.replace("limits-0-", "limits-1-"): value for name, value in form.items() if "limits-0-" in name}

    answer = admin_client.post(PLANS + "add/", form | second | {"limits-TOTAL_FORMS": "2"})

    assert answer.status_code == 200
    assert not Plan.objects.exists()


def test_a_second_plan_for_callers_without_a_key_is_an_error_on_the_audience(
    admin_client: Client, make_plan: Any
) -> None:
    make_plan("Visitors", audience="anonymous")

    assert list(errors_of(admin_client.post(PLANS + "add/", plan_form(audience="anonymous")))) == ["audience"]


def test_a_plan_with_keys_stays_a_plan_for_keys(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    limit = make_plan("Free").limits.get()
    make_key(limit.plan)
    url = f"{PLANS}{limit.plan_id}/change/"

    errors = errors_of(admin_client.post(url, plan_form(limit, audience="everyone")))

    assert errors == {"audience": ["1 API key is on this plan. Move it to another one first."]}


def test_the_form_shows_the_rate_that_whole_ticks_really_enforce(admin_client: Client) -> None:
    answer = admin_client.post(
        PLANS + "add/", plan_form(requests="30000000", period_seconds="1000", burst="100"), follow=True
    )
    notes = [str(message) for message in answer.context["messages"]]
    note = "29,940.1 requests a second, instead of 30,000.0"

    assert any(note in words for words in notes)
    plan = Plan.objects.get()
    assert note in admin_client.get(f"{PLANS}{plan.pk}/change/").content.decode()


@pytest.mark.parametrize(("requests", "period_seconds"), [(60, 60), (7, 3), (10_000, 1), (1, 86_400), (1_000_000, 1)])
def test_a_rate_that_is_kept_gets_no_note(admin_client: Client, requests: int, period_seconds: int) -> None:
    form = plan_form(requests=requests, period_seconds=period_seconds)

    answer = admin_client.post(PLANS + "add/", form, follow=True)

    assert "instead of" not in answer.content.decode()


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"burst": "19"}, True),
        ({"burst": "20"}, False),
        ({"burst": "19", "on_failure": "closed"}, False),
        ({"requests": "19", "burst": "", "algorithm": "fixed_window"}, True),
        ({"requests": "20", "burst": "", "algorithm": "fixed_window"}, False),
    ],
)
def test_a_local_limit_smaller_than_the_fleet_gets_a_note_of_what_it_will_do(
    admin_client: Client, configure: Any, fields: dict[str, str], warned: bool
) -> None:
    configure(FLEET_SIZE=20)

    answer = admin_client.post(PLANS + "add/", plan_form(**{"on_failure": "local", **fields}), follow=True)

    note = "each of 20 processes lets one request through at least: together more than the 19 of this limit."
    assert (note in answer.content.decode()) is warned
    assert "each still lets one request through at least" in admin_client.get(PLANS + "add/").content.decode()


def test_the_list_of_plans_costs_the_same_for_many(admin_client: Client, make_plan: Any) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(PLANS).status_code == 200
        return len(captured)

    make_plan("One")
    queries()
    few = queries()
    for number in range(20):
        make_plan(f"Plan {number}")

    assert queries() == few
