"""Is everybody told once, and what becomes of a message that cannot be sent? Over real HTTP, and Django's mail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core import mail
from django.db import connections
from django.utils import timezone

from project.celery import app
from ratelimit_app import alerts, tasks
from ratelimit_app.alerts import channels, messages, words
from ratelimit_app.models import AlertMessage, Episode, UsageMinute
from tests.receivers import Receiver, receiver

pytestmark = pytest.mark.django_db

SITE = "https://ops.example.com"


@pytest.fixture
def hook(configure: Callable[..., None]) -> Iterator[Receiver]:
    with receiver() as started:
        configure(ALERT_WEBHOOK_URL=started.url, SITE_URL=SITE)
        yield started


@pytest.fixture
def run_at_once() -> Iterator[None]:
    """Tasks that are sent run where they are sent."""
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


def blocked(minutes_ago: int, *, identity: str = "", share: int = 10) -> None:
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes_ago)
    UsageMinute.objects.create(
        minute=minute, identity=identity, plan_id=1, allowed=1_000 - 10 * share, refused=10 * share
    )


def send_all() -> list[bool]:
    return [alerts.send(pk) for pk in alerts.due()]


def retry_now() -> None:
    AlertMessage.objects.exclude(next_attempt_at=None).update(next_attempt_at=timezone.now())


def bodies(hook: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for *_, body in hook.received]


# --- Once, to everybody ------------------------------------------------------------------------


def test_an_episode_is_told_once_at_its_beginning_and_once_at_its_end(hook, configure, run_at_once):
    configure(ALERT_EMAILS=["on-call@example.com", "lead@example.com"])
    blocked(3)
    tasks.watch.apply(throw=True)
    tasks.watch.apply(kwargs={"later": "argument"}, throw=True)
    UsageMinute.objects.all().delete()
    Episode.objects.update(bad_until=timezone.now() - timedelta(minutes=10))
    Episode.objects.update(started_at=timezone.now() - timedelta(minutes=20))
    tasks.watch.apply(throw=True)
    tasks.watch.apply(throw=True)

    assert [body["event"] for body in bodies(hook)] == ["opened", "ended"]
    opened, ended = mail.outbox
    assert opened.to == ["on-call@example.com", "lead@example.com"]
    assert opened.subject == ("[ops.example.com] Alert: 10.0 % of all requests were blocked; the threshold is 5.0 %.")
    assert ended.subject.startswith("[ops.example.com] Over: 10.0 %")
    assert f"Look: {SITE}/admin/ratelimit_app/overview/?range=15m" in opened.body
    assert f"Acknowledge: {SITE}/admin/ratelimit_app/episode/{Episode.objects.get().pk}/change/" in opened.body
    assert " to " in ended.body
    assert AlertMessage.objects.exclude(sent_at=None).filter(next_attempt_at=None, attempts=1).count() == 4


def test_without_a_receiver_episodes_are_kept_and_nothing_is_sent():
    blocked(3)
    alerts.evaluate()
    assert Episode.objects.count() == 1
    assert alerts.due() == []


def test_what_is_posted_is_readable_for_people_and_for_programs(hook, make_plan, make_key):
    key, _ = make_key(make_plan(), name="<!channel> & @here\nETL")
    blocked(2, identity=key.bucket_identity)
    alerts.evaluate()
    Episode.objects.filter(kind="blocked").delete()
    assert send_all() == [True]
    ((method, path, headers, body),) = hook.received
    assert (method, path, headers["content-type"]) == ("POST", "/hook", "application/json")
    posted = json.loads(body)
    assert posted["text"].startswith("[ops.example.com] Alert: &lt;!channel&gt; &amp; @\u200bhere")
    episode = Episode.objects.get()
    path = words.look_path(episode, key=key, now=timezone.now())
    assert posted["look"] == SITE + path
    assert posted["text"].endswith(f"\n{SITE}{path}")
    assert posted["link"] == f"{SITE}/admin/ratelimit_app/episode/{episode.pk}/change/"
    assert posted["alert"] == {
        "id": episode.pk,
        "kind": "key_blocked",
        "key": {"public_id": key.public_id, "name": key.name},
        "started_at": episode.started_at.isoformat(),
        "ended_at": None,
        "worst": 10.0,
        "threshold": 5.0,
    }
    assert "webhook-signature" not in headers


def test_who_is_told_of_the_end_is_led_to_the_time_of_the_episode():
    now = timezone.now().replace(second=0, microsecond=0)
    started_at, ended_at = now - timedelta(hours=5), now - timedelta(hours=4)
    episode = Episode.objects.create(
        kind="slow", started_at=started_at, ended_at=ended_at, bad_until=ended_at, worst=0.005, threshold=0.002
    )
    query = parse_qs(urlsplit(words.look_path(episode, key=None, now=now)).query)
    assert query == {
        "range": ["6h"],
        "from": [f"{started_at - timedelta(minutes=5):%Y-%m-%dT%H:%MZ}"],
        "to": [f"{ended_at + timedelta(minutes=5):%Y-%m-%dT%H:%MZ}"],
    }


def test_a_key_with_a_line_break_in_its_name_makes_no_header_of_a_mail(configure, make_plan, make_key):
    configure(ALERT_EMAILS=["on-call@example.com"])
    key, _ = make_key(make_plan(), name="ETL\nBcc: everybody@example.com")
    blocked(2, identity=key.bucket_identity)
    alerts.evaluate()
    assert send_all() == [True, True]
    assert any("ETL Bcc: everybody@example.com" in message.subject for message in mail.outbox)
    assert all(message.bcc == [] for message in mail.outbox)


@pytest.mark.parametrize("secret", ["a secret of ours", "whsec_" + base64.b64encode(b"a secret of ours").decode()])
def test_what_is_posted_is_signed_where_there_is_a_secret(hook, configure, secret):
    configure(ALERT_WEBHOOK_SECRET=secret)
    blocked(2)
    alerts.evaluate()
    assert send_all() == [True]
    ((_method, _path, headers, body),) = hook.received
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(b"a secret of ours", content, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


def test_the_example_of_the_standard_is_signed_as_it_says():
    headers = channels.signed(
        b'{"test": 2432232314}',
        name="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=1614265330,
        secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


# --- What cannot be sent -----------------------------------------------------------------------


def test_a_message_that_could_not_be_sent_is_kept_with_its_reason_and_tried_again(hook):
    hook.statuses = [500, 503, 204]
    blocked(2)
    alerts.evaluate()
    assert send_all() == [False]
    message = AlertMessage.objects.get()
    assert message.error == "HTTPError: HTTP Error 500: Internal Server Error"
    assert message.next_attempt_at is not None
    first_pause = message.next_attempt_at - timezone.now()
    assert alerts.due() == []  # not before its next attempt
    retry_now()
    assert send_all() == [False]
    message.refresh_from_db()
    assert message.next_attempt_at is not None
    assert message.next_attempt_at - timezone.now() > 1.5 * first_pause
    retry_now()
    assert send_all() == [True]
    message.refresh_from_db()
    assert (message.attempts, message.error) == (3, "")
    assert message.sent_at is not None
    assert alerts.due() == []


def test_the_reason_does_not_hold_the_address_of_the_webhook(configure):
    configure(ALERT_WEBHOOK_URL="http://127.0.0.1:1/services/T0/B0/the-secret-of-the-webhook")
    blocked(2)
    alerts.evaluate()
    assert send_all() == [False]
    message = AlertMessage.objects.get()
    assert "refused" in message.error
    assert "the-secret" not in message.error


def test_a_message_is_given_up_after_a_day(hook):
    hook.statuses = [500]
    blocked(2)
    alerts.evaluate()
    AlertMessage.objects.update(created_at=timezone.now() - timedelta(days=1))
    assert send_all() == [False]
    message = AlertMessage.objects.get()
    assert (message.sent_at, message.next_attempt_at) == (None, None)
    assert message.error


def test_the_end_is_not_told_before_the_beginning(hook):
    hook.statuses = [500, 200]
    blocked(2)
    alerts.evaluate()
    assert send_all() == [False]
    episode = Episode.objects.get()
    messages.write(episode, AlertMessage.Event.ENDED, using="default")
    ended = AlertMessage.objects.get(event="ended")
    assert alerts.due() == []
    assert not alerts.send(ended.pk)
    retry_now()
    assert send_all() == [True]
    assert send_all() == [True]
    assert [body["event"] for body in bodies(hook)] == ["opened", "opened", "ended"]


def test_messages_that_wait_for_others_do_not_keep_back_a_new_one(hook, monkeypatch):
    monkeypatch.setattr(messages, "_AT_ONCE", 3)
    hook.statuses = [500]
    now = timezone.now()
    for number in range(5):
        episode = Episode.objects.create(
            kind="key_blocked", subject=f"{number}", started_at=now, bad_until=now, worst=9, threshold=5
        )
        messages.write(episode, AlertMessage.Event.OPENED, using="default")
        messages.write(episode, AlertMessage.Event.ENDED, using="default")
    assert send_all() == [False] * 3
    hook.statuses = [200]
    assert send_all() == [True, True]
    assert send_all() == [True, True]
    assert send_all() == []


def test_one_channel_that_fails_does_not_hold_up_the_other(hook, configure):
    configure(ALERT_EMAILS=["on-call@example.com"])
    hook.statuses = [500]
    blocked(2)
    alerts.evaluate()
    assert sorted(send_all()) == [False, True]
    assert len(mail.outbox) == 1


def test_a_redirect_is_not_followed(hook, configure):
    with receiver() as elsewhere:
        hook.statuses, hook.location = [307], elsewhere.url
        blocked(2)
        alerts.evaluate()
        assert send_all() == [False]
        hook.statuses = [302]
        retry_now()
        assert send_all() == [False]
        assert elsewhere.received == []
    assert "302" in AlertMessage.objects.get().error


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "//127.0.0.1/"])
def test_only_web_addresses_are_posted_to(configure, url):
    configure(ALERT_WEBHOOK_URL=url)
    blocked(2)
    alerts.evaluate()
    assert send_all() == [False]
    assert AlertMessage.objects.get().error == "ValueError: ALERT_WEBHOOK_URL is not a web address"


def test_a_receiver_that_does_not_answer_is_left(hook, monkeypatch):
    monkeypatch.setattr(channels, "TIMEOUT_SECONDS", 0.2)
    hook.answering.clear()
    blocked(2)
    alerts.evaluate()
    assert send_all() == [False]
    assert "timed out" in AlertMessage.objects.get().error


@pytest.mark.django_db(transaction=True)
def test_workers_that_send_the_same_message_at_once_send_it_once(hook):
    blocked(2)
    alerts.evaluate()
    (pk,) = alerts.due()
    hook.answering.clear()
    sent: list[bool] = []

    def work() -> None:
        try:
            sent.append(alerts.send(pk))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(sent) < 3:  # those that have lost the race
        threads[0].join(0.01)
        if not any(thread.is_alive() for thread in threads):
            break
    hook.answering.set()
    for thread in threads:
        thread.join()
    assert sorted(sent) == [False, False, False, True]
    assert len(hook.received) == 1
