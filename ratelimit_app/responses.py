"""What does a caller read? Decisions as headers and problem bodies; the only place that knows wire names.

The IETF fields follow the list form of draft-ietf-httpapi-ratelimit-headers 08 to 11, the bodies
RFC 9457. Limits in shadow never appear, and an unchecked answer carries no numbers: nothing true
could be said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ratelimit_app import conf
from ratelimit_app.limits import Decision, Limit, Weighed

#: The text of every 401.
UNAUTHORIZED = gettext_lazy("A valid API key is required.")
#: The text of a 503 when Redis could not decide.
UNCHECKABLE = gettext_lazy("This request cannot be checked against its limit right now.")
#: When to come back after a 503; Redis is looked at again long before.
UNAVAILABLE_RETRY_AFTER_SECONDS = 5
#: For `Access-Control-Expose-Headers`, so that scripts in browsers can read them.
EXPOSED_HEADERS = (
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)

_PERIODS = {
    1: gettext_lazy("second"),
    60: gettext_lazy("minute"),
    3_600: gettext_lazy("hour"),
    86_400: gettext_lazy("day"),
}
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"


def status_of(decision: Decision) -> int:
    """The status of a refusal: 429; 503 when it is the platform that is full, or a limit could not be weighed."""
    limit = decision.refused_by
    return 503 if decision.source == "unchecked" or (limit and limit.per == "everyone") else 429


def rate_headers(decision: Decision) -> Iterator[tuple[str, str]]:
    """The rate headers of any answer, refused or not."""
    kinds = conf.current().headers
    tightest = decision.tightest
    if tightest is None or decision.source in ("unchecked", "local"):
        return
    if "legacy" in kinds:
        yield "X-RateLimit-Limit", str(tightest.limit.capacity)
        yield "X-RateLimit-Remaining", str(tightest.remaining)
        yield "X-RateLimit-Reset", str(decision.reset_at)
    if "ietf" in kinds:
        yield "RateLimit-Policy", ", ".join(_policy(weighed) for weighed in decision.shown)
        yield "RateLimit", ", ".join(_quota(weighed) for weighed in decision.shown)


def write(response: HttpResponseBase, decision: Decision) -> None:
    """Put a decision on a response: rate headers, and on a refusal of ours `Retry-After` and the problem body."""
    for name, value in rate_headers(decision):
        response[name] = value
    if decision.allowed or response.status_code not in (429, 503):
        return
    status = status_of(decision)
    wait = UNAVAILABLE_RETRY_AFTER_SECONDS if decision.source == "unchecked" else decision.retry_after_seconds
    waits = [seconds for seconds in (wait, _seconds(response.get("Retry-After", ""))) if seconds is not None]
    if waits:
        response["Retry-After"] = str(max(waits))
    response["Cache-Control"] = "no-store"
    response.status_code = status
    if isinstance(response, HttpResponse):
        response["Content-Type"] = "application/problem+json"
        response.content = json.dumps(_problem(decision, status, max(waits, default=None)))
        # A middleware below may have described the body that was there before.
        del response["Content-Encoding"], response["ETag"]
        response["Content-Length"] = str(len(response.content))


def refusal(decision: Decision) -> HttpResponse:
    """The whole answer to a refused request."""
    response = HttpResponse(status=status_of(decision))
    write(response, decision)
    return response


def unauthorized() -> HttpResponse:
    """401: one same text, whether the key is unknown, expired or revoked."""
    response = _json(
        401, {"type": "about:blank", "title": _("Unauthorized"), "status": 401, "detail": str(UNAUTHORIZED)}
    )
    response["WWW-Authenticate"] = challenge()
    return response


def unavailable() -> HttpResponse:
    """503: the key could not be looked up."""
    kind = _PROBLEM_TYPES + "temporary-reduced-capacity"
    response = _json(503, {"type": kind, "title": _("Temporarily unavailable"), "status": 503})
    response["Retry-After"] = str(UNAVAILABLE_RETRY_AFTER_SECONDS)
    return response


def challenge() -> str:
    """The `WWW-Authenticate` of a 401."""
    realm = conf.current().realm.replace("\\", "\\\\").replace('"', '\\"')
    return f'Bearer realm="{realm}"'


def _problem(decision: Decision, status: int, wait: int | None) -> dict[str, object]:
    limit = decision.refused_by
    if status == 503:
        kind, title = "temporary-reduced-capacity", _("Temporarily unavailable")
        detail = [str(UNCHECKABLE) if decision.source == "unchecked" else _("The API as a whole is at its limit.")]
    else:
        kind, title = "quota-exceeded", _("Quota exceeded")
        detail = [_allowance(limit)] if limit else []
    if wait is not None:
        again = ngettext("Try again in %(wait)s second.", "Try again in %(wait)s seconds.", wait)
        detail.append(again % {"wait": wait})
    elif limit is not None:
        never = _("A request may cost at most %(most)s, this one costs %(cost)s.")
        detail.append(never % {"most": limit.capacity, "cost": decision.cost})
    return {
        "type": _PROBLEM_TYPES + kind,
        "title": title,
        "status": status,
        "detail": " ".join(detail),
        "instance": f"urn:uuid:{decision.receipt}",
        "violated-policies": [limit.name] if limit else [],
    }


def _allowance(limit: Limit) -> str:
    period = _PERIODS.get(limit.period_seconds) or _("%(count)s seconds") % {"count": limit.period_seconds}
    said = ngettext(
        "The limit %(name)s allows %(requests)s request per %(period)s.",
        "The limit %(name)s allows %(requests)s requests per %(period)s.",
        limit.requests,
    )
    return said % {"name": limit.name, "requests": limit.requests, "period": period}


def _policy(weighed: Weighed) -> str:
    return f'"{weighed.limit.name}";q={weighed.limit.capacity};w={weighed.limit.fill_seconds}'


def _quota(weighed: Weighed) -> str:
    next_token = f";t={weighed.next_token_seconds}" if weighed.level.next_ticks else ""
    return f'"{weighed.limit.name}";r={weighed.remaining}{next_token}'


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _json(status: int, body: dict[str, object]) -> HttpResponse:
    response = HttpResponse(json.dumps(body), status=status, content_type="application/problem+json")
    response["Cache-Control"] = "no-store"
    return response
