"""Which key does somebody search for, and is there a secret in what they pasted?

People paste whole keys into search boxes. The page must find the key and must not show the secret
again: not in the box, not in the links to the next page, not in the address that stays.
"""

from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponseRedirect

from ratelimit_app import conf, keys

_ID = rf"[0-9A-Za-z]{{{keys.PUBLIC_ID_LENGTH}}}"
#: A key from its public id into its secret, however little of the secret was copied.
_WHOLE_KEY = re.compile(rf"[0-9A-Za-z_-]*_({_ID})_[0-9A-Za-z]+")
#: A run longer than any digest that serves as a username: a secret without the rest of its key.
_SECRET = re.compile(r"[0-9A-Za-z]{41,}")
_SHOWN_FORM = re.compile(rf"[0-9A-Za-z_-]*_({_ID})_?(?:…|\.\.\.)?")


def without_secrets(text: str) -> str:
    """The text with each key in it cut down to its public id."""
    return _SECRET.sub("", _WHOLE_KEY.sub(r"\1", text)).strip()


def to_safe_search(request: HttpRequest, *, parameter: str = "q") -> HttpResponseRedirect | None:
    """Where to go instead when the search carries a secret; None when it does not."""
    asked = request.GET.get(parameter, "")
    safe = without_secrets(asked)
    if safe == asked.strip():
        return None
    query = request.GET.copy()
    query[parameter] = safe
    return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")


def public_id_prefix(text: str) -> str:
    """The public id, or the beginning of one, that a text names for certain; "" when it names none."""
    begins = conf.current().key_prefix + "_"
    if text.startswith(begins):
        return text.removeprefix(begins).rstrip("_….")
    shown = _SHOWN_FORM.fullmatch(text)
    return shown[1] if shown else ""
