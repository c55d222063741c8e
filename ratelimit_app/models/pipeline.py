"""What else does the pipeline write? Recent refusals in full, and what keeps counting exact."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


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


class Frontier(models.Model):
    """How far the roll-up into one resolution has come. Times are seconds since 1970."""

    #: "hour" or "day".
    resolution = models.CharField(max_length=10, primary_key=True)
    #: The finer rows before this are summed up in the rows of this resolution, or listed as stale.
    rolled_until = models.BigIntegerField(default=0)
    #: The finer rows before this are deleted: what still arrives is added to this resolution.
    purged_until = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ()


class Stale(models.Model):
    """An hour or a day that has to be summed up (again), because finer rows of it are new."""

    resolution = models.CharField(max_length=10)
    #: Seconds since 1970.
    start = models.BigIntegerField()
    #: Rises with every change, so that what changed while it was summed up stays listed.
    changes = models.BigIntegerField(default=1)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="ratelimit_app_stale_once", fields=["resolution", "start"])]


class Overview(models.Model):
    """No table: gives the overview page its entry in the admin and its own view permission."""

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = _("overview")
        verbose_name_plural = _("overview")
