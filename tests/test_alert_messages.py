"""Is everybody told once, and what becomes of a message that cannot be sent?"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connections
from django.utils import timezone

from project.celery import app
from ratelimit_app import alerts, tasks
from ratelimit_app.alerts import messages
from ratelimit_app.models import AlertMessage, Episode, PlanMinute, UsageMinute
from tests.receivers import SITE, Receiver, blocked, hooked, retry_now, send_all

pytestmark = pytest.mark.django_db

hook = pytest.fixture(hooked)


@pytest.fixture
def run_at_once() -> Iterator[None]:
    """Tasks that are sent run where they are sent."""
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


def bodies(hook: Receiver) -> list[dict[str, Any]]:
    return [json.loads(body) for *_, body in hook.received]


# --- Once, to everybody ------------------------------------------------------------------------


def test_an_episode_is_told_once_at_its_beginning_and_once_at_its_end(hook, configure, run_at_once):
    configure(ALERT_EMAILS=["on-call@example.com", "lead@example.com"])
    blocked(3)
    tasks.watch.apply(throw=True)
    tasks.watch.apply(kwargs={"later": "argument"}, throw=True)
    UsageMinute.objects.all().delete()
    PlanMinute.objects.all().delete()
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
