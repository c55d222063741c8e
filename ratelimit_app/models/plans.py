"""What may a caller do? Plans: named sets of limits, owned by the people who run the API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from ratelimit_app.models.announcements import (
    Announced,
    AnnouncingQuerySet,
    announce_plans,
    announce_saves_and_deletes,
)


class Plan(Announced):
    """A named set of limits."""

    class Audience(models.TextChoices):
        KEYS = "keys", _("callers with a key on this plan")
        ANONYMOUS = "anonymous", _("callers without a key")
        EVERYONE = "everyone", _("every request, beside the caller's own plan")

    name = models.CharField(_("name"), max_length=80, unique=True)
    slug = models.SlugField(_("slug"), max_length=50, unique=True, help_text=_("Names the plan in commands and code."))
    description = models.TextField(_("description"), blank=True)
    audience = models.CharField(_("audience"), max_length=10, choices=Audience, default=Audience.KEYS)

    objects = AnnouncingQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name = _("plan")
        verbose_name_plural = _("plans")
        constraints = [
            models.CheckConstraint(
                name="ratelimit_app_plan_audience", condition=models.Q(audience__in=["keys", "anonymous", "everyone"])
            ),
            models.UniqueConstraint(
                name="ratelimit_app_plan_one_for_anonymous",
                fields=["audience"],
                condition=models.Q(audience="anonymous"),
                violation_error_message=_("Another plan already is the one for callers without a key."),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def announce(cls, rows: Iterable[Self], *, using: str) -> None:
        announce_plans(using=using)


announce_saves_and_deletes(Plan)
