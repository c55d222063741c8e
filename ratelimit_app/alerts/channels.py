"""How is a message sent? As an e-mail by Django, or as JSON that is posted to one URL.

What is posted has a `text`, which Slack, Mattermost and their like show, and the same in fields for
programs. It goes to the URL in the settings and to no other: redirects are not followed. Signed as
standardwebhooks.com describes, where there is a secret; `webhook-id` is the same in each attempt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import urllib.request
from typing import Any

from django.core.mail import EmailMessage
from django.utils import timezone
from django.utils.translation import gettext as _

from ratelimit_app import conf
from ratelimit_app.alerts import words
from ratelimit_app.models import AlertMessage, APIKey

TIMEOUT_SECONDS = 5.0
#: What a secret begins with when the rest of it is bytes in base64.
SECRET_PREFIX = "whsec_"  # noqa: S105 - no secret


def send(message: AlertMessage, *, key: APIKey | None) -> None:
    """Send it once. Raises whatever keeps it from being taken."""
    if message.channel == AlertMessage.Channel.EMAIL:
        _email(message, key)
    else:
        _post(message, key)


def payload(message: AlertMessage, *, key: APIKey | None) -> dict[str, Any]:
    """What is posted."""
    episode = message.episode
    path = words.look_path(episode, key=key, now=timezone.now())
    text = f"[{words.site_name()}] {_headline(message, key)}"
    look = words.link(path)
    return {
        "text": _for_chat(text) + (f"\n{look}" if look else ""),
        "event": message.event,
        "alert": {
            "id": episode.pk,
            "kind": episode.kind,
            "key": {"public_id": key.public_id, "name": key.name} if key else None,
            "started_at": words.utc(episode.started_at).isoformat(),
            "ended_at": words.utc(episode.ended_at).isoformat() if episode.ended_at else None,
            "worst": episode.worst,
            "threshold": episode.threshold,
        },
        "look": look or None,
        "outage": words.link(words.outage_path(episode)) or None,
        "link": words.link(words.episode_path(episode)) or None,
    }


def _email(message: AlertMessage, key: APIKey | None) -> None:
    episode = message.episode
    lines = [words.sentence(episode, key=key), _("Since %(at)s.") % {"at": words.moment(episode.started_at)}]
    if episode.ended_at and message.event == AlertMessage.Event.ENDED:
        span = {"start": words.moment(episode.started_at), "end": words.moment(episode.ended_at)}
        lines[1] = _("From %(start)s to %(end)s.") % span
    for label, path in (
        (_("Look"), words.look_path(episode, key=key, now=timezone.now())),
        (_("Outage"), words.outage_path(episode)),
        (_("Acknowledge"), words.episode_path(episode)),
    ):
        if link := words.link(path):
            lines.append(f"{label}: {link}")
    # A header is one line, whatever a key is called.
    subject = " ".join(f"[{words.site_name()}] {_headline(message, key)}".split())
    EmailMessage(subject, "\n\n".join(lines) + "\n", to=list(conf.current().alert_emails)).send()


def _post(message: AlertMessage, key: APIKey | None) -> None:
    settings = conf.current()
    if not settings.alert_webhook_url.startswith(("https://", "http://")):
        raise ValueError("ALERT_WEBHOOK_URL is not a web address")
    body = json.dumps(payload(message, key=key)).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "ratelimit_app"}
    if settings.alert_webhook_secret:
        headers |= signed(body, name=f"alert-{message.pk}", at=int(time.time()), secret=settings.alert_webhook_secret)
    request = urllib.request.Request(settings.alert_webhook_url, data=body, headers=headers, method="POST")  # noqa: S310 - checked above
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SECONDS):
        pass  # any answer of 2xx will do; all others are raised


def signed(body: bytes, *, name: str, at: int, secret: str) -> dict[str, str]:
    """The headers that prove who posted a body, and when (seconds since 1970)."""
    rest = secret.removeprefix(SECRET_PREFIX)
    secret_bytes = base64.b64decode(rest) if rest != secret else secret.encode()
    digest = hmac.digest(secret_bytes, f"{name}.{at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Whoever answers does not choose where we post to."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _headline(message: AlertMessage, key: APIKey | None) -> str:
    said = _("Over: %(what)s") if message.event == AlertMessage.Event.ENDED else _("Alert: %(what)s")
    return said % {"what": words.sentence(message.episode, key=key)}


def _for_chat(text: str) -> str:
    """Text that no chat takes for a mention, a link or markup, whatever a key is called."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("@", "@\N{ZERO WIDTH SPACE}")
