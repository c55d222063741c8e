"""Where does somebody read a new key's text? On the page that answers its creation, this once."""

from __future__ import annotations

import shlex
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.debug import sensitive_variables

from ratelimit_app import conf
from ratelimit_app.models import APIKey


@sensitive_variables("text", "sent", "context")
def show(request: HttpRequest, key: APIKey, text: str, *, key_url: str, page: dict[str, Any]) -> HttpResponse:
    """The page: in the answer itself, since a redirect would have to carry the text somewhere."""
    first_path = next(iter(conf.current().paths), "/")
    header, _colon, scheme = conf.current().key_headers[0].partition(":")
    sent = f"{header}: {scheme.strip()} {text}" if scheme else f"{header}: {text}"
    context = {
        **page,
        "original": key,
        "key": text,
        "curl": f"curl -i -H {shlex.quote(sent)} {shlex.quote(request.build_absolute_uri(first_path))}",
        "key_url": key_url,
    }
    response = TemplateResponse(request, "admin/ratelimit_app/apikey/new_key.html", context)
    response["Cache-Control"] = "no-store"
    return response
