"""What may a caller do? Plans: named sets of limits, owned by the people who run the API."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from typing import Any, Self, cast

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.lookups import LessThanOrEqual
from django.db.models.signals import pre_save
from django.utils.translation import gettext_lazy as _

from ratelimit_app.limits import MAX_FILL_SECONDS, TICKS_PER_SECOND, Limit, Mode, OnFailure, Per
from ratelimit_app.models.announcements import (
    Announced,
    AnnouncingQuerySet,
    announce_plans,
    announce_saves_and_deletes,
)

MAX_REQUESTS = 1_000_000_000
MAX_BURST = 2_000_000_000
#: Generations of a limit's numbers that are remembered beside the one in force.
EARLIER_GENERATIONS = 3
UNCOUNTABLE = _("An empty bucket would take more than 14 years to fill, which cannot be counted exactly.")
_INFINITE = (math.inf, -math.inf)


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


class PlanLimit(Announced):
    """One limit of a plan: a token bucket per caller, that gains `requests` every `period_seconds`."""

    class Per(models.TextChoices):
        KEY = "key", _("API key")
        USER = "user", _("user (owner of the key, or signed in)")
        ADDRESS = "address", _("network address")

    class Mode(models.TextChoices):
        ENFORCE = "enforce", _("enforce")
        SHADOW = "shadow", _("shadow: count what would be refused")
        OFF = "off", _("off")

    class OnFailure(models.TextChoices):
        OPEN = "open", _("open: let the request through, unchecked")
        CLOSED = "closed", _("closed: answer 503, for login and payments")

    plan = models.ForeignKey(Plan, on_delete=models.CASCADE, related_name="limits", verbose_name=_("plan"))
    name = models.CharField(
        _("name"),
        max_length=50,
        validators=[
            RegexValidator(r"\A[A-Za-z0-9_.-]+\Z", _("Letters, digits, points, hyphens and underscores only."))
        ],
        help_text=_("Callers read it in headers."),
    )
    requests = models.PositiveBigIntegerField(
        _("requests"),
        validators=[MinValueValidator(1), MaxValueValidator(MAX_REQUESTS)],
        help_text=_("Tokens gained each period."),
    )
    period_seconds = models.PositiveBigIntegerField(
        _("period in seconds"), default=60, validators=[MinValueValidator(1), MaxValueValidator(MAX_FILL_SECONDS)]
    )
    burst = models.PositiveBigIntegerField(
        _("burst"),
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BURST)],
        help_text=_("What a full bucket holds: as much may be sent at once."),
    )
    per = models.CharField(_("per"), max_length=8, choices=Per, default=Per.KEY)
    scope = models.CharField(
        _("scope"),
        max_length=100,
        blank=True,
        help_text=_("Covers only the routes with this throttle scope; empty covers all."),
    )
    mode = models.CharField(_("mode"), max_length=8, choices=Mode, default=Mode.ENFORCE)
    on_failure = models.CharField(_("when Redis cannot decide"), max_length=8, choices=OnFailure, default="open")
    #: [generation, requests, period_seconds, burst, when its last bucket is full or null], newest first.
    generations = models.JSONField(default=list, editable=False)

    objects = AnnouncingQuerySet.as_manager()

    class Meta:
        ordering = ["plan", "name"]
        verbose_name = _("limit")
        verbose_name_plural = _("limits")
        constraints = [
            models.UniqueConstraint(name="ratelimit_app_limit_name", fields=["plan", "name"]),
            models.CheckConstraint(
                name="ratelimit_app_limit_positive",
                condition=models.Q(requests__gte=1, period_seconds__gte=1, burst__gte=1),
                violation_error_message=_("Requests, period and burst must be at least 1."),
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_bounds",
                condition=models.Q(
                    requests__lte=MAX_REQUESTS, period_seconds__lte=MAX_FILL_SECONDS, burst__lte=MAX_BURST
                ),
                violation_error_message=_("These numbers are larger than can be counted exactly."),
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_countable",
                condition=LessThanOrEqual(
                    models.F("burst") * models.F("period_seconds"), models.F("requests") * MAX_FILL_SECONDS
                ),
                violation_error_message=UNCOUNTABLE,
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_choices",
                condition=models.Q(
                    per__in=["key", "user", "address"],
                    mode__in=["enforce", "shadow", "off"],
                    on_failure__in=["open", "closed"],
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        # Django's whole-number fields raise OverflowError when they meet infinity.
        infinite = [name for name in ("requests", "period_seconds", "burst") if getattr(self, name) in _INFINITE]
        if infinite:
            raise ValidationError({name: _("Enter a whole number.") for name in infinite})
        super().clean_fields(exclude=exclude)

    def clean(self) -> None:
        # The database holds this too, but validating it there may overflow before it compares.
        numbers = [self.burst, self.period_seconds, self.requests]
        if all(isinstance(number, int) for number in numbers) and _cannot_be_counted(*numbers):
            raise ValidationError({"burst": UNCOUNTABLE})

    def as_limit(self) -> Limit:
        """The value that the limiter weighs."""
        matter = [g for g in self.generations[1:] if g[4] is not None and g[4] > time.time()]
        return Limit(
            id=self.pk,
            name=self.name,
            requests=self.requests,
            period_seconds=self.period_seconds,
            burst=self.burst,
            per=cast("Per", self.per),
            scope=self.scope,
            mode=cast("Mode", self.mode),
            on_failure=cast("OnFailure", self.on_failure),
            generation=self.generations[0][0] if self.generations else 1,
            earlier=tuple((number, _capacity_ticks(*numbers)) for number, *numbers, _full_at in matter),
        )

    @classmethod
    def announce(cls, rows: Iterable[Self], *, using: str) -> None:
        announce_plans(using=using)
        for row in cls.objects.using(using).all():
            row._settle_generation(using=using)

    def _settle_generation(self, *, using: str) -> None:
        """Begin a new generation when the numbers are not those of the newest one."""
        numbers = [self.requests, self.period_seconds, self.burst]
        known = self.generations
        if known and known[0][1:4] == numbers:
            return
        now = time.time()
        ended = [
            [number, *old, now + _capacity_ticks(*old) / TICKS_PER_SECOND if full_at is None else full_at]
            for number, *old, full_at in known
        ]
        newest = [known[0][0] + 1 if known else 1, *numbers, None]
        generations = [newest, *ended][: EARLIER_GENERATIONS + 1]
        type(self)._base_manager.using(using).filter(pk=self.pk).update(generations=generations)


def _cannot_be_counted(burst: int, period_seconds: int, requests: int) -> bool:
    return burst * period_seconds > MAX_FILL_SECONDS * requests


def _capacity_ticks(requests: int, period_seconds: int, burst: int) -> int:
    return Limit(id=0, name="", requests=requests, period_seconds=period_seconds, burst=burst).capacity_ticks


def _keep_generations(instance: PlanLimit, using: str, raw: bool = False, **kwargs: Any) -> None:
    """An instance read before somebody else's edit must not write back the generations of then."""
    if not raw:
        stored = PlanLimit._base_manager.using(using).filter(pk=instance.pk).values_list("generations", flat=True)
        instance.generations = stored.first() or []


announce_saves_and_deletes(Plan)
announce_saves_and_deletes(PlanLimit)
pre_save.connect(_keep_generations, sender=PlanLimit, dispatch_uid="ratelimit_app.PlanLimit.generations")
