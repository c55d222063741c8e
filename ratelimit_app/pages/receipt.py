"""Why was this request refused? The answer to a receipt, from the `instance` of a 429, in plain words."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ratelimit_app import conf
from ratelimit_app.models import APIKey, PlanLimit, Refusal
from ratelimit_app.pages.text import grouped, shown_as
from ratelimit_app.stats import keys as key_stats

#: Longer than any receipt, however it is written.
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a receipt."""

    #: What was asked for, cut to a length that can be shown.
    asked: str
    sentences: tuple[str, ...]
    #: The refusal, when it is known.
    refusal: Refusal | None = None
    #: The key that was used, when it is another one than the page is about.
    other_key: APIKey | None = None


def parse(text: str) -> uuid.UUID | None:
    """The receipt in a text such as `urn:uuid:…`, with or without hyphens; None when it is none."""
    digits = text.strip().strip('"').lower().removeprefix("urn:uuid:").strip("{}").replace("-", "")
    try:
        return uuid.UUID(hex=digits) if len(digits) == 32 else None
    except ValueError:
        return None


def waiting(refusal: Refusal) -> str:
    """How long the caller was told to wait."""
    if not refusal.retry_after_seconds:
        return _("no wait helps")
    return _("%(seconds)s s") % {"seconds": grouped(refusal.retry_after_seconds)}


def explain(asked: str, *, key: APIKey) -> Explanation:
    """What the receipt says, on the page of a key. Costs five queries at most."""
    shown, receipt = asked.strip()[:_LONGEST], parse(asked)
    if receipt is None:
        return Explanation(
            shown,
            (
                _("This is no receipt. It is the “instance” of a 429 or 503 of ours: ")
                + "urn:uuid:01234567-89ab-cdef-0123-456789abcdef.",
            ),
        )
    refusal = Refusal.objects.filter(receipt=receipt).first()
    if refusal is None:
        return Explanation(shown, _unknown())
    other = None
    if refusal.key_id != key.pk:
        other = APIKey.objects.filter(pk=refusal.key_id).first()
    return Explanation(shown, _known(refusal, key=key, other=other), refusal, other)


def _unknown() -> tuple[str, ...]:
    days = conf.current().retention_days
    dropped = key_stats.refusals_not_kept(since=timezone.now() - timedelta(days=1))
    said = [
        _("Nothing is known about this receipt. One of these is the reason:"),
        _("it is older than %(days)s days, and was deleted;") % {"days": days},
        _("it is newer than a few seconds, or the queue is behind, and it has not arrived;"),
        _("its refusal was counted, but not kept in full: a process keeps 200 at once, then 20 a second;"),
        _("it is not from here."),
    ]
    if dropped:
        said.append(
            ngettext(
                "In the last 24 hours %(count)s refusal was counted and not kept in full.",
                "In the last 24 hours %(count)s refusals were counted and not kept in full.",
                dropped,
            )
            % {"count": grouped(dropped)}
        )
    return tuple(said)


def _known(refusal: Refusal, *, key: APIKey, other: APIKey | None) -> tuple[str, ...]:
    said = (_whose(refusal, key=key, other=other), _why(refusal), _how_often(refusal))
    return tuple(sentence for sentence in said if sentence)


def _whose(refusal: Refusal, *, key: APIKey, other: APIKey | None) -> str:
    if refusal.key_id == key.pk:
        return _("This key sent the request.")
    if not refusal.key_id:
        return _("The request was sent without a key.")
    if other is None:
        return _("The key that sent the request was deleted.")
    if other.bucket_identity == key.bucket_identity:
        return _("The request was sent with %(key)s, which shares the bucket of this key.") % {
            "key": shown_as(other.public_id)
        }
    return _("The request was sent with another key: %(key)s.") % {"key": shown_as(other.public_id)}


def _why(refusal: Refusal) -> str:
    limit = PlanLimit.objects.filter(pk=refusal.limit_id).select_related("plan").first()
    capacity = limit.as_limit().capacity if limit else 0
    if refusal.retry_after_seconds:
        said = _("The limit %(limit)s had fewer tokens than the request costs (%(cost)s). Told to wait: %(wait)s s.")
    elif not refusal.limit_name or refusal.cost <= capacity:
        said = _("Redis could not decide, and the limit %(limit)s says “closed” for that: it was answered 503.")
    else:
        said = _("The request costs %(cost)s, more than the limit %(limit)s ever holds: no wait helps.")
    said %= {
        "limit": refusal.limit_name or "?",
        "cost": grouped(refusal.cost),
        "wait": grouped(refusal.retry_after_seconds),
    }
    if limit is None:
        return said + " " + _("The limit was deleted since.")
    now = _("Now it allows %(requests)s per %(period)s s and holds %(capacity)s, on the plan %(plan)s.") % {
        "requests": grouped(limit.requests),
        "period": grouped(limit.period_seconds),
        "capacity": grouped(capacity),
        "plan": limit.plan,
    }
    return f"{said} {now}"


def _how_often(refusal: Refusal) -> str:
    count = key_stats.refused_in_its_minute(refusal)
    if not count:  # counts per minute are not kept for as long
        return ""
    return ngettext(
        "In that minute it refused this caller %(count)s time on this route.",
        "In that minute it refused this caller %(count)s times on this route.",
        count,
    ) % {"count": grouped(count)}
