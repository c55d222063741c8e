"""Does `manage.py create_key` print a key that works, and clear words for what does not?"""

from __future__ import annotations

from datetime import UTC, date, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.utils import timezone

from ratelimit_app import keys
from ratelimit_app.models import APIKey

pytestmark = pytest.mark.django_db


def create(*arguments: str) -> tuple[str, str]:
    """What the command writes to stdout and stderr."""
    stdout, stderr = StringIO(), StringIO()
    call_command("create_key", *arguments, stdout=stdout, stderr=stderr)
    return stdout.getvalue(), stderr.getvalue()


def refuse(*arguments: str) -> str:
    """The one line of an error; nothing may have been created."""
    with pytest.raises(CommandError) as caught:
        create(*arguments)
    assert not APIKey.objects.exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_key_stands_alone_on_stdout(make_plan: Any) -> None:
    plan = make_plan("Free")

    stdout, stderr = create("--plan", "free", "--name", "Nightly ETL")

    text = stdout.removesuffix("\n")
    material = keys.parse(text)
    assert material is not None
    row = APIKey.objects.get()
    assert (row.public_id, bytes(row.digest)) == (material.public_id, material.digest)
    assert (row.plan, row.name, row.owner, row.expires_at) == (plan, "Nightly ETL", None, None)
    assert row.public_id in stderr
    assert "never expires" in stderr
    assert text not in stderr


def test_an_owner_is_found_by_username(make_plan: Any) -> None:
    make_plan("Free")
    alice = get_user_model().objects.create_user("alice")

    create("--plan", "free", "--name", "x", "--owner", "alice")

    assert APIKey.objects.get().owner == alice


@pytest.mark.parametrize(
    ("given", "expected"),
    [("30d", timedelta(days=30)), ("12h", timedelta(hours=12)), ("2w", timedelta(weeks=2))],
)
def test_a_key_expires_so_long_from_now(make_plan: Any, given: str, expected: timedelta) -> None:
    make_plan("Free")
    before = timezone.now()

    create("--plan", "free", "--name", "x", "--expires", given)

    expires_at = APIKey.objects.get().expires_at
    assert expires_at is not None
    assert before + expected <= expires_at <= timezone.now() + expected


def test_a_date_is_the_last_day_in_the_time_zone_of_the_project(make_plan: Any, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    make_plan("Free")
    day = date(timezone.now().year + 2, 1, 31)

    create("--plan", "free", "--name", "x", "--expires", day.isoformat())

    expires_at = APIKey.objects.get().expires_at
    assert expires_at is not None
    assert expires_at.astimezone(UTC).isoformat() == f"{day.isoformat()}T14:59:59+00:00"


def test_an_unknown_plan_is_answered_with_the_plans_there_are(make_plan: Any) -> None:
    assert "none yet" in refuse("--plan", "gold", "--name", "x")
    make_plan("Free")
    make_plan("Pro")
    make_plan("Visitors", audience="anonymous")

    assert refuse("--plan", "gold", "--name", "x") == "There is no plan 'gold'. Plans for keys: free, pro."


def test_a_plan_for_callers_without_keys_takes_no_key(make_plan: Any) -> None:
    make_plan("Visitors", audience="anonymous")

    assert "callers without a key" in refuse("--plan", "visitors", "--name", "x")


def test_an_unknown_owner_is_named(make_plan: Any) -> None:
    make_plan("Free")

    assert refuse("--plan", "free", "--name", "x", "--owner", "bob") == "There is no user 'bob'."
    assert refuse("--plan", "free", "--name", "x", "--owner", "") == "There is no user ''."


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "\udcff"])
def test_a_name_that_cannot_be_stored_is_refused(make_plan: Any, name: str) -> None:
    make_plan("Free")

    assert refuse("--plan", "free", "--name", name).startswith("--name")


@pytest.mark.parametrize(
    "given", ["", "soon", "30", "d", "-1d", "0d", "0h", "1.5d", "2020-01-01", "2027-02-30", "9999-12-31", "999999w"]
)
def test_an_expiry_that_is_no_moment_to_come_is_refused(make_plan: Any, given: str) -> None:
    make_plan("Free")

    assert refuse("--plan", "free", "--name", "x", f"--expires={given}").startswith("--expires")


def test_plan_and_name_are_required() -> None:
    assert "--plan" in refuse()
    assert "--name" in refuse("--plan", "free")
