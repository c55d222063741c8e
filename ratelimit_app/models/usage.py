"""What happened? Counts per minute, which become counts per hour and per day.

Each fact is a table per resolution: per caller and plan, per limit and caller, and by how long decisions
took. Two hold the same counts for all callers together, so that totals never sum millions of rows.
Rows carry ids, not foreign keys: statistics outlive what they are about, and a busy key can be
deleted at once. No column of a unique key is ever NULL. Minutes, hours and days are UTC.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

#: Stands for all callers and routes that no longer fitted into a process's buffer.
OVERFLOW = "*"


class _Outcomes(models.Model):
    """What became of the requests."""

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
        abstract = True
        default_permissions = ()


class _Usage(_Outcomes):
    """What one caller got."""

    #: The key's bucket identity, "" for callers without a key, "*" for what overflowed a buffer.
    identity = models.CharField(max_length=16, blank=True)
    plan_id = models.BigIntegerField()

    class Meta(_Outcomes.Meta):
        abstract = True


class _PlanTotal(_Outcomes):
    """What all callers of one plan got; plan 0 stands for what overflowed a buffer."""

    plan_id = models.BigIntegerField()

    class Meta(_Outcomes.Meta):
        abstract = True


class _LimitOutcomes(models.Model):
    """What one limit did on one route."""

    limit_id = models.BigIntegerField()
    #: "" for the counts of requests that Redis did not decide.
    route = models.CharField(max_length=200, blank=True)
    refused = models.BigIntegerField(default=0)
    would_refuse = models.BigIntegerField(default=0)
    #: Not weighed, because Redis could not be asked; the request was let through.
    unchecked = models.BigIntegerField(default=0)
    #: The reason for a 503: Redis could not be asked, and the limit says "closed".
    failed_closed = models.BigIntegerField(default=0)
    #: Weighed in this process's memory, because Redis could not be asked.
    local = models.BigIntegerField(default=0)

    class Meta:
        abstract = True
        default_permissions = ()


class _Refusals(_LimitOutcomes):
    """What one limit did to one caller on one route."""

    identity = models.CharField(max_length=16, blank=True)

    class Meta(_LimitOutcomes.Meta):
        abstract = True


class _Decisions(models.Model):
    """How many decisions took at most so long: a histogram that adds up over processes."""

    #: Upper bound of the bucket in microseconds; the bounds are in `usage.LATENCY_BOUNDS`.
    at_most_microseconds = models.BigIntegerField()
    decisions = models.BigIntegerField(default=0)

    class Meta:
        abstract = True
        default_permissions = ()


def _once(name: str, *fields: str) -> list[models.BaseConstraint]:
    return [models.UniqueConstraint(name=f"ratelimit_app_{name}", fields=fields)]


def _by_caller(name: str, time: str) -> list[models.Index]:
    return [
        # The last columns are there so that rankings read the index alone; SQLite has no columns beside the key.
        models.Index(name=f"ratelimit_app_{name}_caller", fields=["identity", time, "allowed", "plan_id"]),
        # Whom it hurt is asked far more often than everything: few rows, all that the ranking needs.
        models.Index(
            name=f"ratelimit_app_{name}_hurt",
            fields=[time, "identity", "refused", "allowed", "plan_id"],
            condition=models.Q(refused__gt=0),
        ),
    ]


def _by_caller_of_limit(name: str, time: str) -> list[models.Index]:
    return [
        models.Index(name=f"ratelimit_app_{name}_by", fields=["identity", time]),
        # Limits on trial are few, and whom they would refuse is asked on every look at the overview.
        models.Index(
            name=f"ratelimit_app_tried_{time}",
            fields=[time, "limit_id", "identity", "would_refuse"],
            condition=models.Q(would_refuse__gt=0),
        ),
        # So are those of an outage, in which every key may have some.
        models.Index(
            name=f"ratelimit_app_undecided_{time}",
            fields=[time, "identity", "limit_id", "unchecked", "failed_closed", "local"],
            condition=models.Q(unchecked__gt=0) | models.Q(failed_closed__gt=0) | models.Q(local__gt=0),
        ),
    ]


class UsageMinute(_Usage):
    minute = models.DateTimeField(_("minute"))

    class Meta(_Usage.Meta):
        constraints = _once("usage_minute", "minute", "identity", "plan_id")
        indexes = _by_caller("usage", "minute")


class UsageHour(_Usage):
    hour = models.DateTimeField(_("hour"))

    class Meta(_Usage.Meta):
        constraints = _once("usage_hour", "hour", "identity", "plan_id")
        indexes = _by_caller("hour", "hour")


class UsageDay(_Usage):
    day = models.DateTimeField(_("day"))

    class Meta(_Usage.Meta):
        constraints = _once("usage_day", "day", "identity", "plan_id")
        indexes = _by_caller("day", "day")


class PlanMinute(_PlanTotal):
    minute = models.DateTimeField(_("minute"))

    class Meta(_PlanTotal.Meta):
        constraints = _once("plan_minute", "minute", "plan_id")


class PlanHour(_PlanTotal):
    hour = models.DateTimeField(_("hour"))

    class Meta(_PlanTotal.Meta):
        constraints = _once("plan_hour", "hour", "plan_id")


class PlanDay(_PlanTotal):
    day = models.DateTimeField(_("day"))

    class Meta(_PlanTotal.Meta):
        constraints = _once("plan_day", "day", "plan_id")


class RefusalMinute(_Refusals):
    minute = models.DateTimeField(_("minute"))

    class Meta(_Refusals.Meta):
        constraints = _once("refusal_minute", "minute", "identity", "limit_id", "route")
        indexes = _by_caller_of_limit("refusal", "minute")


class RefusalHour(_Refusals):
    hour = models.DateTimeField(_("hour"))

    class Meta(_Refusals.Meta):
        constraints = _once("refusal_hour", "hour", "identity", "limit_id", "route")
        indexes = _by_caller_of_limit("refusal_hour", "hour")


class RefusalDay(_Refusals):
    day = models.DateTimeField(_("day"))

    class Meta(_Refusals.Meta):
        constraints = _once("refusal_day", "day", "identity", "limit_id", "route")
        indexes = _by_caller_of_limit("refusal_day", "day")


class LimitMinute(_LimitOutcomes):
    minute = models.DateTimeField(_("minute"))

    class Meta(_LimitOutcomes.Meta):
        constraints = _once("limit_minute", "minute", "limit_id", "route")


class LimitHour(_LimitOutcomes):
    hour = models.DateTimeField(_("hour"))

    class Meta(_LimitOutcomes.Meta):
        constraints = _once("limit_hour", "hour", "limit_id", "route")


class LimitDay(_LimitOutcomes):
    day = models.DateTimeField(_("day"))

    class Meta(_LimitOutcomes.Meta):
        constraints = _once("limit_day", "day", "limit_id", "route")


class DecisionMinute(_Decisions):
    minute = models.DateTimeField(_("minute"))

    class Meta(_Decisions.Meta):
        constraints = _once("decision_minute", "minute", "at_most_microseconds")


class DecisionHour(_Decisions):
    hour = models.DateTimeField(_("hour"))

    class Meta(_Decisions.Meta):
        constraints = _once("decision_hour", "hour", "at_most_microseconds")


class DecisionDay(_Decisions):
    day = models.DateTimeField(_("day"))

    class Meta(_Decisions.Meta):
        constraints = _once("decision_day", "day", "at_most_microseconds")
