"""Why was this request refused? Does the page of a key answer any receipt, plainly and honestly?"""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from ratelimit_app import recording, usage
from ratelimit_app.models import APIKey, DroppedMinute, PlanLimit, Refusal, RefusalMinute
from ratelimit_app.pages import receipt
from tests import brokers, decisions
from tests.doors import DOORS
from tests.key_pages import look, refused
from tests.overview_page import Page, minute

pytestmark = pytest.mark.django_db
broker = pytest.fixture(brokers.chosen)


def explained(client: Client, key: APIKey, asked: object) -> str:
    page = look(client, key, f"?receipt={asked}")
    return page.text[page.text.index("Look up") if "Look up" in page.text else 0 :]


def test_the_instance_of_a_429_leads_from_the_answer_to_the_reason(
    admin_client: Client, make_plan: Any, make_key: Any, broker: Any
) -> None:
    """From the wire through the queue into the rows, and back onto the page."""
    client, queue = broker()
    key, text = make_key(make_plan("Free", burst=1))
    DOORS[0].send(text)
    answer = DOORS[0].send(text)
    assert answer.status_code == 429
    instance = json.loads(answer.content)["instance"]
    assert "Nothing is known" in explained(admin_client, key, instance)
    assert usage.flush(10)
    for batch in decisions.queued(client, queue=queue):
        recording.record(batch)

    said = explained(admin_client, key, instance)

    assert "This key sent the request. The limit free had fewer tokens than the request costs (1)." in said
    assert "In that minute it refused this caller 1 time on this route." in said
    assert "GET" in said


@pytest.mark.parametrize("written", ["urn:uuid:{}", "{}", "URN:UUID:{}", '"urn:uuid:{}"', "  {} ", "{{{}}}"])
def test_a_receipt_is_read_however_it_is_written(
    admin_client: Client, make_plan: Any, make_key: Any, written: str
) -> None:
    key, _ = make_key(make_plan("Free"))
    refusal = refused(key)
    assert "This key sent the request." in explained(admin_client, key, written.format(refusal.receipt))
    assert "This key sent the request." in explained(admin_client, key, written.format(refusal.receipt.hex.upper()))


@pytest.mark.parametrize(
    "junk", ["abc", "urn:uuid:", "0" * 31, "0" * 33, "%00", "%F0%9F%92%A9" * 8, "g" * 32, "x" * 40]
)
def test_what_is_no_receipt_is_told_apart(admin_client: Client, make_plan: Any, make_key: Any, junk: str) -> None:
    key, _ = make_key(make_plan("Free"))
    assert "This is no receipt." in explained(admin_client, key, junk)


def test_an_unknown_receipt_names_every_reason_there_can_be(
    admin_client: Client, make_plan: Any, make_key: Any, configure: Any
) -> None:
    configure(RETENTION_DAYS=12)
    key, _ = make_key(make_plan("Free"))
    said = explained(admin_client, key, uuid.uuid4())
    for reason in (
        "older than 12 days",
        "has not arrived",
        "not kept in full: a process keeps 200 at once",
        "not from",
    ):
        assert reason in said
    assert "In the last 24 hours" not in said


def test_refusals_that_were_not_kept_in_full_are_counted_honestly(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    key, _ = make_key(make_plan("Free"))
    DroppedMinute.objects.create(minute=minute(5), kind="samples", dropped=1234)
    DroppedMinute.objects.create(minute=minute(5), kind="usage", dropped=99)
    DroppedMinute.objects.create(minute=minute(3 * 1440), kind="samples", dropped=5000)
    assert "In the last 24 hours 1,234 refusals were counted and not kept in full." in explained(
        admin_client, key, uuid.uuid4()
    )


def test_the_receipt_of_another_key_says_whose_it_is(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan("Free"))
    other, _ = make_key(key.plan)
    page = look(admin_client, key, f"?receipt={refused(other).receipt}")
    assert f"sent with another key: rl_live_{other.public_id}…" in page.text
    assert f"/admin/ratelimit_app/apikey/{other.pk}/page/" in {a["href"] for a in page.all("a")}
    new, _ = APIKey.objects.rotate(key)
    assert f"rl_live_{key.public_id}…, which shares the bucket" in explained(admin_client, new, refused(key).receipt)
    gone = refused(other)
    other.delete()
    assert "The key that sent the request was deleted." in explained(admin_client, key, gone.receipt)
    nobody = refused(key, key_id=0, identity="")
    assert "sent without a key" in explained(admin_client, key, nobody.receipt)


def test_each_kind_of_refusal_has_its_own_reason(make_plan: Any, make_key: Any) -> None:
    plan = make_plan("Free", burst=3)
    key, _ = make_key(plan)
    limit = plan.limits.get()

    def why(**fields: Any) -> str:
        refusal = refused(key, limit_id=limit.pk, **fields)
        return receipt.explain(str(refusal.receipt), key=key).sentences[1]

    assert "had fewer tokens" in why(cost=2, retry_after_seconds=7)
    assert "more than the limit free ever holds" in why(cost=4, retry_after_seconds=0)
    assert "Redis could not decide" in why(cost=1, retry_after_seconds=0)
    assert "Now it allows 1 per 3,600 s and holds 3" in why(retry_after_seconds=7)
    PlanLimit.objects.all().delete()
    assert "The limit was deleted since." in why(retry_after_seconds=7)


def test_a_key_pasted_as_a_receipt_is_not_shown_again(admin_client: Client, make_plan: Any, make_key: Any) -> None:
    key, text = make_key(make_plan("Free"))
    answer = admin_client.get(f"/admin/ratelimit_app/apikey/{key.pk}/page/", {"receipt": text}, follow=True)
    assert text[25:45] not in answer.content.decode()
    assert all(text[25:45] not in url for url, _ in answer.redirect_chain)


def test_the_refusals_of_a_pair_are_listed_newest_first_and_bounded(
    admin_client: Client, make_plan: Any, make_key: Any
) -> None:
    old, _ = make_key(make_plan("Free"))
    new, _ = APIKey.objects.rotate(old)
    bystander = refused(make_key(old.plan)[0])
    listed = [
        refused(old if number % 2 else new, at=timezone.now() - timedelta(minutes=number)) for number in range(60)
    ]
    page = Page(admin_client.get(f"/admin/ratelimit_app/apikey/{new.pk}/page/").content.decode())
    found = [str(refusal.receipt) for refusal in listed if str(refusal.receipt) in page.text]
    assert found == [str(refusal.receipt) for refusal in listed[:50]]
    assert page.text.index(found[0]) < page.text.index(found[1])
    assert str(bystander.receipt) not in page.text
    assert Refusal.objects.count() == 61
    assert not RefusalMinute.objects.exists()
