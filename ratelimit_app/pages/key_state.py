"""In what state is a key, in a word and a few sentences? The same for the list and for its page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ratelimit_app.models import APIKey
from ratelimit_app.models.key_life import EXPIRY_WARNING
from ratelimit_app.pages.text import shown_as, written


def state(key: APIKey) -> str:
    """active, expired or revoked."""
    if key.revoked_at is not None:
        return _("revoked")
    return _("active") if key.usable else _("expired")


def notes(key: APIKey, mates: Sequence[Any]) -> list[str]:
    """What somebody who looks at a key should know. `mates` share its bucket and carry `used_at`, by pk."""
    newer = [mate for mate in mates if mate.pk > key.pk and mate.usable]
    said = []
    if newer:
        replaced = _("Replaced by %(key)s.") % {"key": shown_as(newer[-1].public_id)}
        said.append(f"{replaced} {_works_until(key)}".strip())
    said += [_replaces(mate) for mate in mates if mate.pk < key.pk and mate.usable]
    if key.usable and key.boost > 1 and key.boost_ends_at is not None:
        said.append(
            _("Boosted %(factor)s times until %(until)s.") % {"factor": key.boost, "until": written(key.boost_ends_at)}
        )
    if key.usable and not newer and key.expires_at and key.expires_at <= timezone.now() + EXPIRY_WARNING:
        said.append(_("Expires in %(time)s.") % {"time": _time_left(key.expires_at)})
    return said


def _time_left(until: datetime) -> str:
    days = (until - timezone.now()).days
    if days < 1:
        return timeuntil(until, depth=1)
    return ngettext("%(count)s day", "%(count)s days", days) % {"count": days}


def _works_until(key: APIKey) -> str:
    if not key.usable or key.expires_at is None:
        return ""
    return _("Works until %(until)s.") % {"until": written(key.expires_at)}


def _replaces(mate: Any) -> str:
    used = _("last used %(time)s ago") % {"time": timesince(mate.used_at, depth=1)} if mate.used_at else _("never used")
    said = _("Replaces %(key)s, %(used)s.") % {"key": shown_as(mate.public_id), "used": used}
    return f"{said} {_works_until(mate)}".strip()
