"""What do people and programs get, signed by whom, and to nobody else? Over real HTTP, and by Django's mail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core import mail
from django.utils import timezone

from ratelimit_app import alerts
from ratelimit_app.alerts import channels, words
from ratelimit_app.models import AlertMessage, Episode
from tests.receivers import SITE, blocked, hooked, receiver, retry_now, send_all

pytestmark = pytest.mark.django_db

hook = pytest.fixture(hooked)


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


def test_the_reason_does_not_hold_the_address_of_the_webhook(configure):
    configure(ALERT_WEBHOOK_URL="http://127.0.0.1:1/services/T0/B0/the-secret-of-the-webhook")
    blocked(2)
    alerts.evaluate()
    assert send_all() == [False]
    message = AlertMessage.objects.get()
    assert "refused" in message.error
    assert "the-secret" not in message.error
