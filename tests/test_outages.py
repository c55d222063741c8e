"""Is an outage told as it was: since when, until when, by how many processes, with what effect on whom?"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ratelimit_app import limiter, recording, stats, usage
from ratelimit_app.models import OutageSpan, RefusalMinute
from ratelimit_app.usage.outages import Outages
from tests import brokers, decisions, statistics
from tests.outages import redis_at, redis_is_asked
from tests.overview_page import look, sign_in_viewer

broker = pytest.fixture(brokers.chosen)

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def told(
    gateway: str, start: float, end: float, *, ended: bool = True, error: str = "refused", server: str = ""
) -> None:
    """A gateway told of a span, in seconds after noon."""
    row = [gateway, server, NOON.timestamp() + start, error, NOON.timestamp() + end, int(ended)]
    recording.record({"id": str(uuid.uuid4()), "outages": [row]})


def outages(*, now: float = 3600) -> tuple[stats.Outage, ...]:
    window = stats.window(stats.RANGES["24h"], now=NOON + timedelta(hours=1))
    return stats.outages(window, now=NOON + timedelta(seconds=now))


def after_noon(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


# --- Rows --------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_span_grows_and_ends_in_any_order_of_delivery():
    told("a", 0, 60, ended=True)
    told("a", 0, 30, ended=False)
    told("a", 0, 10, ended=False)
    span = OutageSpan.objects.get()
    assert (span.started_at, span.last_seen_at, span.ended) == (NOON, after_noon(60), 1)


def test_a_span_is_told_at_once_when_it_begins_and_ends_and_meanwhile_with_the_counts():
    spans = Outages()
    spans.note("", since=100.0, reason="refused")
    [row] = spans.freeze(everything=False)
    assert row[:4] == [spans.gateway, "", 100.0, "refused"]
    assert row[5] == 0
    spans.note("", since=100.0, reason="refused")
    assert spans.freeze(everything=False) == []
    assert len(spans.freeze(everything=True)) == 1
    assert spans.freeze(everything=True) == []
    spans.end("", since=100.0)
    [row] = spans.freeze(everything=False)
    assert row[5] == 1
    assert spans.freeze(everything=True) == []


def test_a_process_keeps_a_bounded_number_of_spans():
    spans = Outages()
    for start in range(10_000):
        spans.note("", since=float(start), reason="refused")
    assert len(spans.freeze(everything=True)) == 500


@pytest.mark.django_db(transaction=True)
def test_a_breaker_that_opens_and_closes_becomes_a_span_with_the_true_times(
    broker, plan, make_key, redis_server, wait_until
):
    client, queue = broker(COUNTS_FLUSH_SECONDS=0.1)
    key, _ = make_key(plan)
    private = redis_server()
    with redis_at(private.url):
        began = datetime.now(UTC)
        private.stop()
        for _ in range(5):
            limiter.check(key.as_caller(), route="items")
        opened = datetime.now(UTC)
        private.start()
        wait_until(redis_is_asked)
        assert usage.flush(20)
    for batch in decisions.queued(client, queue=queue):
        assert recording.record(batch)
    # One row for each reason: a server that is starting fails in another way than one that is gone.
    spans = OutageSpan.objects.all()
    assert {(span.gateway, span.ended) for span in spans} == {(spans[0].gateway, 1)}
    assert "refused" in {span.error for span in spans}
    assert all(began <= span.started_at <= opened <= span.last_seen_at for span in spans)
    [outage] = stats.outages(stats.window(stats.RANGES["15m"], now=datetime.now(UTC)))
    assert (outage.gateways, outage.end_is_known, outage.local) == (1, True, 5)
    local = RefusalMinute.objects.filter(local__gt=0)
    assert {(row.identity, row.limit_id, row.route) for row in local} == {
        (key.bucket_identity, plan.limits.get().pk, "")
    }


# --- Outages -----------------------------------------------------------------------------------


@pytest.mark.django_db
def test_spans_that_overlap_or_nearly_are_one_outage():
    told("a", 0, 60)
    told("b", 10, 90, error="timeout")
    told("c", 94, 120, server="10.0.0.1:6379")
    told("a", 300, 310)

    assert outages() == (
        stats.Outage(after_noon(300), after_noon(310), True, ("refused",), ("",), 1),
        stats.Outage(NOON, after_noon(120), True, ("refused", "timeout"), ("", "10.0.0.1:6379"), 3),
    )


@pytest.mark.django_db
def test_an_outage_lasts_as_long_as_a_gateway_that_lives_says_so():
    told("a", 0, 50, ended=True)
    told("b", 0, 100, ended=False)
    assert outages(now=110)[0].ended_at is None


@pytest.mark.django_db
def test_the_span_of_a_process_that_died_ends_when_it_was_last_heard_of():
    told("a", 0, 100, ended=False)
    [outage] = outages(now=161)
    assert (outage.ended_at, outage.end_is_known) == (after_noon(100), False)


@pytest.mark.django_db
def test_a_process_that_died_is_outlived_by_those_that_saw_the_end():
    told("a", 0, 50, ended=False)
    told("b", 0, 100, ended=True)
    [outage] = outages()
    assert (outage.ended_at, outage.end_is_known) == (after_noon(100), True)


@pytest.mark.django_db
def test_only_outages_that_reach_into_the_window_are_told():
    told("a", -30 * 3600, -29 * 3600)
    told("b", -30 * 3600, -20 * 3600)
    told("c", 2 * 3600, 3 * 3600)
    assert [outage.gateways for outage in outages()] == [1]


@pytest.mark.django_db
def test_what_redis_did_not_decide_belongs_to_one_outage():
    told("a", 0, 60)
    told("a", 70, 80)
    statistics.used("x", at=NOON, unchecked=1, failed_closed=2, allowed=30, local=3)
    statistics.used("y", at=after_noon(60), unchecked=10)
    statistics.used("y", at=after_noon(600), unchecked=100)
    assert [(each.unchecked, each.failed_closed, each.local) for each in outages()] == [(0, 0, 0), (11, 2, 3)]


@pytest.mark.django_db
def test_an_outage_is_found_by_each_of_its_spans_with_what_was_told_of_each_server():
    told("z", -100, -30)
    told("a", 0, 60)
    told("b", 10, 90, error="timeout", ended=False)
    told("c", 62, 120)
    told("c", 300, 310)
    statistics.used("y", at=after_noon(-60), unchecked=1)
    statistics.used("y", at=NOON, unchecked=2)
    statistics.used("y", at=after_noon(60), failed_closed=4)
    now = after_noon(3600)

    for span in OutageSpan.objects.filter(started_at__range=(NOON, after_noon(62))):
        outage, parts = stats.outage_of(span, now=now)
        assert outage == outages()[1]
        assert (outage.started_at, outage.ended_at, outage.gateways) == (NOON, after_noon(120), 3)
        assert (outage.unchecked, outage.failed_closed) == (0, 4)  # what was before counts for the one before
        assert OutageSpan.objects.get(pk=outage.span_pk).gateway == "a"
        assert parts == (
            stats.OutagePart("", "refused", 2, NOON, after_noon(120), 0),
            stats.OutagePart("", "timeout", 1, after_noon(10), after_noon(90), 1),
        )


@pytest.mark.django_db
def test_an_outage_says_which_limits_did_what_to_whom(make_plan: Any, make_key: Any):
    told("a", 30, 90)
    limit = make_plan(on_failure="open").limits.get()
    key, _ = make_key(limit.plan)
    statistics.limited(limit.pk, at=NOON, identity=key.bucket_identity, route="", unchecked=5)
    statistics.limited(limit.pk, at=after_noon(60), identity="gone", route="", local=7, unchecked=1)
    statistics.limited(77, at=NOON, identity="gone", route="", failed_closed=2)
    statistics.limited(78, at=NOON, identity="gone", route="items", refused=9)
    statistics.limited(77, at=after_noon(120), identity="gone", route="", failed_closed=50)
    [outage] = outages()

    limits = stats.outage_limits(outage)
    assert {(row.limit_id, row.limit, row.unchecked, row.failed_closed, row.local) for row in limits} == {
        (limit.pk, limit, 6, 0, 7),
        (77, None, 0, 2, 0),
    }
    assert stats.outage_callers(outage) == (
        stats.OutageCaller("gone", None, limit.pk, limit, 1, 0, 7),
        stats.OutageCaller(key.bucket_identity, key, limit.pk, limit, 5, 0, 0),
        stats.OutageCaller("gone", None, 77, None, 0, 2, 0),
    )


# --- Pages -------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_overview_shows_outages_and_one_that_lasts():
    now = datetime.now(UTC)
    for gateway, ago, ended in (("a", 300, 1), ("b", 1, 0)):
        row = [gateway, "<b>node", now.timestamp() - ago - 1, "timeout", now.timestamp() - ago, ended]
        recording.record({"id": str(uuid.uuid4()), "outages": [row]})

    client = sign_in_viewer()
    text = look(client).text

    assert "When Redis could not be asked" in text
    assert re.search(r"since \d\d:\d\d \S+ \d+ s timeout, <b>node 0 0 0", text)
    assert "<b>node" not in client.get("/admin/ratelimit_app/overview/").content.decode()
