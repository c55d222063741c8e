"""Is a key that was ended unknown everywhere, soon? Case C21 from the field, on processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from ratelimit_app.models import APIKey
from tests import brokers
from tests.gateway import Gateway, gateways
from tests.outages import REFUSING, redis_at

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)


# --- C21 ---------------------------------------------------------------------------------------

#: Promise P8, and much more than it: a busy machine must not fail a test.
NOTIFIED_SECONDS = 0.2 + 5
POLLED_SECONDS = 1 + 5


class Revocations:
    """The ways in which a key ends, each told to a process or done in this one."""

    def __init__(self, admin_id: int) -> None:
        self.admin_id = admin_id

    def by_admin_action(self, gateway: Gateway, rows: list[APIKey]) -> None:
        data = {"action": "revoke", "_selected_action": [row.pk for row in rows], "post": "yes"}
        url = reverse("admin:ratelimit_app_apikey_changelist")
        assert gateway.ask("request", path=url, data=data, user_id=self.admin_id)["status"] == 302

    def by_admin_delete(self, gateway: Gateway, rows: list[APIKey]) -> None:
        for row in rows:
            url = reverse("admin:ratelimit_app_apikey_delete", args=[row.pk])
            assert gateway.ask("request", path=url, data={"post": "yes"}, user_id=self.admin_id)["status"] == 302

    def by_admin_delete_action(self, gateway: Gateway, rows: list[APIKey]) -> None:
        data = {"action": "delete_selected", "_selected_action": [row.pk for row in rows], "post": "yes"}
        url = reverse("admin:ratelimit_app_apikey_changelist")
        assert gateway.ask("request", path=url, data=data, user_id=self.admin_id)["status"] == 302

    def by_update(self, gateway: Gateway, rows: list[APIKey]) -> None:
        APIKey.objects.filter(pk__in=[row.pk for row in rows]).update(revoked_at=timezone.now())

    def by_save(self, gateway: Gateway, rows: list[APIKey]) -> None:
        for row in rows:
            row.revoked_at = timezone.now()
            row.save()

    def by_delete(self, gateway: Gateway, rows: list[APIKey]) -> None:
        APIKey.objects.filter(pk__in=[row.pk for row in rows]).delete()


IN_THE_ADMIN = ("by_admin_action", "by_admin_delete", "by_admin_delete_action")
OUTSIDE = ("by_update", "by_save", "by_delete")


def seconds_until_refused(gateway: Gateway, key: str, *, at_most: float) -> float:
    """Send to this process until it answers 401. A refusal of the limiter is an answer too, before that."""
    started = time.monotonic()
    while gateway.send(key) != 401:
        assert time.monotonic() - started < at_most, "the process still knows the key"
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.fixture
def ended(make_plan, make_key, admin_user, process_environment, redis_client, prefix) -> Callable[..., None]:
    """`ended(how, fleet, at_most=1.5)`: warm two keys everywhere, end them so, and see that everybody knows."""
    plan = make_plan(requests=1, period_seconds=3600, burst=100)

    def end(how: str, fleet: list[Gateway], *, at_most: float) -> None:
        one, other = make_key(plan), make_key(plan)
        stays = make_key(plan)[1]
        # A caller who is refused by the limiter when the key ends hears 401 all the same.
        drained = make_key(make_plan(f"Drained {how}", burst=1))
        for gateway in fleet:
            assert [gateway.send(key) for _, key in (one, other)] == [200, 200]
            assert gateway.send(stays) == 200
            assert gateway.send(drained[1]) in (200, 429)
        getattr(Revocations(admin_user.pk), how)(fleet[0], [row for row, _ in (one, other, drained)])
        ended_keys = [key for _, key in (one, other, drained)]
        if how in IN_THE_ADMIN:
            assert [fleet[0].send(key) for key in ended_keys] == [401] * 3, "it made the change, and knows at once"
        for gateway in fleet:
            for key in ended_keys:  # one may be noticed before the others, read anew because it was just created
                seconds_until_refused(gateway, key, at_most=at_most)
        redis_client.delete(*redis_client.scan_iter(match=f"{prefix}:*"))
        for gateway in fleet:
            for path_of_a_door in ("/api/ping/", "/api/late/ping/", "/plain/ping/", "/async/ping/"):
                assert [gateway.send(key, path_of_a_door) for key in ended_keys] == [401] * 3
        names = set(redis_client.scan_iter(match=f"{prefix}:*"))
        assert names <= {f"{prefix}:gateways".encode()}, "an ended key has buckets"  # gateways count each other
        assert [gateway.send(stays) for gateway in fleet] == [200] * len(fleet), "another key is none the worse"

    return end


@pytest.mark.django_db(transaction=True)
def test_c21_an_ended_key_is_unknown_everywhere_soon(ended, process_environment):
    """Processes that poll once in five minutes hear of it by the message."""
    with gateways(2, process_environment, POLL_SECONDS=300.0, CACHE_TTL_SECONDS=300.0) as fleet:
        for how in (*IN_THE_ADMIN, *OUTSIDE):
            ended(how, fleet, at_most=NOTIFIED_SECONDS)


@pytest.mark.django_db(transaction=True)
def test_c21_an_ended_key_is_unknown_everywhere_with_every_message_lost(ended, process_environment):
    """Whoever makes the change cannot reach Redis."""
    with gateways(2, process_environment, POLL_SECONDS=1.0, CACHE_TTL_SECONDS=300.0) as fleet:
        for how in OUTSIDE:
            with redis_at(REFUSING):
                ended_at = time.monotonic()
                ended(how, fleet, at_most=POLLED_SECONDS)
                assert time.monotonic() > ended_at


@pytest.mark.django_db(transaction=True)
def test_c21_raw_sql_is_seen_when_the_caches_expire(make_plan, make_key, process_environment):
    row, key = make_key(make_plan(requests=1, period_seconds=3600, burst=10_000))
    with gateways(1, process_environment, POLL_SECONDS=1.0, CACHE_TTL_SECONDS=1.0) as fleet:
        assert fleet[0].send(key) == 200
        with connection.cursor() as cursor:
            cursor.execute("UPDATE ratelimit_app_apikey SET revoked_at = %s WHERE id = %s", [timezone.now(), row.pk])
        seconds_until_refused(fleet[0], key, at_most=POLLED_SECONDS)
