"""Do buckets of different callers, scopes and projects never mix? Case C14 from the field."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path

from ratelimit_app import buckets, checks, conf, testing
from ratelimit_app.decorators import ratelimited
from ratelimit_app.limits import Caller, Limit
from tests import urls
from tests.doors import (
    ASYNC,
    DRF_LATE,
    PLAIN,
    Door,
    at,
    every_door,
)

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
