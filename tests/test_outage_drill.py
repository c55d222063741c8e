"""Does the drill try what an outage would do, in its own process alone, and say it truly?"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from ratelimit_app import buckets, drill, limiter, usage
from ratelimit_app.drill.detour import _address_of
from ratelimit_app.models import Batch, KeyUse, Plan
from tests import brokers, decisions
from tests.outages import REFUSING, redis_at, redis_is_asked

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(120)]
broker = pytest.fixture(brokers.chosen)


def hold(**options: Any) -> dict[str, Any]:
    out = io.StringIO()
    call_command("outage_drill", seconds=2, json=True, stdout=out, stderr=io.StringIO(), **options)
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def limit_of(report: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [row for row in report["limits"] if row["limit"] == name]
    return dict(found)


@pytest.fixture
def plans(make_plan: Any) -> None:
    make_plan("Local", 600, 60, 100_000)
    make_plan("Open", 600, 60, 100_000, on_failure="open")
    everyone = make_plan("Everyone", 600, 60, 100_000, audience="everyone", scope="login", on_failure="closed")
    everyone.limits.update(per="address")


def test_while_redis_is_gone_each_limit_does_what_it_says_and_then_redis_decides_again(plans):
    report = hold()

    assert report["failures"][0] in ("refused", "connection")
    assert report["noticed_after_seconds"] is not None
    assert 0 <= report["resumed_after_seconds"] < drill.exercise.RESUMES_WITHIN_SECONDS
    local, open_, closed = (limit_of(report, name) for name in ("local", "open", "everyone"))
    for row in (local, open_, closed):
        assert row["before"]["decisions"] == row["before"]["by_redis"] > 0
        assert row["before"]["longest_seconds"] > 0
        assert row["after"]["by_redis"] > 0
        during = row["during"]
        assert during["decisions"] >= during["by_redis"] + during["from_memory"] + during["unchecked"]
        assert during["decisions"] >= during["allowed"] + during["refused"] + during["failed_closed"]
    assert local["during"]["from_memory"] > 0
    assert local["during"]["allowed"] > 0
    assert open_["during"]["unchecked"] == open_["during"]["allowed"] > 0
    assert closed["during"]["failed_closed"] > 0
    assert closed["during"]["allowed"] == 0
    assert redis_is_asked()


def test_a_slow_redis_is_noticed_by_the_timeout(plans, configure):
    configure(TIMEOUT_SECONDS=0.2)
    report = hold(slow_by=1.0, plan=["local"])
    assert report["failures"] == ["timeout"]
    assert limit_of(report, "local")["during"]["from_memory"] > 0


def test_a_redis_that_is_slow_but_not_too_slow_goes_on_deciding(plans, configure):
    configure(TIMEOUT_SECONDS=20.0)
    report = hold(slow_by=0.05, plan=["open"])
    assert (report["noticed_after_seconds"], report["resumed_after_seconds"]) == (None, None)
    during = limit_of(report, "open")["during"]
    assert during["by_redis"] == during["decisions"] > 0
    assert during["longest_seconds"] >= 0.05


def test_a_drill_leaves_no_count_and_no_trace_in_anybody_elses_bucket(plans, broker, make_key, redis_client, prefix):
    client, queue = broker(FLUSH_SECONDS=0.01, COUNTS_FLUSH_SECONDS=0.01)
    key, _ = make_key(Plan.objects.get(slug="local"))
    hold(plan=["local"])
    assert list(decisions.queued(client, queue=queue)) == []
    assert not Batch.objects.exists()
    assert not KeyUse.objects.exists()
    assert limiter.peek(key.as_caller()).tightest.remaining == 100_000  # type: ignore[union-attr]


def test_a_drill_can_be_counted_so_that_pages_and_alerts_react(plans, broker):
    client, queue = broker(FLUSH_SECONDS=0.01, COUNTS_FLUSH_SECONDS=0.01)
    hold(plan=["open"], count=True)
    assert usage.flush(20)
    counted = decisions.totals(decisions.queued(client, queue=queue))
    assert counted["unchecked"] > 0


def test_a_named_key_spends_its_own_tokens(plans, make_key):
    key, _ = make_key(Plan.objects.get(slug="local"))
    report = hold(key=[key.public_id])
    assert {row["plan"] for row in report["limits"]} == {"local", "everyone"}
    assert buckets.take((key.plan.limits.get().as_limit(),), key.as_caller(), dry=True).weighed[0].remaining < 100_000


def test_people_read_a_table(plans):
    out = io.StringIO()
    call_command("outage_drill", seconds=1, plan=["local"], stdout=out, stderr=io.StringIO())
    text = out.getvalue()
    assert "was gone for 1 s, for this process alone" in text
    assert "Redis decided again" in text
    assert [line.split()[:3] for line in text.splitlines() if " local " in line] == [
        [phase, "local", "local"] for phase in ("before", "during", "after")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plan", "nope"], "no plan 'nope'"),
        (["--plan", "everyone"], "no plan 'everyone'"),
        (["--key", "000000000000"], "no key with the public id"),
        (["--seconds", "0"], "no number from 1 to 3600"),
        (["--rate", "x"], "no number from 1 to 1000"),
        (["--slow-by", "50"], "no time such as 50ms"),
        (["--slow-by", "61s"], "no time such as 50ms"),
        (["--gone", "--slow-by", "50ms"], "not allowed with"),
    ],
)
def test_what_cannot_be_tried_is_said_and_nothing_begins(plans, arguments, words):
    with pytest.raises(CommandError, match=words):
        call_command("outage_drill", *arguments, stdout=io.StringIO(), stderr=io.StringIO())


def test_without_a_limit_or_with_limiting_off_there_is_nothing_to_try(make_plan, configure):
    with pytest.raises(CommandError, match="nothing to try"):
        hold()
    make_plan()
    configure(MODE="off")
    with pytest.raises(CommandError, match='"off"'):
        hold()


def test_a_drill_is_not_held_while_redis_is_really_gone(plans):
    with redis_at(REFUSING), pytest.raises(CommandError, match="does not decide even now"):
        hold()


@pytest.mark.parametrize(
    ("url", "address", "led"),
    [
        ("redis://10.0.0.1:7000/3", ("10.0.0.1", 7000), "redis://HERE/3"),
        ("redis://:p%40ss@redis/0?socket_keepalive=1", ("redis", 6379), "redis://:p%40ss@HERE/0?socket_keepalive=1"),
        ("rediss://u:p@[::1]:6380/1", ("::1", 6380), "rediss://u:p@HERE/1?ssl_check_hostname=false"),
        ("unix:///run/redis.sock?db=2", "/run/redis.sock", "redis://HERE/2"),
        ("redis://:{x}@h", ("h", 6379), "redis://:%7Bx%7D@HERE"),
    ],
)
def test_the_way_is_led_through_the_gate_with_all_that_the_url_says(url, address, led):
    found, path = _address_of(url)
    assert found == address
    assert path.format(place="HERE") == led


@pytest.mark.parametrize("url", ["redis+cluster://a:1,b:2/0", "mymaster", "", "redis://h:port/0"])
def test_what_is_no_single_server_is_refused(url, plans, settings):
    cache = {**settings.CACHES["ratelimit"], "LOCATION": url}
    with (
        override_settings(CACHES={**settings.CACHES, "ratelimit": cache}),
        pytest.raises(CommandError, match=r"needs one Redis server|cannot be read"),
    ):
        hold()
