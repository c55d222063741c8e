"""Does `manage.py rotate_key` print a key that works, and clear words for what does not?"""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from ratelimit_app import key_cache
from ratelimit_app.models import APIKey

pytestmark = pytest.mark.django_db


def rotate(*arguments: str) -> tuple[str, str]:
    """What the command writes to stdout and stderr."""
    stdout, stderr = StringIO(), StringIO()
    call_command("rotate_key", *arguments, stdout=stdout, stderr=stderr)
    return stdout.getvalue(), stderr.getvalue()


def test_the_new_key_stands_alone_on_stdout_and_the_old_one_works_on(plan: Any, make_key: Any) -> None:
    old, text = make_key(plan)

    stdout, stderr = rotate(old.public_id, "--overlap-hours", "2")

    known = key_cache.find(stdout.strip())
    assert known is not None
    assert key_cache.find(text) is not None
    assert known.caller.bucket_identity == old.bucket_identity
    assert stdout.strip()[-40:] not in stderr
    old.refresh_from_db()
    assert timedelta(hours=1.9) < old.expires_at - timezone.now() <= timedelta(hours=2)


@pytest.mark.parametrize("hours", ["-1", "9999999"])
def test_an_overlap_that_makes_no_sense_is_refused(plan: Any, make_key: Any, hours: str) -> None:
    old, _ = make_key(plan)
    with pytest.raises(CommandError, match="--overlap-hours"):
        rotate(old.public_id, f"--overlap-hours={hours}")
    assert APIKey.objects.count() == 1


def test_a_key_that_is_not_there_is_not_named_in_the_error(plan: Any, make_key: Any) -> None:
    _old, text = make_key(plan)
    for given in (text, "x", "nul\x00", ""):
        with pytest.raises(CommandError) as caught:
            rotate(given)
        assert str(caught.value) == "There is no key with this public id."


def test_a_revoked_key_cannot_be_rotated(plan: Any, make_key: Any) -> None:
    old, _ = make_key(plan)
    APIKey.objects.filter(pk=old.pk).revoke()
    with pytest.raises(CommandError, match="revoked"):
        rotate(old.public_id)
