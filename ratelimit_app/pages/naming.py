"""What is a caller called on a page? The name of its key, or what it is instead of a key."""

from __future__ import annotations

from django.utils.translation import gettext as _

from ratelimit_app import stats


def name_of(caller: stats.CallerTraffic) -> str:
    if caller.key is not None:
        return caller.key.name
    if caller.identity == stats.NO_KEY:
        return _("no key")
    if caller.identity == stats.OTHERS:
        return _("other (overflow)")
    return _("a deleted key")
