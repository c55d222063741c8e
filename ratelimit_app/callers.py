"""Who is asking? The key that a request carries, its user, its address; and what was decided for it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from django.http import HttpRequest

from ratelimit_app import conf
from ratelimit_app.addresses import client_address
from ratelimit_app.key_cache import KnownKey
from ratelimit_app.limits import Caller, Decision


def credential(request: HttpRequest) -> str | None:
    """The key's text as sent, "" when what was sent cannot be one key, None when no key was sent."""
    found: str | None = None
    for header, scheme in _key_headers(conf.current().key_headers):
        sent = request.META.get(header)
        if sent is None:
            continue
        text = sent.strip()
        if scheme:
            word, _, text = text.partition(" ")
            if word.lower() != scheme:
                continue
            text = text.strip()
        elif not text:
            continue
        if found is not None:
            return ""  # two keys: nobody can say whose request this is
        found = text
    return found


def with_key(request: HttpRequest, known: KnownKey) -> Caller:
    """The caller whose key this is."""
    return replace(known.caller, address=client_address(request.META))


def without_key(request: HttpRequest, user: Any = None) -> Caller:
    """The caller as a session's user, if there is one, else as an address."""
    user_id = str(user.pk) if user is not None and user.is_authenticated else ""
    return Caller(user_id=user_id, address=client_address(request.META))


def decision_on(request: HttpRequest) -> Decision | None:
    """What an earlier door decided for this request."""
    return getattr(request, "ratelimit", None)


def leave_decision(request: HttpRequest, decision: Decision) -> None:
    """Leave a decision where later doors, views and the response find it: `request.ratelimit`."""
    request.ratelimit = decision  # type: ignore[attr-defined]


@lru_cache(maxsize=16)
def _key_headers(entries: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(name in META, scheme in lower case or "") of each entry of the setting."""
    return tuple(
        (f"HTTP_{header.strip().upper().replace('-', '_')}", scheme.strip().lower())
        for header, _, scheme in (entry.partition(":") for entry in entries)
    )
