"""What is or was wrong? Episodes with a start and an end, and the messages that were sent about them.

At most one episode of a kind and subject is open: the database itself sees to it.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Episode(models.Model):
    """Something that was wrong from one moment to another, or still is."""

    class Kind(models.TextChoices):
        BLOCKED = "blocked", _("many requests blocked")
        KEY_BLOCKED = "key_blocked", _("a key is blocked a lot")
        UNCHECKED = "unchecked", _("requests not decided by Redis")
        SLOW = "slow", _("decisions are slow")
        DROPPED = "dropped", _("records dropped")
        LATE = "late", _("statistics are late")
        NO_DATA = "no_data", _("no data")

    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices)
    #: The bucket identity of the key that it is about; "" when it is about all callers.
    subject = models.CharField(max_length=16, blank=True)
    started_at = models.DateTimeField(_("started"))
    #: NULL while it is open.
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    #: The last moment at which it was known to be wrong.
    bad_until = models.DateTimeField()
    #: In the unit of the kind: percent, requests, seconds, or records.
    worst = models.FloatField(_("worst value"))
    #: What was allowed when it began, in the same unit.
    threshold = models.FloatField(_("threshold"))
    note = models.TextField(
        _("note"),
        blank=True,
        max_length=2000,
        help_text=_("To save it acknowledges the alert: everybody sees who takes care of it, and what you say here."),
    )
    acknowledged_at = models.DateTimeField(_("acknowledged"), null=True, blank=True)
    #: The name of who did, as it was then.
    acknowledged_by = models.CharField(_("acknowledged by"), max_length=150, blank=True)

    class Meta:
        default_permissions = ("view",)
        permissions = [("acknowledge_episode", _("Can acknowledge alerts"))]
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        ordering = ["-started_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                name="ratelimit_app_one_open_episode",
                fields=["kind", "subject"],
                condition=models.Q(ended_at=None),
            ),
            models.CheckConstraint(
                name="ratelimit_app_episode_order",
                condition=models.Q(ended_at=None) | models.Q(ended_at__gte=models.F("started_at")),
            ),
        ]
        indexes = [models.Index(name="ratelimit_app_episode_start", fields=["-started_at"])]

    def __str__(self) -> str:
        return str(self.Kind(self.kind).label)


class AlertMessage(models.Model):
    """One message about an episode over one channel; written with the episode, sent afterwards."""

    class Event(models.TextChoices):
        OPENED = "opened", _("opened")
        ENDED = "ended", _("ended")

    class Channel(models.TextChoices):
        EMAIL = "email", _("e-mail")
        WEBHOOK = "webhook", _("webhook")

    episode = models.ForeignKey(Episode, on_delete=models.CASCADE, related_name="messages")
    event = models.CharField(_("event"), max_length=10, choices=Event.choices)
    channel = models.CharField(_("channel"), max_length=10, choices=Channel.choices)
    created_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    #: NULL when there is no next one: it was sent, or given up.
    next_attempt_at = models.DateTimeField(null=True, blank=True, default=timezone.now, db_index=True)
    sent_at = models.DateTimeField(_("sent"), null=True, blank=True)
    #: Why the last attempt failed; "" when it did not.
    error = models.TextField(_("error"), blank=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        constraints = [
            models.UniqueConstraint(name="ratelimit_app_one_message", fields=["episode", "event", "channel"])
        ]


class Evaluation(models.Model):
    """One row: when alerts were last evaluated. Its lock lets one worker evaluate at a time."""

    evaluated_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()
