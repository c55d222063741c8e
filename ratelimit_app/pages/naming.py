"""What is a caller called on a page? The name of its key, or what it is instead of a key."""

from __future__ import annotations

from typing import Protocol

from django.utils.translation import gettext as _

from ratelimit_app import stats
from ratelimit_app.models import APIKey


class Caller(Protocol):
    """Whoever the statistics know by an identity."""

    @property
    def identity(self) -> str: ...
    @property
    def key(self) -> APIKey | None: ...


def name_of(caller: Caller) -> str:
    if caller.key is not None:
        return caller.key.name
    if caller.identity == stats.NO_KEY:
        return _("no key")
    if caller.identity == stats.OTHERS:
        return _("other (overflow)")
    return _("a deleted key")
