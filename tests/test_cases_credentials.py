"""What becomes of malformed credentials and strange addresses? Cases C22 and C27, straight at the handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connections
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import conf, keys, usage
from ratelimit_app.authentication import APIKeyAuthentication
from tests import brokers, decisions, urls
from tests.doors import (
    ASYNC,
    DRF,
    DRF_LATE,
    PLAIN,
    by_every_handler,
)

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)


class ManyWays(APIView):
    """A view that takes sessions as well as keys."""

    authentication_classes = [APIKeyAuthentication, SessionAuthentication]

    def get(self, request: Request) -> Response:
        return Response({"ping": "many ways"})


urlpatterns = [path("api/many/ping/", ManyWays.as_view()), *urls.urlpatterns]


# --- C22 ---------------------------------------------------------------------------------------


def garbage() -> str:
    """A key of the right form that nobody has."""
    return keys.generate(conf.current().key_prefix)[0]


KEY = "the key"  # stands for a valid one
CYRILLIC = "ключ".encode()

MALFORMED: dict[str, list[tuple[str, bytes | str]]] = {
    "none": [],
    "empty": [("Authorization", b"")],
    "one space": [("Authorization", b" ")],
    "the scheme alone": [("Authorization", b"Bearer")],
    "the scheme and a space": [("Authorization", b"Bearer ")],
    "the other scheme alone": [("Authorization", b"Api-Key")],
    "a stray byte": [("Authorization", b"Bearer abc\xff")],
    "a Cyrillic word": [("Authorization", b"Bearer " + CYRILLIC)],
    "a Cyrillic word alone": [("Authorization", CYRILLIC)],
    "a NUL": [("Authorization", b"Bearer \0")],
    "a NUL in a key": [("Authorization", f"Bearer {KEY}\0")],
    "ten thousand letters": [("Authorization", b"Bearer " + b"x" * 10_000)],
    "a key with a space in it": [("Authorization", f"Bearer {KEY[:3]} {KEY[3:]}")],
    "two keys in one header": [("Authorization", f"Bearer {KEY}, Bearer {KEY}")],
    "two headers": [("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {KEY}")],
    "two headers of two kinds": [("Authorization", f"Bearer {KEY}"), ("X-API-Key", KEY)],
    "a key without a scheme": [("Authorization", KEY)],
    "a key with an unknown scheme": [("Authorization", f"Token {KEY}")],
    "X-API-Key: empty": [("X-API-Key", b"")],
    "X-API-Key: one space": [("X-API-Key", b" ")],
    "X-API-Key: a stray byte": [("X-API-Key", b"abc\xff")],
    "X-API-Key: a Cyrillic word": [("X-API-Key", CYRILLIC)],
    "X-API-Key: a NUL": [("X-API-Key", b"\0")],
    "X-API-Key: ten thousand letters": [("X-API-Key", b"x" * 10_000)],
    "X-API-Key: two headers": [("X-API-Key", KEY), ("X-API-Key", KEY)],
    "X-API-Key: with a scheme": [("X-API-Key", f"Bearer {KEY}")],
    "a key that nobody has": [("Authorization", f"Bearer {garbage()}")],
}
WELL_FORMED: dict[str, list[tuple[str, str]]] = {
    "a scheme in small letters": [("Authorization", f"bearer {KEY}")],
    "a scheme in capitals": [("Authorization", f"BEARER {KEY}")],
    "the other scheme": [("Authorization", f"aPI-kEY {KEY}")],
    "blanks around the key": [("Authorization", f"  Bearer    {KEY}   ")],
    "X-API-Key": [("X-API-Key", KEY)],
    "X-API-Key: blanks around the key": [("X-API-Key", f"   {KEY}  ")],
    "a header that is not for us beside it": [("Authorization", "Basic YTpi"), ("X-API-Key", KEY)],
}
PATHS = [*(door.path + "ping/" for door in (DRF, DRF_LATE, PLAIN, ASYNC)), "/api/many/ping/"]


def wire(headers: list[tuple[str, Any]], key: str) -> list[tuple[str, bytes]]:
    """The headers with the valid key in its place, whole or in halves."""
    sent = []
    for name, value in headers:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        text = text.replace(KEY, key).replace(f"{KEY[:3]} {KEY[3:]}", f"{key[:30]} {key[30:]}")
        sent.append((name, text.encode("latin-1")))
    return sent


@pytest.fixture
def one_url_more(settings, monkeypatch) -> None:
    settings.ROOT_URLCONF = __name__
    # The ASGI handler's thread ends with the request; its database connection must not outlive it.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)


@by_every_handler
@pytest.mark.parametrize("path_of_a_door", PATHS)
@pytest.mark.django_db(transaction=True)
def test_c22_malformed_credentials_are_401(handler, path_of_a_door, one_url_more, plan, make_key, redis_client, prefix):
    key = make_key(plan)[1]
    bodies = set()
    for kind, headers in MALFORMED.items():
        answer = handler(path_of_a_door, wire(headers, key))
        assert answer.status_code == 401, kind
        assert answer["WWW-Authenticate"] == 'Bearer realm="api"', kind
        bodies.add(json.dumps(json.loads(answer.content)))
    assert len(bodies) <= 2, "missing and wrong may differ in words, and nothing else"
    assert not list(redis_client.scan_iter(match=f"{prefix}:*"))


@by_every_handler
@pytest.mark.parametrize("path_of_a_door", PATHS)
@pytest.mark.django_db(transaction=True)
def test_c22_case_of_the_scheme_and_blanks_do_not_matter(handler, path_of_a_door, one_url_more, make_plan, make_key):
    key = make_key(make_plan(burst=100))[1]
    for kind, headers in WELL_FORMED.items():
        assert handler(path_of_a_door, wire(headers, key)).status_code == 200, kind


# --- C27 ---------------------------------------------------------------------------------------

OUR_PROXY = "192.0.2.10"
FORWARDED = (
    *("203.0.113.9, 10.0.0.1", "203.0.113.9:4711", "[2001:db8::1]:443"),
    *("x", "", "a" * 5000, "'; DROP TABLE", "\xff"),
)
#: By what is known of the peer, the address that may be recorded.
PEERS: dict[str | None, str] = {
    None: "",
    "": "",
    "b''": "",
    "/run/app.sock": "",
    "192.0.2.1": "192.0.2.1",
    "::ffff:192.0.2.1": "192.0.2.1",
    "2001:db8:1:2::3": "2001:db8:1:2::/64",
    OUR_PROXY: OUR_PROXY,
}


@by_every_handler
@pytest.mark.parametrize("path_of_a_door", PATHS)
@pytest.mark.parametrize("trusting", [False, True], ids=["no proxy", "one proxy"])
@pytest.mark.django_db(transaction=True)
def test_c27_no_address_breaks_or_widens_the_budget(
    handler, path_of_a_door, trusting, one_url_more, configure, make_plan, make_key, broker
):
    client, queue = broker()
    configure(TRUSTED_PROXIES=[OUR_PROXY, "unix"] if trusting else [], PROXY_COUNT=1 if trusting else 0)
    plan = make_plan(requests=1, period_seconds=3600, burst=3)
    peers_alone: list[tuple[str | None, str | None]] = [(peer, None) for peer in PEERS]
    forwarded_for = [(peer, text) for peer in (None, "192.0.2.1", OUR_PROXY) for text in FORWARDED]
    styles = [[style] * 4 for style in (*peers_alone, *forwarded_for)]
    styles += [
        list(zip((None, "", "192.0.2.1", OUR_PROXY), FORWARDED, strict=False)),
        [(OUR_PROXY, f"203.0.113.{number}") for number in range(4)],
        [("192.0.2.1", f"203.0.113.{number}") for number in range(4)],
    ]
    for style in styles:
        key = f"Bearer {make_key(plan)[1]}".encode()
        found = []
        for peer, forwarded in style:
            headers = [("Authorization", key)]
            if forwarded is not None:
                headers.append(("X-Forwarded-For", forwarded.encode("latin-1")))
            found.append(handler(path_of_a_door, headers, peer=peer).status_code)
        assert found == [200, 200, 200, 429], style

    assert usage.flush(10)
    batches = list(decisions.queued(client, queue=queue))
    recorded = [sample[9] for batch in batches for sample in batch.get("samples", ())]
    assert len(recorded) == len(styles)
    believed = {"203.0.113.9", "10.0.0.1", "2001:db8::/64", "203.0.113.3"} if trusting else set()
    assert set(recorded) <= {*PEERS.values(), *believed}
    if not trusting:
        assert set(recorded) == set(PEERS.values())
