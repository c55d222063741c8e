"""What does one limit of a plan say? Its numbers, whose requests it counts, and which generation they are."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any, Self, cast

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models.lookups import LessThanOrEqual
from django.utils.translation import gettext_lazy as _

from ratelimit_app.limits import (
    MAX_BURST,
    MAX_FILL_SECONDS,
    MAX_LOGGED,
    MAX_REQUESTS,
    MAX_SLIDING_PRODUCT,
    Limit,
    Mode,
    OnFailure,
    Per,
)
from ratelimit_app.models.announcements import (
    Announced,
    AnnouncingQuerySet,
    announce_plans,
    announce_saves_and_deletes,
)
from ratelimit_app.models.generations import WithGenerations, keep_generations_on_save
from ratelimit_app.models.plans import Plan

MAX_SHARDS = 64
DEFAULT_SHARDS = 10
BUCKETS = ["token_bucket", "leaky_bucket"]
UNCOUNTABLE = _("An empty bucket would take more than 14 years to fill, which cannot be counted exactly.")
UNLOGGABLE = _("A sliding log remembers each request: 10,000 a period at most.")
UNSHARDABLE = _("Each shard needs one at least: raise the burst (windows, logs: the requests) or lower the shards.")
UNESTIMABLE = _("A sliding window can count requests times seconds up to 9,000,000,000,000 exactly.")
UNLEASABLE = _("Only a token bucket can lease, and its burst must be larger than what 0.1 s gains, plus one.")
_INFINITE = (math.inf, -math.inf)


class PlanLimit(WithGenerations, Announced):
    """One limit of a plan: `requests` every `period_seconds`, counted by one of five algorithms."""

    class Algorithm(models.TextChoices):
        TOKEN_BUCKET = "token_bucket", _("token bucket: bursts up to its size, then the rate")
        SLIDING_WINDOW = "sliding_window", _("sliding window: about so many in any period")
        FIXED_WINDOW = "fixed_window", _("fixed window: so many a window, twice that at its edge")
        SLIDING_LOG = "sliding_log", _("sliding log: exactly so many in any period, ten bytes a request")
        LEAKY_BUCKET = "leaky_bucket", _("leaky bucket: a queue that passes requests at the rate")

    class Per(models.TextChoices):
        KEY = "key", _("API key")
        USER = "user", _("user (owner of the key, or signed in)")
        ADDRESS = "address", _("network address")
        EVERYONE = "everyone", _("everyone together: a cap for the platform")

    class Mode(models.TextChoices):
        ENFORCE = "enforce", _("enforce")
        SHADOW = "shadow", _("shadow: count what would be refused")
        OFF = "off", _("off")

    class OnFailure(models.TextChoices):
        LOCAL = "local", _("local: each process enforces its share from memory")
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
    algorithm = models.CharField(_("algorithm"), max_length=14, choices=Algorithm, default=Algorithm.TOKEN_BUCKET)
    requests = models.PositiveBigIntegerField(
        _("requests"),
        validators=[MinValueValidator(1), MaxValueValidator(MAX_REQUESTS)],
        help_text=_("Each period."),
    )
    period_seconds = models.PositiveBigIntegerField(
        _("period in seconds"), default=60, validators=[MinValueValidator(1), MaxValueValidator(MAX_FILL_SECONDS)]
    )
    burst = models.PositiveBigIntegerField(
        _("burst"),
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BURST)],
        blank=True,
        help_text=_(
            "Token bucket: what a full one holds, so as much may be sent at once. Leaky bucket: how many may queue. "
            "The other algorithms do not read it."
        ),
    )
    per = models.CharField(_("per"), max_length=8, choices=Per, default=Per.KEY)
    scope = models.CharField(
        _("scope"),
        max_length=100,
        blank=True,
        help_text=_("Covers only the routes with this throttle scope; empty covers all."),
    )
    methods = models.CharField(
        _("methods"),
        max_length=100,
        blank=True,
        validators=[
            RegexValidator(r"\A[A-Z]+(,[A-Z]+)*\Z", _("Methods such as POST,PUT: capitals, commas, no spaces."))
        ],
        help_text=_("Covers only these HTTP methods, such as POST,PUT; empty covers all. HEAD counts as GET."),
    )
    shards = models.PositiveSmallIntegerField(
        _("shards"),
        default=DEFAULT_SHARDS,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_SHARDS)],
        help_text=_(
            "Per everyone only: buckets that share the budget, so that no Redis node carries all of it. "
            "The burst (for windows and logs the requests) must be at least as many."
        ),
    )
    lease = models.BooleanField(
        _("lease"),
        default=False,
        help_text=_(
            "Token bucket only: servers take tokens ahead of time and decide most requests without asking Redis. "
            "The bound still holds, but the burst is smaller by what 0.1 s gains, Remaining is up to 0.1 s old, and a "
            "refused caller may wait 0.1 s longer than needed."
        ),
    )
    mode = models.CharField(_("mode"), max_length=8, choices=Mode, default=Mode.ENFORCE)
    on_failure = models.CharField(_("when Redis cannot decide"), max_length=8, choices=OnFailure, default="local")
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
                name="ratelimit_app_limit_sliding_window",
                condition=~models.Q(algorithm="sliding_window")
                | models.Q(LessThanOrEqual(models.F("requests") * models.F("period_seconds"), MAX_SLIDING_PRODUCT)),
                violation_error_message=UNESTIMABLE,
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_sliding_log",
                condition=~models.Q(algorithm="sliding_log") | models.Q(requests__lte=MAX_LOGGED),
                violation_error_message=UNLOGGABLE,
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_shards",
                condition=models.Q(shards__gte=1, shards__lte=MAX_SHARDS)
                & (
                    ~models.Q(per="everyone")
                    | models.Q(algorithm__in=BUCKETS, burst__gte=models.F("shards"))
                    | (~models.Q(algorithm__in=BUCKETS) & models.Q(requests__gte=models.F("shards")))
                ),
                violation_error_message=UNSHARDABLE,
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_lease",
                # In each shard there must be more than `Limit.reserve`: what a lease's life, 0.1 s, gains, and one.
                condition=models.Q(lease=False)
                | models.Q(
                    ~models.Q(per="everyone"),
                    LessThanOrEqual(models.F("requests"), 10 * models.F("period_seconds") * (models.F("burst") - 2)),
                    algorithm="token_bucket",
                )
                | models.Q(
                    LessThanOrEqual(
                        models.F("requests"),
                        10 * models.F("period_seconds") * (models.F("burst") + 1 - 3 * models.F("shards")),
                    ),
                    algorithm="token_bucket",
                    per="everyone",
                ),
                violation_error_message=UNLEASABLE,
            ),
            models.CheckConstraint(
                name="ratelimit_app_limit_choices",
                condition=models.Q(
                    algorithm__in=["token_bucket", "sliding_window", "fixed_window", "sliding_log", "leaky_bucket"],
                    per__in=["key", "user", "address", "everyone"],
                    mode__in=["enforce", "shadow", "off"],
                    on_failure__in=["local", "open", "closed"],
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
        burst: Any = self.burst
        if burst is None or burst == "":
            if self.algorithm in BUCKETS:
                raise ValidationError({"burst": _("This field is required.")})
            self.burst = self.requests  # not read, but a column holds a number
        # The database holds these bounds too, but validating them there may overflow before it compares,
        # and does not say which field is wrong.
        numbers = [self.burst, self.period_seconds, self.requests, self.shards]
        if all(isinstance(number, int) for number in numbers):
            self._check_countable()

    def get_constraints(self) -> list[Any]:
        # Fields and clean() say what the others hold; asking the database for each took 26 queries a limit.
        return [
            (model, [each for each in constraints if isinstance(each, models.UniqueConstraint)])
            for model, constraints in super().get_constraints()
        ]

    def _check_countable(self) -> None:
        if self.burst * self.period_seconds > MAX_FILL_SECONDS * self.requests:
            raise ValidationError({"burst": UNCOUNTABLE})
        is_sliding = self.algorithm == self.Algorithm.SLIDING_WINDOW
        if is_sliding and self.requests * self.period_seconds > MAX_SLIDING_PRODUCT:
            raise ValidationError({"requests": UNESTIMABLE})
        if self.algorithm == self.Algorithm.SLIDING_LOG and self.requests > MAX_LOGGED:
            raise ValidationError({"requests": UNLOGGABLE})
        spread = "burst" if self.algorithm in BUCKETS else "requests"
        if self.per == self.Per.EVERYONE and getattr(self, spread) < self.shards:
            raise ValidationError({spread: UNSHARDABLE})
        if self.lease:
            self._check_leasable()

    def _check_leasable(self) -> None:
        if self.algorithm != self.Algorithm.TOKEN_BUCKET:
            raise ValidationError({"lease": _("Only a token bucket can lease tokens.")})
        shards = self.shards if self.per == self.Per.EVERYONE else 1
        least = 3 * shards - 1 - (-self.requests // (10 * self.period_seconds))
        if self.burst < least:
            text = _("To lease at this rate, the burst must be %(least)s at least: servers hold part of it for 0.1 s.")
            raise ValidationError({"burst": text % {"least": least}})

    @property
    def numbers(self) -> list[Any]:
        """What buckets depend on: a change of it begins a generation."""
        shards = self.shards if self.per == self.Per.EVERYONE else 1
        return [self.algorithm, self.requests, self.period_seconds, self.burst, shards, self.lease]

    def counting_by(self, numbers: list[Any]) -> Limit:
        algorithm, requests, period_seconds, burst, shards, lease = numbers
        return Limit(
            id=self.pk,
            name=self.name,
            requests=requests,
            period_seconds=period_seconds,
            burst=burst,
            algorithm=algorithm,
            per=cast("Per", self.per),
            scope=self.scope,
            methods=tuple(filter(None, self.methods.split(","))),
            mode=cast("Mode", self.mode),
            on_failure=cast("OnFailure", self.on_failure),
            shards=shards,
            lease=lease,
        )

    @classmethod
    def announce(cls, rows: Iterable[Self], *, using: str) -> None:
        announce_plans(using=using)
        for row in cls.objects.using(using).all():
            row.settle_generation(using=using)


announce_saves_and_deletes(PlanLimit)
keep_generations_on_save(PlanLimit)
