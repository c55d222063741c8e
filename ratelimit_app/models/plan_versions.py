"""What did a plan say before? A row for each thing it said, with who changed it and why."""

from __future__ import annotations

import logging
from typing import Any

from django.db import Error as DatabaseError
from django.db import models, router, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ratelimit_app.models.announcements import Version, changed
from ratelimit_app.models.plan_limits import PlanLimit

logger = logging.getLogger("ratelimit_app")

#: So many versions of a plan are kept, the newest: a script may edit a plan every minute.
KEPT = 500
#: What a version holds of each limit, beside its id.
FIELDS = (
    *("name", "algorithm", "requests", "period_seconds", "burst", "per", "scope", "methods"),
    *("shards", "lease", "mode", "on_failure"),
)


class PlanVersion(models.Model):
    """The limits of one plan, as they were from one moment until the next version."""

    #: Not a foreign key: history outlives what it is about.
    plan_id = models.BigIntegerField()
    number = models.PositiveIntegerField(_("version"))
    at = models.DateTimeField(_("since"), default=timezone.now)
    #: The name of the user in the admin; "" for code, commands and raw SQL.
    who = models.CharField(_("by"), max_length=150, blank=True)
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    #: A dict per limit: its id and `FIELDS`, by id.
    limits = models.JSONField(_("limits"), default=list)

    class Meta:
        default_permissions = ()
        ordering = ["plan_id", "-number"]
        constraints = [models.UniqueConstraint(name="ratelimit_app_plan_version", fields=["plan_id", "number"])]

    def rows(self) -> list[PlanLimit]:
        """Its limits as rows, not stored."""
        return [PlanLimit(plan_id=self.plan_id, **limit) for limit in self.limits]


def record_versions(*, using: str, plan_id: int | None = None, who: str = "", reason: str = "") -> None:
    """Write a version of each plan whose limits are not those of its newest one.

    Who it was and why is said of the plan that is named, for others may have changed meanwhile.
    """
    with transaction.atomic(using=using):
        Version.objects.using(using).select_for_update().filter(name="plans").first()  # one after the other
        newest = _newest(using)
        said: dict[int, list[dict[str, Any]]] = {known: [] for known in newest}
        for limit in PlanLimit.objects.using(using).order_by("pk").values("plan_id", "id", *FIELDS):
            said.setdefault(limit.pop("plan_id"), []).append(limit)
        versions = []
        for changed_id, limits in said.items():
            known = newest.get(changed_id)
            if known is None or known.limits != limits:
                version = PlanVersion(plan_id=changed_id, number=known.number + 1 if known else 1, limits=limits)
                if changed_id == plan_id:
                    version.who, version.reason = who, reason
                versions.append(version)
        rows = PlanVersion.objects.using(using)
        rows.bulk_create(versions, ignore_conflicts=True)  # where rows cannot be locked: somebody else wrote the same
        for version in versions:
            if version.number > KEPT:
                rows.filter(plan_id=version.plan_id, number__lte=version.number - KEPT).delete()


def _newest(using: str) -> dict[int, PlanVersion]:
    rows = PlanVersion.objects.using(using)
    latest = rows.filter(plan_id=models.OuterRef("plan_id")).order_by("-number").values("number")[:1]
    return {row.plan_id: row for row in rows.filter(number=models.Subquery(latest))}


def _record_change(what: str, **kwargs: Any) -> None:
    """Whatever changed plans, and did not say who it was."""
    if what != "plans":
        return
    try:
        record_versions(using=router.db_for_write(PlanVersion))
    except DatabaseError as failure:  # the change itself is committed; the next one is recorded with it
        logger.warning("A change of plans is not in their history: %s", str(failure))


changed.connect(_record_change, dispatch_uid="ratelimit_app.plan_versions")
