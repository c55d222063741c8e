"""What happened? Rows per minute, recent refusals in full, and what keeps counting exact.

Rows carry ids, not foreign keys: statistics outlive what they are about, and a busy key can be
deleted at once. No column of a unique key is ever NULL. Minutes are UTC.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

#: Stands for all callers and routes that no longer fitted into a process's buffer.
OVERFLOW = "*"


class UsageMinute(models.Model):
    """What one caller got in one minute."""

    minute = models.DateTimeField(_("minute"))
    #: The key's bucket identity, "" for callers without a key, "*" for what overflowed a buffer.
    identity = models.CharField(max_length=16, blank=True)
    plan_id = models.BigIntegerField()
    allowed = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    #: Allowed, but a shadow limit would have refused.
    would_refuse = models.BigIntegerField(default=0)
    #: Let through because nothing could decide.
    unchecked = models.BigIntegerField(default=0)
    #: Refused with 503 because nothing could decide and a limit says "closed".
    failed_closed = models.BigIntegerField(default=0)
    #: Of those allowed and refused: decided from this process's memory, because Redis could not.
    local = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="ratelimit_app_usage_minute", fields=["minute", "identity", "plan_id"])
        ]
        indexes = [
            models.Index(name="ratelimit_app_usage_caller", fields=["identity", "minute"]),
            # Alerts ask every minute for what is hardly ever there.
            models.Index(
                name="ratelimit_app_usage_undecided",
                fields=["minute"],
                condition=models.Q(unchecked__gt=0) | models.Q(failed_closed__gt=0) | models.Q(local__gt=0),
            ),
        ]


class RefusalMinute(models.Model):
    """How often one limit refused (or in shadow would have refused) one caller on one route in one minute."""

    minute = models.DateTimeField(_("minute"))
    identity = models.CharField(max_length=16, blank=True)
    limit_id = models.BigIntegerField()
    route = models.CharField(max_length=200, blank=True)
    refused = models.BigIntegerField(default=0)
    would_refuse = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                name="ratelimit_app_refusal_minute", fields=["minute", "identity", "limit_id", "route"]
            )
        ]


class DecisionMinute(models.Model):
    """How many decisions of one minute took at most so long: a histogram that adds up over processes."""

    minute = models.DateTimeField(_("minute"))
    #: Upper bound of the bucket in microseconds; the bounds are in `usage.LATENCY_BOUNDS`.
    at_most_microseconds = models.BigIntegerField()
    decisions = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="ratelimit_app_decision_minute", fields=["minute", "at_most_microseconds"])
        ]


class DroppedMinute(models.Model):
    """How many records a full buffer dropped in one minute: what the other tables are short of."""

    minute = models.DateTimeField(_("minute"))
    #: Of which table: "usage", "refusals", "decisions", "key_uses"; or "samples", counted but not kept in full.
    kind = models.CharField(max_length=20)
    dropped = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="ratelimit_app_dropped_minute", fields=["minute", "kind"])]


class Refusal(models.Model):
    """One refusal in full; a bounded sample of the recent ones, found by the receipt in the 429."""

    receipt = models.UUIDField(_("receipt"), primary_key=True)
    at = models.DateTimeField(_("at"), db_index=True)
    identity = models.CharField(max_length=16, blank=True)
    key_id = models.BigIntegerField()
    plan_id = models.BigIntegerField()
    limit_id = models.BigIntegerField()
    limit_name = models.CharField(_("limit"), max_length=50)
    route = models.CharField(_("route"), max_length=200, blank=True)
    method = models.CharField(_("method"), max_length=10, blank=True)
    address = models.CharField(_("address"), max_length=64, blank=True)
    cost = models.BigIntegerField()
    #: 0 when no wait helps: the request costs more than a burst, or Redis could not decide.
    retry_after_seconds = models.BigIntegerField()

    class Meta:
        ordering = ["-at"]
        default_permissions = ("view",)
        verbose_name = _("refusal")
        verbose_name_plural = _("refusals")
        indexes = [models.Index(name="ratelimit_app_refusal_caller", fields=["identity", "at"])]


class KeyUse(models.Model):
    """When a key was last used, to the minute. A table of its own: writing it locks no key."""

    key_id = models.BigIntegerField(primary_key=True)
    last_used_at = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()


class Batch(models.Model):
    """One delivered batch: inserted with its rows, so that a second delivery changes nothing."""

    id = models.UUIDField(primary_key=True)
    received_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        default_permissions = ()


class SetAside(models.Model):
    """A row of a batch that the database refused; kept for people to look at, never retried."""

    batch_id = models.UUIDField()
    received_at = models.DateTimeField(default=timezone.now, db_index=True)
    #: The name in the batch that the row was sent under.
    table = models.CharField(max_length=50, blank=True)
    #: As JSON in plain ASCII: a column for JSON would refuse what made the row bad.
    row = models.TextField()
    error = models.TextField()

    class Meta:
        default_permissions = ()


class Overview(models.Model):
    """No table: gives the overview page its entry in the admin and its own view permission."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
