"""Are buckets exact, apart, and gone in time? Cases C08 to C17 from the field, at every door."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient
from django.urls import path, reverse

from ratelimit_app import allow, buckets, checks, conf, keys, testing
from ratelimit_app.decorators import ratelimited
from ratelimit_app.limits import Caller, Limit
from ratelimit_app.models import Plan
from tests import urls
from tests.doors import (
    ASYNC,
    DRF,
    DRF_LATE,
    LEGACY_HEADERS,
    PLAIN,
    Door,
    at,
    every_door,
    on_redis,
    remaining,
    retry_after,
    statuses,
    stopped_clock,
)
from tests.servers import RedisServer

pytestmark = pytest.mark.django_db

SCOPES = (
    *("a:b", "a", "b", "a b", "{a}", "}{", "*", "a*", "ключ", "x" * 100, "x" * 99),
    *("\N{LATIN SMALL LETTER A WITH ACUTE}", "a\N{COMBINING ACUTE ACCENT}"),
)


def scoped(request: HttpRequest) -> HttpResponse:
    return HttpResponse("scoped")


urlpatterns = [
    *(path(f"scope/{place}/ping/", ratelimited(scope=scope)(scoped)) for place, scope in enumerate(SCOPES)),
    *urls.urlpatterns,
]


def at_once(send: Callable[[], Any], *, times: int) -> list[Any]:
    """So many threads, one call each, all in the same moment."""
    answers: list[Any] = []
    barrier = threading.Barrier(times)

    def one() -> None:
        barrier.wait()
        answers.append(send())

    threads = [threading.Thread(target=one) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def names_below(client: redis.Redis, prefix: str) -> list[Any]:
    return list(client.scan_iter(match=f"{prefix}:*", count=1000))


# --- C08 ---------------------------------------------------------------------------------------


@every_door
def test_c08_refused_polling_costs_no_tokens_and_loses_no_fractions(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=10, burst=2))[1]
    with stopped_clock() as clock:
        assert statuses([door.send(key), door.send(key)]) == [200, 200]
        told: dict[int, int] = {}
        served = []
        for second in range(1, 32):
            clock.advance(1)
            answer = door.send(key)
            if answer.status_code == 200:
                served.append(second)
            else:
                assert answer.status_code == 429
                told[second] = retry_after(answer)
    assert served == [10, 20, 30]
    assert told == {second: 10 - second % 10 for second in range(1, 32) if second % 10}


@every_door
def test_c08_a_poll_every_few_milliseconds_gains_what_the_plan_says(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=1, burst=2))[1]
    with stopped_clock() as clock:
        served = 0
        for _ in range(300):
            served += door.send(key).status_code == 200
            clock.advance(0.013)
    assert served == 2 + 3  # 299 steps of 13 ms are 3.887 s


# --- C09 ---------------------------------------------------------------------------------------


@pytest.fixture
def save_in_admin(admin_client) -> Callable[..., None]:
    """`save_in_admin(plan, burst=100)`: open the plan's form, change its one limit, and save."""

    def save(plan: Plan, **changes: int) -> None:
        limit = plan.limits.get()
        fields = ("name", "requests", "period_seconds", "burst", "per", "scope", "mode", "on_failure")
        form = {
            "name": plan.name,
            "slug": plan.slug,
            "description": plan.description,
            "audience": plan.audience,
            "limits-TOTAL_FORMS": 1,
            "limits-INITIAL_FORMS": 1,
            "limits-0-id": limit.pk,
            "limits-0-plan": plan.pk,
            **{f"limits-0-{field}": changes.get(field, getattr(limit, field)) for field in fields},
        }
        answer = admin_client.post(reverse("admin:ratelimit_app_plan_change", args=[plan.pk]), form)
        assert answer.status_code == 302, answer.content.decode()

    return save


@pytest.fixture
def save_in_orm() -> Callable[..., None]:
    """The same by `save`, where somebody's own code edits plans."""

    def save(plan: Plan, **changes: int) -> None:
        limit = plan.limits.get()
        for field, value in changes.items():
            setattr(limit, field, value)
        limit.save()
        plan.save()

    return save


@pytest.fixture
def save_by_update() -> Callable[..., None]:
    """The same by `QuerySet.update`."""

    def save(plan: Plan, **changes: int) -> None:
        Plan.objects.filter(pk=plan.pk).update(name=plan.name)
        plan.limits.update(**(changes or {"burst": plan.limits.get().burst}))

    return save


@pytest.fixture(params=["save_in_admin", "save_in_orm", "save_by_update"])
def edit(request) -> Callable[..., None]:
    """Every way in which a plan is edited."""
    return request.getfixturevalue(request.param)


@pytest.mark.django_db(transaction=True)
@at(DRF_LATE, PLAIN)
def test_c09_a_tightened_plan_keeps_the_used_share(door, make_plan, make_key, save_in_admin):
    plan = make_plan(requests=2000, period_seconds=86_400, burst=2000)
    key = make_key(plan)[1]
    with stopped_clock():
        assert statuses([door.send(key) for _ in range(500)]) == [200] * 500
        save_in_admin(plan, requests=200, burst=200)
        first = door.send(key)
        assert first["X-RateLimit-Limit"] == "200"
        assert first["X-RateLimit-Remaining"] == "149"
        assert door.drain(key) == 149
        assert retry_after(door.send(key)) == 432


@pytest.mark.django_db(transaction=True)
@at(DRF, ASYNC)
def test_c09_a_drained_caller_stays_drained_whatever_is_saved(door, edit, make_plan, make_key):
    plan = make_plan(requests=1, period_seconds=3600, burst=10)
    key = make_key(plan)[1]
    with stopped_clock():
        assert door.drain(key) == 10
        edit(plan)
        assert door.send(key).status_code == 429
        edit(plan, burst=100)
        answer = door.send(key)
        assert (answer.status_code, answer["X-RateLimit-Limit"]) == (429, "100")
        edit(plan, burst=7)
        answer = door.send(key)
        assert (answer.status_code, answer["X-RateLimit-Limit"]) == (429, "7")
        assert retry_after(answer) <= 3600


@pytest.mark.django_db(transaction=True)
@at(DRF_LATE, PLAIN)
def test_c09_a_lower_rate_hands_out_nothing(door, edit, make_plan, make_key):
    plan = make_plan(requests=1000, period_seconds=60, burst=1000)
    key = make_key(plan)[1]
    with stopped_clock():
        assert [allow(key) for _ in range(1001)] == [True] * 1000 + [False]
        edit(plan, requests=10)
        answer = door.send(key)
    assert answer.status_code == 429
    assert answer["X-RateLimit-Remaining"] == "0"
    assert retry_after(answer) == 6


# --- C11 ---------------------------------------------------------------------------------------


@every_door
@pytest.mark.parametrize(("requests", "period_seconds", "burst"), [(10, 1, 20), (1, 86_400, 2)])
def test_c11_every_name_in_redis_expires(
    door, requests, period_seconds, burst, make_plan, make_key, redis_client, prefix
):
    key = make_key(make_plan(requests=requests, period_seconds=period_seconds, burst=burst))[1]
    longest_ms = burst * period_seconds * 1000 / requests + 1000

    def expire_in_time() -> bool:
        names = names_below(redis_client, prefix)
        return bool(names) and all(0 < redis_client.pttl(name) <= longest_ms for name in names)

    assert door.send(key).status_code == 200
    assert expire_in_time()
    door.drain(key)
    assert expire_in_time()
    for _ in range(2):
        for name in names_below(redis_client, prefix):
            redis_client.persist(name)
        door.send(key)
        assert expire_in_time()


@at(DRF_LATE, PLAIN)
def test_c11_an_idle_bucket_is_gone_and_full(door, make_plan, make_key, redis_client, prefix, wait_until):
    key = make_key(make_plan(requests=10, period_seconds=1, burst=20))[1]
    door.drain(key)
    wait_until(lambda: not names_below(redis_client, prefix), seconds=6)
    assert door.send(key)["X-RateLimit-Remaining"] == "19"


# --- C12 ---------------------------------------------------------------------------------------


@every_door
def test_c12_a_huge_plan_is_counted_in_plain_digits(door, make_plan, make_key):
    key = make_key(make_plan(requests=1_000_000, period_seconds=1, burst=2_000_000_000))[1]
    answer = door.send(key)
    assert answer["X-RateLimit-Limit"] == "2000000000"
    assert answer["X-RateLimit-Remaining"] == "1999999999"


def test_c12_a_fast_plan_is_exact(make_plan, make_key):
    key = make_key(make_plan(requests=5000, period_seconds=1, burst=5000))[1]
    with stopped_clock():
        found = [allow(key) for _ in range(6000)]
    assert found == [True] * 5000 + [False] * 1000


@every_door
def test_c12_a_slow_plan_is_exact(door, make_plan, make_key):
    key = make_key(make_plan(requests=1, period_seconds=86_400, burst=2))[1]
    with stopped_clock() as clock:
        assert door.drain(key) == 2
        clock.advance(3600)
        assert retry_after(door.send(key)) == 82_800


@pytest.mark.parametrize(
    ("requests", "period_seconds", "burst"),
    [(10**10, 1, 1), (1, 10**12, 1), (1, 1, 2**53), (1, 86_400, 2_000_000_000), (10**30, 1, 1), (1, 1, 10**30)],
)
def test_c12_what_cannot_be_counted_exactly_is_refused(requests, period_seconds, burst, make_plan):
    row = make_plan().limits.get()
    row.requests, row.period_seconds, row.burst = requests, period_seconds, burst
    with pytest.raises(ValidationError):
        row.full_clean()


# --- C14 ---------------------------------------------------------------------------------------


@every_door
def test_c14_keys_that_begin_alike_have_buckets_of_their_own(door, make_plan, make_key, configure):
    configure(KEY_PREFIX="acme_production")
    plan = make_plan()
    one, other = make_key(plan)[1], make_key(plan)[1]
    assert one[:16] == other[:16]
    assert door.drain(one) == 3
    assert door.send(other)["X-RateLimit-Remaining"] == "2"


def test_c14_scopes_of_any_text_have_buckets_of_their_own(settings, make_plan, make_key):
    settings.ROOT_URLCONF = __name__
    plan = make_plan(scope=SCOPES[0])
    for place, scope in enumerate(SCOPES[1:]):
        row = plan.limits.create(name=f"limit-{place}", requests=1, period_seconds=3600, burst=3, scope=scope)
        row.full_clean()
    key = make_key(plan)[1]
    doors = [Door(scope, f"/scope/{place}/") for place, scope in enumerate(SCOPES)]
    for door in doors:
        assert door.drain(key) == 3, f"another scope spent the tokens of {door.name!r}"


TEXTS = (
    *("a", "a:b", "b:c", "c", "{", "}", "{a}", "a b", "*", "a*", "?", "\\", "\0", "a\0", "ключ", "\udcff"),
    *("x" * 5000, "x" * 5001),
)


def limit(**fields: Any) -> Limit:
    return Limit(**{"id": 1, "name": "limit", "requests": 1, "period_seconds": 3600, "burst": 3, **fields})


def test_c14_callers_of_any_name_have_buckets_of_their_own():
    """Below the doors: no text that a caller brings can meet another caller's."""
    pairs = [(limit(), Caller(bucket_identity=text)) for text in TEXTS]
    pairs += [(limit(per="user"), Caller(user_id=text)) for text in TEXTS]
    pairs += [(limit(per="address"), Caller(address=text)) for text in ("", *TEXTS)]
    pairs += [(limit(id=number), Caller(bucket_identity="a")) for number in (11, 111)]
    pairs += [(limit(generation=number), Caller(bucket_identity="a")) for number in (11, 111)]
    for weighed, caller in pairs:
        left = [buckets.take((weighed,), caller).remaining for _ in range(4)]
        assert left == [2, 1, 0, 0], f"another caller spent the tokens of {caller}"


PREFIXES = (
    "shop",
    "shop:eu",
    "shop:eu:1",
    "shop-eu",
    "shop?",
    "sho[p]",
    "shop*",
    "{shop}",
    "sh}op{",
    "магазин",
    "x" * 200,
)


@at(DRF_LATE, ASYNC)
def test_c14_projects_with_prefixes_of_their_own_share_a_server(door, plan, make_key, configure, prefix):
    key = make_key(plan)[1]
    for name in PREFIXES:
        configure(PREFIX=f"{prefix}{name}")
        assert door.drain(key) == 3, f"another project spent the tokens of {name!r}"


@pytest.mark.parametrize("cleared", PREFIXES)
def test_c14_clearing_one_project_leaves_the_others_alone(cleared, plan, make_key, configure, prefix):
    key = make_key(plan)[1]
    for name in PREFIXES:
        configure(PREFIX=f"{prefix}{name}")
        assert PLAIN.drain(key) == 3
    configure(PREFIX=f"{prefix}{cleared}")
    testing.reset()
    for name in PREFIXES:
        configure(PREFIX=f"{prefix}{name}")
        answer = PLAIN.send(key)
        if name == cleared:
            assert answer["X-RateLimit-Remaining"] == "2"
        else:
            assert answer.status_code == 429, f"clearing {cleared!r} cleared {name!r}"


def test_c14_the_default_prefix_is_not_empty_and_an_empty_one_is_an_error(settings):
    assert conf.Settings().prefix
    settings.RATELIMIT_APP = {**settings.RATELIMIT_APP, "PREFIX": ""}
    assert [found.id for found in checks.check_setup()] == ["ratelimit_app.E001"]
    settings.RATELIMIT_APP = {name: value for name, value in settings.RATELIMIT_APP.items() if name != "PREFIX"}
    assert not [found for found in checks.check_setup() if found.id == "ratelimit_app.E001"]


# --- C15 ---------------------------------------------------------------------------------------


@every_door
def test_c15_a_flushed_script_cache_changes_no_answer(door, make_plan, make_key, redis_server, caplog):
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=10))[1]
    server = redis_server()
    with server.client() as client, on_redis(server.url):
        assert remaining([door.send(key), door.send(key)]) == ["9", "8"]
        client.script_flush()
        answers = at_once(lambda: door.send(key), times=20)
        assert sorted(statuses(answers)) == [200] * 8 + [429] * 12
        assert all(name in answer for answer in answers for name in LEGACY_HEADERS)
        client.flushall()
        assert remaining([answer := door.send(key)]) == ["9"]
        assert answer.status_code == 200
    assert not [record for record in caplog.records if record.name.startswith("ratelimit_app")]


@every_door
def test_c15_a_restarted_server_is_used_at_once(door, make_plan, make_key, redis_server, caplog, wait_until):
    key = make_key(make_plan(requests=1, period_seconds=3600, burst=10))[1]
    server = redis_server()
    with on_redis(server.url):
        assert remaining([door.send(key), door.send(key)]) == ["9", "8"]
        used_at = time.monotonic()
        server.restart()
        wait_until(lambda: time.monotonic() - used_at > 0.06)  # a connection is trusted for 50 ms after its last use
        assert remaining([door.send(key), door.send(key)]) == ["9", "8"]
    assert not [record for record in caplog.records if record.name.startswith("ratelimit_app")]


@pytest.mark.django_db(transaction=True)
async def test_c15_a_restarted_server_is_used_at_once_by_an_event_loop(make_plan, make_key, redis_server, caplog):
    _row, key = await sync_to_async(lambda: make_key(make_plan(requests=1, period_seconds=3600, burst=10)))()
    server, client = redis_server(), AsyncClient()
    with on_redis(server.url):
        before = [await client.get("/async/ping/", headers={"Authorization": f"Bearer {key}"}) for _ in range(2)]
        await sync_to_async(server.restart)()
        await asyncio.sleep(0.06)
        after = [await client.get("/async/ping/", headers={"Authorization": f"Bearer {key}"}) for _ in range(2)]
    assert remaining([*before, *after]) == ["9", "8", "9", "8"]
    assert not [record for record in caplog.records if record.name.startswith("ratelimit_app")]


# --- C17 ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster_server(tmp_path_factory) -> Iterator[RedisServer]:
    """A cluster of one node that owns every slot; it takes two seconds to believe in itself."""
    server = RedisServer(tmp_path_factory.mktemp("cluster") / "redis", "--cluster-enabled", "yes")
    with server.client() as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        deadline = time.monotonic() + 20
        while client.cluster("INFO")["cluster_state"] != "ok":
            assert time.monotonic() < deadline, client.cluster("INFO")
            time.sleep(0.02)
    yield server
    server.stop()


@pytest.fixture
def cluster(cluster_server) -> Iterator[redis.Redis]:
    """A client of the cluster; the buckets are there."""
    with cluster_server.client(decode_responses=True) as client, on_redis(cluster_server.url):
        client.script_load(buckets._TAKE.text)  # so that MONITOR shows EVALSHA alone
        yield client


class Watched:
    """What MONITOR saw: the names each script call declared, and those that scripts touched."""

    def __init__(self, client: redis.Redis, send: Callable[[], Any]) -> None:
        self.declared: list[list[str]] = []
        self.touched: set[str] = set()
        with client.monitor() as monitor:
            send()
            client.echo("the end")
            while (seen := monitor.next_command())["command"] != "ECHO the end":
                words = seen["command"].split(" ")
                if words[0] == "EVALSHA":
                    self.declared.append(words[3 : 3 + int(words[2])])
                elif seen["client_type"] == "lua" and words[0] != "TIME":
                    assert words[0] in ("GET", "SET", "PTTL", "DEL"), words
                    self.touched.add(words[1])


@every_door
@pytest.mark.parametrize("braces", ["", "{a}b", "a}{b", "{}"])
@pytest.mark.django_db(transaction=True)
def test_c17_a_script_touches_declared_names_in_one_slot(door, braces, cluster, configure, prefix, make_plan, make_key):
    configure(PREFIX=f"{prefix}{braces}")
    plan = make_plan(requests=1, period_seconds=3600, burst=3)
    plan.limits.create(name="daily", requests=1000, period_seconds=86_400, burst=1000)
    key = make_key(plan)[1]
    answers: list[Any] = []
    watched = Watched(cluster, lambda: answers.extend(door.send(key) for _ in range(4)))
    assert statuses(answers) == [200, 200, 200, 429]
    assert remaining(answers) == ["2", "1", "0", "0"]
    assert len(watched.declared) == 4, "one script call for each request"

    plan.limits.filter(name="daily").update(burst=500)  # now each call declares the earlier bucket, too
    later = Watched(cluster, lambda: answers.append(door.send(key)))
    assert answers[-1].status_code == 429
    assert [len(names) for names in later.declared] == [3]

    for seen in (watched, later):
        assert seen.touched <= {name for names in seen.declared for name in names}
        for names in seen.declared:
            assert len({cluster.cluster("KEYSLOT", name) for name in names}) == 1


@every_door
def test_c17_limits_that_count_by_different_things_work_on_a_cluster(
    door, cluster, make_plan, make_key, django_user_model
):
    plan = make_plan(requests=1, period_seconds=3600, burst=3)
    plan.limits.create(name="by-user", requests=1, period_seconds=3600, burst=50, per="user")
    plan.limits.create(name="by-address", requests=1, period_seconds=3600, burst=50, per="address")
    make_plan("Everyone", 1, 3600, 50, audience="everyone", per="address")
    key = make_key(plan, owner=django_user_model.objects.create_user("owner"))[1]
    answers = [door.send(key) for _ in range(4)]
    assert statuses(answers) == [200, 200, 200, 429]
    assert remaining(answers) == ["2", "1", "0", "0"]


@pytest.mark.parametrize("braced", ["{rl_live}_0123456789ab_secret", "}{", "{}"])
def test_c17_a_key_with_braces_is_no_key(braced, cluster, prefix):
    assert keys.parse(braced) is None
    assert PLAIN.send(braced).status_code == 401
    assert not names_below(cluster, prefix)
