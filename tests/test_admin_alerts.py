"""Can those who may see what is and was wrong, and say that they take care of it? And nobody else?"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app.models import AlertMessage, Episode
from ratelimit_app.pages.text import written
from tests.admin_pages import rows_of, staff

pytestmark = pytest.mark.django_db

URL = "/admin/ratelimit_app/episode/"
NOTHING_INLINE = {"messages-TOTAL_FORMS": "0", "messages-INITIAL_FORMS": "0"}


def episode(**fields: Any) -> Episode:
    now = timezone.now()
    values = {"kind": "blocked", "started_at": now, "bad_until": now, "worst": 12.34, "threshold": 5}
    return Episode.objects.create(**{**values, **fields})


def change(row: Episode) -> str:
    return f"{URL}{row.pk}/change/"


def test_nobody_in_particular_is_sent_to_the_login_and_others_are_refused() -> None:
    row = episode()
    for url in (URL, change(row)):
        answer = Client().get(url)
        assert answer.status_code == 302
        assert "/login/" in answer["Location"]
        assert staff("view_plan").get(url).status_code == 403
        assert staff("view_episode").get(url).status_code == 200


def test_episodes_are_listed_the_newest_first_and_filtered_by_state(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan())
    over = episode(ended_at=timezone.now(), started_at=timezone.now() - timedelta(hours=1))
    now_open = episode(kind="key_blocked", subject=key.bucket_identity)
    client = staff("view_episode")
    page = client.get(URL)
    assert rows_of(page) == [now_open, over]
    started = written(now_open.started_at)
    for words in (
        "a key is blocked a lot",
        f"rl_live_{key.public_id}…",
        "12.3 %",
        "all callers",
        started,
        "still open",
    ):
        assert words in page.content.decode()
    assert rows_of(client.get(URL, {"state": "open"})) == [now_open]
    assert rows_of(client.get(URL, {"state": "ended"})) == [over]
    assert rows_of(client.get(URL, {"kind__exact": "blocked"})) == [over]


def test_the_list_costs_the_same_with_many_episodes() -> None:
    client = staff("view_episode")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get(URL)
        return len(captured)

    episode(kind="key_blocked", subject="key")
    queries()  # a first page fills what Django remembers
    few = queries()
    for number in range(60):
        episode(kind="key_blocked", subject=f"key-{number}")
    assert queries() == few


def test_a_note_acknowledges_an_episode_and_is_in_the_log(make_plan: Any, make_key: Any) -> None:
    key, _ = make_key(make_plan(), name="<script>alert(1)</script>")
    row = episode(kind="key_blocked", subject=key.bucket_identity)
    AlertMessage.objects.create(
        episode=row, event="opened", channel="webhook", attempts=2, error="HTTPError: <b>no</b>"
    )
    client = staff("view_episode", "acknowledge_episode")
    page = client.get(change(row)).content.decode()
    assert "HTTPError: &lt;b&gt;no&lt;/b&gt;" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)" not in page
    assert re.search(r'<a href="/admin/ratelimit_app/[^"]*range=', page)

    answer = client.post(change(row), {"note": "I am on it.", "worst": "0", "ended_at": "x", **NOTHING_INLINE})

    assert answer.status_code == 302
    row.refresh_from_db()
    assert (row.note, row.worst, row.ended_at) == ("I am on it.", 12.34, None)
    assert row.acknowledged_by
    assert row.acknowledged_at is not None
    assert LogEntry.objects.get().object_id == str(row.pk)
    assert row.acknowledged_by in client.get(URL).content.decode()


def test_acknowledging_does_not_undo_what_happened_meanwhile(monkeypatch: Any) -> None:
    row = episode()
    client = staff("view_episode", "acknowledge_episode")
    read = Episode.objects.get(pk=row.pk)
    Episode.objects.filter(pk=row.pk).update(ended_at=read.started_at, worst=99)
    monkeypatch.setattr("ratelimit_app.admin.alerts.EpisodeAdmin.get_object", lambda *args: read)
    read.key_public_id = None  # type: ignore[attr-defined]
    assert client.post(change(row), {"note": "mine", **NOTHING_INLINE}).status_code == 302
    row.refresh_from_db()
    assert (row.note, row.worst, row.ended_at) == ("mine", 99, read.started_at)


def test_without_its_own_permission_nothing_is_acknowledged() -> None:
    row = episode()
    client = staff("view_episode")
    assert 'name="_save"' not in client.get(change(row)).content.decode()
    assert client.post(change(row), {"note": "mine", **NOTHING_INLINE}).status_code == 403
    row.refresh_from_db()
    assert row.acknowledged_at is None


def test_an_acknowledgement_without_a_token_is_refused() -> None:
    row = episode()
    signed_in = staff("view_episode", "acknowledge_episode")
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = signed_in.cookies
    assert strict.post(change(row), {"note": "mine", **NOTHING_INLINE}).status_code == 403


def test_episodes_are_neither_added_nor_deleted_by_hand(admin_client: Client) -> None:
    row = episode()
    assert admin_client.get(URL + "add/").status_code == 403
    assert admin_client.post(f"{URL}{row.pk}/delete/", {"post": "yes"}).status_code == 403
