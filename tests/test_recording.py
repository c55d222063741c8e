"""Does a batch become rows exactly once? Duplicates, disorder, poison, and the sums that must come out."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratelimit_app import recording
from ratelimit_app.models import (
    Batch,
    DecisionMinute,
    DroppedMinute,
    KeyUse,
    LimitMinute,
    PlanMinute,
    Refusal,
    RefusalMinute,
    SetAside,
    UsageMinute,
)
from ratelimit_app.usage.tally import Tally
from tests import decisions

MINUTE = 1_800_000_000 // 60 * 60
AT = datetime.fromtimestamp(MINUTE, UTC)


def batch(**tables: Any) -> dict[str, Any]:
    return {"id": str(uuid.uuid4()), **tables}


def usage_row(identity: str = "a", *counts: int) -> list[Any]:
    return [MINUTE, identity, 1, *(counts or (1, 0, 0, 0, 0))]


def sample(**changed: Any) -> list[Any]:
    columns = {
        "receipt": str(uuid.uuid4()),
        "at": MINUTE + 0.5,
        "identity": "a",
        "key_id": 7,
        "plan_id": 3,
        "limit_id": 11,
        "limit_name": "pro",
        "route": "items",
        "method": "GET",
        "address": "192.0.2.1",
        "cost": 1,
        "retry_after_seconds": 5,
    }
    return list({**columns, **changed}.values())


def allowed() -> dict[str, int]:
    return dict(UsageMinute.objects.values_list("identity").annotate(Sum("allowed")))


# --- What is stored ----------------------------------------------------------------------------


@pytest.mark.django_db
def test_what_the_tally_freezes_is_what_the_tables_hold():
    tally = Tally(100)
    refused = decisions.refused()
    for decision in (decisions.ALLOWED, refused, decisions.WOULD_REFUSE, decisions.UNCHECKED, decisions.LOCAL):
        tally.count(decision, decisions.CALLER, "items", "GET", 0.0004, MINUTE + 1.25)
    tally.drop("usage", 3)
    for frozen in tally.freeze(everything=True):
        assert recording.record(json.loads(json.dumps(frozen)))
    assert list(UsageMinute.objects.values_list("minute", "identity", "plan_id", *decisions.OUTCOMES)) == [
        (AT, "aaaa", 3, 3, 1, 1, 1, 0, 1)
    ]
    by_limit = RefusalMinute.objects.order_by("limit_id", "route")
    columns = ("limit_id", "route", "refused", "would_refuse", "unchecked", "failed_closed", "local")
    expected = [
        (decisions.LIMIT.id, "", 0, 0, 1, 0, 1),
        (decisions.LIMIT.id, "items", 1, 0, 0, 0, 0),
        (decisions.SHADOW_LIMIT.id, "items", 0, 1, 0, 0, 0),
    ]
    assert list(by_limit.values_list(*columns)) == expected
    assert list(LimitMinute.objects.order_by("limit_id", "route").values_list(*columns)) == expected
    assert list(PlanMinute.objects.values_list("minute", "plan_id", *decisions.OUTCOMES)) == [(AT, 3, 3, 1, 1, 1, 0, 1)]
    assert list(DecisionMinute.objects.values_list("minute", "at_most_microseconds", "decisions")) == [(AT, 500, 5)]
    assert list(DroppedMinute.objects.values_list("kind", "dropped")) == [("usage", 3)]
    assert KeyUse.objects.get(key_id=7).last_used_at == AT
    stored = Refusal.objects.get(receipt=refused.receipt)
    assert stored.at == AT + timedelta(seconds=1.25)
    assert (stored.limit_name, stored.route, stored.method, stored.address) == ("pro", "items", "GET", "192.0.2.1")
    assert (stored.cost, stored.retry_after_seconds, stored.key_id, stored.plan_id) == (1, 5, 7, 3)
    assert not SetAside.objects.exists()


@pytest.mark.django_db
def test_counts_are_added_to_those_that_are_there():
    for counts in ((1, 2, 3, 4, 5, 6), (10, 20, 30, 40, 50, 60)):
        recording.record(batch(usage=[usage_row("a", *counts)]))
    assert list(UsageMinute.objects.values_list(*decisions.OUTCOMES)) == [(11, 22, 33, 44, 55, 66)]


@pytest.mark.django_db
def test_a_row_may_occur_twice_in_a_batch():
    recording.record(batch(usage=[usage_row(), usage_row()], key_uses=[[7, MINUTE], [7, MINUTE - 60]]))
    assert allowed() == {"a": 2}
    assert KeyUse.objects.get().last_used_at == AT


@pytest.mark.django_db
def test_last_use_never_goes_back():
    for minute in (MINUTE, MINUTE - 60, MINUTE + 60, MINUTE):
        recording.record(batch(key_uses=[[7, minute]]))
    assert KeyUse.objects.get().last_used_at == AT + timedelta(minutes=1)


@pytest.mark.django_db
def test_a_refusal_that_is_there_already_is_left_alone():
    receipt = str(uuid.uuid4())
    recording.record(batch(samples=[sample(receipt=receipt)]))
    recording.record(batch(samples=[sample(receipt=receipt, route="other"), sample()]))
    assert Refusal.objects.count() == 2
    assert Refusal.objects.get(receipt=receipt).route == "items"


@pytest.mark.django_db
def test_a_batch_larger_than_a_statement_may_be_is_stored_whole():
    recording.record(batch(usage=[usage_row(f"caller-{number}") for number in range(3_000)]))
    assert UsageMinute.objects.aggregate(Sum("allowed")) == {"allowed__sum": 3_000}


# --- Exactly once ------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_second_delivery_changes_nothing():
    delivery = batch(usage=[usage_row()], dropped=[[MINUTE, "usage", 2]])
    assert recording.record(delivery) is True
    assert recording.record(delivery) is False
    assert allowed() == {"a": 1}
    assert DroppedMinute.objects.get().dropped == 2
    assert Batch.objects.count() == 1


@pytest.mark.django_db
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=5), min_size=1, max_size=6
    ),
    data=st.data(),
)
def test_duplicates_in_any_order_leave_exact_sums(batches, data):
    UsageMinute.objects.all().delete()
    deliveries = [batch(usage=[usage_row(who, count, 0, 0, 0, 0) for who, count in rows]) for rows in batches]
    for delivery in data.draw(st.permutations(deliveries * 2)):
        recording.record(delivery)
    for identity in "abc":
        expected = sum(count for rows in batches for who, count in rows if who == identity)
        assert allowed().get(identity, 0) == expected


@pytest.mark.django_db(transaction=True)
def test_workers_that_store_the_same_rows_and_the_same_batches_at_once_leave_exact_sums():
    names = [f"caller-{number}" for number in range(30)]
    deliveries = [
        batch(usage=[usage_row(name) for name in (names if number % 2 else reversed(names))]) for number in range(20)
    ]
    errors: list[Exception] = []

    def work(order: list[dict[str, Any]]) -> None:
        try:
            for delivery in order:
                recording.record(delivery)
        except Exception as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(deliveries[i * 5 :] + deliveries[: i * 5],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert allowed() == dict.fromkeys(names, 20)


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_could_not_be_stored_can_be_tried_again():
    delivery = batch(usage=[usage_row()])
    with connection.schema_editor() as editor:
        editor.alter_db_table(UsageMinute, UsageMinute._meta.db_table, "elsewhere")
    try:
        with pytest.raises(Exception, match="ratelimit_app_usageminute"):
            recording.record(delivery)
        assert not Batch.objects.exists()
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(UsageMinute, "elsewhere", UsageMinute._meta.db_table)
    assert recording.record(delivery) is True
    assert allowed() == {"a": 1}


# --- Poison ------------------------------------------------------------------------------------

POISON: dict[str, Any] = {
    "a name that is too long": [MINUTE, "x" * 17, 1, 1],
    "a lone surrogate": [MINUTE, "\ud800", 1, 1],
    "a number that is too large": [MINUTE, "b", 1, 2**63],
    "a number that is none": [MINUTE, "b", "many", 1],
    "no number at all": [MINUTE, "b", None, 1],
    "a moment that is none": ["noon", "b", 1, 1],
    "a moment beyond the calendar": [10**15, "b", 1, 1],
    "not a number as a moment": [float("nan"), "b", 1, 1],
    "too few columns": [MINUTE, "b"],
    "an object": {"minute": MINUTE},
    "a text": "row",
    "nothing": None,
}


@pytest.mark.django_db
@pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())
def test_a_bad_row_is_set_aside_and_the_rest_is_stored(poison):
    good = [usage_row(f"caller-{number}") for number in range(7)]
    delivery = batch(usage=[*good[:3], poison, *good[3:]], samples=[sample()])
    assert recording.record(delivery) is True
    assert allowed() == {row[1]: 1 for row in good}
    assert Refusal.objects.count() == 1
    aside = SetAside.objects.get()
    assert (str(aside.batch_id), aside.table) == (delivery["id"], "usage")
    assert aside.row.isascii()
    assert aside.error
    assert recording.record(delivery) is False
    assert SetAside.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_a_database_refuses_costs_its_own_row_alone(text):
    """PostgreSQL takes no NUL, and SQLite does; neither takes a lone surrogate."""
    recording.record(batch(samples=[sample(route="items"), sample(route=text), sample(route="items")]))
    kept, aside = Refusal.objects.count(), SetAside.objects.count()
    assert kept + aside == 3
    assert Refusal.objects.filter(route="items").count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["{a,NULL}", 'a"b', "a\\b", "NULL", "'; --", "a,b", " ", "%s", "$1", "日本"])
def test_text_that_means_something_in_sql_is_only_text(text):
    recording.record(batch(usage=[usage_row(text), usage_row("b")], samples=[sample(route=text), sample(route="")]))
    assert allowed() == {text: 1, "b": 1}
    assert set(Refusal.objects.values_list("route", flat=True)) == {text, ""}
    assert not SetAside.objects.exists()


@pytest.mark.postgresql  # SQLite would turn the sum into an approximate number
@pytest.mark.django_db
def test_a_sum_that_no_longer_fits_is_set_aside():
    recording.record(batch(usage=[usage_row("a", 2**63 - 1, 0, 0, 0, 0), usage_row("b")]))
    recording.record(batch(usage=[usage_row("a"), usage_row("b")]))
    assert allowed() == {"a": 2**63 - 1, "b": 2}
    assert SetAside.objects.count() == 1


@pytest.mark.django_db
def test_tables_and_columns_of_a_newer_version_do_no_harm():
    assert recording.record(batch(usage=[[*usage_row(), 99, "new"]], weather=[["rain"]])) is True
    assert allowed() == {"a": 1}
    aside = SetAside.objects.get()
    assert (aside.table, json.loads(aside.row)) == ("weather", [["rain"]])


@pytest.mark.django_db
def test_columns_that_an_older_version_does_not_send_are_zero():
    recording.record(batch(usage=[[MINUTE, "a", 1, 4]]))
    assert list(UsageMinute.objects.values_list(*decisions.OUTCOMES)) == [(4, 0, 0, 0, 0, 0)]


@pytest.mark.django_db
@pytest.mark.parametrize("delivery", [{}, {"id": "none", "usage": [usage_row()]}, {"id": None}, [], "batch", None])
def test_a_batch_without_an_id_is_set_aside_whole(delivery):
    assert recording.record(delivery) is True
    assert SetAside.objects.count() == 1
    assert not UsageMinute.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("rows", [7, None, "text", {"a": 1}])
def test_a_table_that_is_no_list_of_rows_is_set_aside(rows):
    assert recording.record(batch(usage=rows, dropped=[[MINUTE, "usage", 1]])) is True
    assert SetAside.objects.exists()
    assert DroppedMinute.objects.count() == 1
