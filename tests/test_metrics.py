"""What does Prometheus read, and who may? Of this process alone; tests/test_metrics_servers.py has several."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ratelimit_app import changes, limiter, plan_cache, usage
from ratelimit_app.connections import Unavailable
from ratelimit_app.metrics.prometheus import Collector
from ratelimit_app.models import Episode, Evaluation, PlanLimit, Version
from tests import brokers, decisions
from tests.decisions import CALLER

broker = pytest.fixture(brokers.chosen)

DASHBOARD = Path(__file__).parent.parent / "docs/grafana-dashboard.json"
TOKEN = "a token of ours"


def parsed(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name, and by the values of their labels in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def scraped() -> dict[str, dict[tuple[str, ...], float]]:
    registry = CollectorRegistry()
    registry.register(Collector())
    return parsed(generate_latest(registry).decode())


# --- Who may -----------------------------------------------------------------------------------


def test_without_a_setting_nobody_may_read_it(db, client):
    for address in ("127.0.0.1", "10.0.0.1", ""):
        answer = client.get("/metrics", REMOTE_ADDR=address)
        assert answer.status_code == 403
        assert "ratelimit_decisions" not in answer.content.decode()


def test_who_has_the_token_may_read_it(db, client, configure):
    configure(METRICS_TOKEN=TOKEN)
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain")
    assert answer["Cache-Control"] == "no-store"
    for wrong in ("", f"Bearer {TOKEN}x", "Bearer ", "Bearer \u00e9", f"Basic {TOKEN}", TOKEN):
        assert client.get("/metrics", headers={"Authorization": wrong}).status_code == 403


@pytest.mark.parametrize(
    ("address", "forwarded", "status"),
    [
        ("10.1.2.3", "", 200),
        ("192.0.2.1", "", 403),
        ("2001:db8::7", "", 200),
        ("2001:db8::8", "", 403),
        ("::ffff:10.0.0.1", "", 200),
        ("192.0.2.1", "10.0.0.1", 403),  # what a caller writes
        ("172.16.0.1", "192.0.2.1, 10.0.0.1", 200),  # what our proxy wrote
        ("172.16.0.1", "10.0.0.1, 192.0.2.1", 403),
        ("", "", 403),
        ("nonsense", "", 403),
    ],
)
def test_who_comes_from_the_networks_may_read_it(db, client, configure, address, forwarded, status):
    configure(METRICS_NETWORKS=["10.0.0.0/8", "2001:db8::7"], TRUSTED_PROXIES=["172.16.0.0/12"], PROXY_COUNT=1)
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    assert client.get("/metrics", REMOTE_ADDR=address, headers=headers).status_code == status


def test_it_is_only_read(db, configure):
    configure(METRICS_TOKEN=TOKEN)
    client = Client(headers={"Authorization": f"Bearer {TOKEN}"}, enforce_csrf_checks=True)
    assert client.post("/metrics").status_code in (403, 405)
    assert client.head("/metrics").status_code == 200


def test_open_metrics_are_sent_to_who_asks_for_them(db, client, configure):
    configure(METRICS_TOKEN=TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/openmetrics-text; version=1.0.0"}
    answer = client.get("/metrics", headers=headers)
    assert answer["Content-Type"].startswith("application/openmetrics-text")
    assert answer.content.decode().endswith("# EOF\n")


def test_a_limiter_that_refuses_everybody_does_not_hide_it(make_plan, client, configure):
    make_plan("Cap", 1, 3600, 1, audience="everyone", per="everyone", shards=1)
    configure(METRICS_TOKEN=TOKEN, PATHS={"/": "required"})
    for _ in range(3):
        assert client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


# --- What there is to read ---------------------------------------------------------------------


def test_decisions_are_counted_by_outcome_and_by_limit_with_its_plan(broker, make_plan, make_key, client, wait_until):
    broker("redis://127.0.0.1:1/0")
    plan = make_plan("Free", 1, 3600, 3)
    key, text = make_key(plan, name="Nightly ETL")
    statuses = [client.get("/plain/ping/", headers={"Authorization": f"Bearer {text}"}).status_code for _ in range(5)]
    assert statuses == [200] * 3 + [429] * 2
    limit_id = str(PlanLimit.objects.get().pk)
    wait_until(lambda: sum(scraped().get("ratelimit_decisions_total", {}).values()) == 5)
    found = scraped()
    outcomes = found["ratelimit_decisions_total"]
    assert sum(count for (outcome, _), count in outcomes.items() if outcome == "allowed") == 3
    assert sum(count for (outcome, _), count in outcomes.items() if outcome == "refused") == 2
    assert found["ratelimit_limit_decisions_total"] == {
        ("free", limit_id, "passed", "free"): 3,
        ("free", limit_id, "refused", "free"): 2,
    }
    assert found["ratelimit_decision_seconds_count"] == {(): 5}
    assert found["ratelimit_decision_seconds_bucket"]["+Inf",] == 5
    assert found["ratelimit_decision_seconds_sum"][()] > 0
    everything = str(found)
    assert key.public_id not in everything
    assert key.bucket_identity not in everything
    assert "ETL" not in everything


def test_the_histogram_is_cumulative_and_in_seconds(broker, db, wait_until):
    broker("redis://127.0.0.1:1/0")
    for seconds in (0.000_005, 0.000_250, 0.000_250, 0.003, 5_000):
        usage.record(decisions.ALLOWED, CALLER, seconds=seconds)
    wait_until(lambda: scraped()["ratelimit_decision_seconds_count"] == {(): 5})
    buckets = {float(at_most): count for (at_most,), count in scraped()["ratelimit_decision_seconds_bucket"].items()}
    assert (buckets[0.00001], buckets[0.0002], buckets[0.0003], buckets[0.003], buckets[1.0]) == (1, 1, 3, 4, 4)
    assert list(buckets.values()) == sorted(buckets.values())
    assert max(buckets) == float("inf")


def test_states_are_told(broker, make_plan, wait_until):
    broker("redis://127.0.0.1:1/0", BUFFER_SIZE=1)
    make_plan()
    plan_cache.table()
    for number in range(100):
        usage.record(decisions.refused(), decisions.caller(number), seconds=0.0)
    wait_until(lambda: usage.state().failures and not usage.state().records)
    for _ in range(3):
        limiter._breaker().failed(Unavailable("timeout"))
    found = scraped()
    assert found["ratelimit_breakers_open"] == {(): 1}
    assert found["ratelimit_processes"] == {(): 1}
    assert found["ratelimit_shipping_failing"] == {(): 1}
    assert found["ratelimit_buffer_batches"][()] >= 1
    assert found["ratelimit_gateways"] == {(): 1}
    assert found["ratelimit_dropped_total"]["samples",] > 0
    assert found["ratelimit_plan_version"] == {(): Version.objects.get(name="plans").number}


def test_the_age_of_the_plans_is_that_of_the_last_comparison(make_plan, monkeypatch):
    make_plan()
    plan_cache.table()
    monkeypatch.setattr(plan_cache, "_current_at", plan_cache._current_at - 1_000)
    assert scraped()["ratelimit_plan_age_seconds"][()] >= 1_000
    changes.look()
    assert scraped()["ratelimit_plan_age_seconds"][()] < 1_000
    monkeypatch.setattr(plan_cache, "_current_at", plan_cache._current_at - 1_000)
    Version.objects.filter(name="plans").update(number=99)
    changes.look()  # reads them anew
    assert scraped()["ratelimit_plan_age_seconds"][()] < 1_000
    assert scraped()["ratelimit_plan_version"] == {(): 99}


def test_open_alerts_and_the_last_evaluation_are_told(db):
    now = timezone.now()
    for subject in ("", "key", "other"):
        kind = "key_blocked" if subject else "blocked"
        Episode.objects.create(kind=kind, subject=subject, started_at=now, bad_until=now, worst=9, threshold=5)
    Evaluation.objects.create(pk=1, evaluated_at=datetime(2026, 11, 30, tzinfo=UTC))
    found = scraped()
    opened = found["ratelimit_alerts_open"]
    assert (opened["blocked",], opened["key_blocked",], opened["slow",]) == (1, 2, 0)
    assert found["ratelimit_alerts_evaluated_timestamp_seconds"] == {(): datetime(2026, 11, 30, tzinfo=UTC).timestamp()}


@pytest.mark.django_db(transaction=True)
def test_what_a_process_knows_is_told_while_the_database_is_down(client, configure):
    configure(METRICS_TOKEN=TOKEN)
    with connection.schema_editor() as editor:
        editor.alter_db_table(Episode, Episode._meta.db_table, "elsewhere")
    try:
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    finally:
        with connection.schema_editor() as editor:
            editor.alter_db_table(Episode, "elsewhere", Episode._meta.db_table)
    assert answer.status_code == 200
    found = parsed(answer.content.decode())
    assert "ratelimit_alerts_open" not in found
    assert found["ratelimit_processes"] == {(): 1}


def test_a_file_that_cannot_be_read_leaves_the_counts_out(db, configure, tmp_path):
    configure(METRICS_FILE=str(tmp_path / "no folder" / "metrics"))
    found = scraped()
    assert found["ratelimit_processes"] == {(): 0}
    assert "ratelimit_decisions_total" not in found


def test_a_scrape_costs_the_same_few_queries_however_many_keys_there_are(
    make_plan, make_key, django_assert_num_queries
):
    plan = make_plan()
    for _ in range(20):
        make_key(plan)
    plan_cache.table()
    Evaluation.objects.create(pk=1, evaluated_at=timezone.now() - timedelta(minutes=1))
    with django_assert_num_queries(2):
        scraped()


# --- The dashboard -----------------------------------------------------------------------------


def expressions(panels: list[dict[str, Any]]) -> list[str]:
    return [
        target["expr"]
        for panel in panels
        for target in panel.get("targets", []) + [{"expr": e} for e in expressions(panel.get("panels", []))]
    ]


def test_each_metric_and_label_that_the_dashboard_asks_for_exists(broker, make_plan, wait_until):
    broker("redis://127.0.0.1:1/0", BUFFER_SIZE=1)
    make_plan()
    plan_cache.table()
    Evaluation.objects.create(pk=1, evaluated_at=timezone.now())
    for number in range(100):
        usage.record(decisions.refused(), decisions.caller(number), seconds=0.0)
    usage.record(decisions.UNCHECKED, CALLER, seconds=0.0)
    wait_until(lambda: not usage.state().records)
    registry = CollectorRegistry()
    registry.register(Collector())
    text = generate_latest(registry).decode()
    names = set(re.findall(r"^(ratelimit_\w+)", text, re.MULTILINE))
    braces = " ".join(re.findall(r"^ratelimit_\w+{(.*)}", text, re.MULTILINE))
    labels = {"job", "instance", *re.findall(r"(\w+)=", braces)}
    asked = expressions(json.loads(DASHBOARD.read_text())["panels"])
    assert len(asked) >= 10
    for expression in asked:
        assert set(re.findall(r"\bratelimit_\w+", expression)) <= names, expression
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)) <= labels, expression
        for grouped in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression):
            assert {label.strip() for label in grouped.split(",")} <= labels, expression


def test_every_metric_is_on_the_dashboard(db):
    asked = " ".join(expressions(json.loads(DASHBOARD.read_text())["panels"]))
    Evaluation.objects.create(pk=1, evaluated_at=timezone.now())
    registry = CollectorRegistry()
    registry.register(Collector())
    families = {family.name for family in registry.collect()}
    assert {name for name in families if name not in asked} == set()
