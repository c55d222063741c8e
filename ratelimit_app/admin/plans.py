"""How are plans edited? With their limits inline, and with numbers that a typing error cannot turn into holes."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminBigIntegerFieldWidget
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views import View

from ratelimit_app import fallback
from ratelimit_app.limits import MAX_BURST, MAX_FILL_SECONDS, MAX_REQUESTS, TICKS_PER_SECOND, Limit
from ratelimit_app.models import APIKey, Plan, PlanLimit
from ratelimit_app.models.plan_limits import BUCKETS, DEFAULT_SHARDS, MAX_SHARDS
from ratelimit_app.pages.text import grouped

_DIGITS = re.compile(r"[+-]?[0-9]+")
#: How far the rate enforced may lie below the one asked for before the form says so.
_WORTH_A_NOTE = Fraction(1, 1000)
_SEPARATORS = re.compile(r"[\s,;]+")
#: The fields of a limit that have to fit together.
_NUMBERS = {"requests", "period_seconds", "burst", "shards"}
#: More keys than this on a plan are counted on the page that refuses to delete it, not listed.
_LISTED_KEYS = 20


class WholeNumberField(forms.IntegerField):
    """Digits and nothing else.

    Django's own field drops ".000" from the end of "1.000", which is how a third of the world
    writes a thousand: a limit of 1 would be stored without a word.
    """

    widget = AdminBigIntegerFieldWidget

    def to_python(self, value: Any) -> int | None:
        text = "" if value is None else str(value).strip()
        if text and not _DIGITS.fullmatch(text):
            raise ValidationError(_("Enter a whole number, in digits only."), code="invalid")
        return super().to_python(text)


class PlanForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Plan
        fields = ["name", "slug", "description", "audience"]

    def clean_audience(self) -> str:
        audience: str = self.cleaned_data["audience"]
        others = Plan.objects.filter(audience=Plan.Audience.ANONYMOUS).exclude(pk=self.instance.pk)
        if audience == Plan.Audience.ANONYMOUS and others.exists():
            raise ValidationError(_("Another plan already is the one for callers without a key."))
        if self.instance.pk and audience != Plan.Audience.KEYS:
            _refuse_to_orphan(APIKey.objects.filter(plan=self.instance).count())
        return audience


def _refuse_to_orphan(count: int) -> None:
    if count:
        raise ValidationError(
            ngettext(
                "%(count)s API key is on this plan. Move it to another one first.",
                "%(count)s API keys are on this plan. Move them to another one first.",
                count,
            )
            % {"count": grouped(count)}
        )


class PlanLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    requests = WholeNumberField(
        label=gettext_lazy("Requests"),
        min_value=1,
        max_value=MAX_REQUESTS,
        help_text=gettext_lazy("Each period. A sliding log can hold 10,000 at most."),
    )
    period_seconds = WholeNumberField(
        label=gettext_lazy("Period in seconds"), min_value=1, max_value=MAX_FILL_SECONDS, initial=60
    )
    burst = WholeNumberField(
        label=gettext_lazy("Burst"),
        min_value=1,
        max_value=MAX_BURST,
        required=False,
        help_text=gettext_lazy(
            "Token bucket: how many a caller who was quiet may send at once. Leaky bucket: how many may queue. "
            "Windows and logs do not read it: leave it empty."
        ),
    )
    shards = WholeNumberField(
        label=gettext_lazy("Shards"),
        min_value=1,
        max_value=MAX_SHARDS,
        required=False,
        initial=DEFAULT_SHARDS,
        help_text=gettext_lazy(
            "Read only per everyone: over how many buckets the budget is spread, so that no Redis node carries all of "
            "it; 10 when left empty. Burst at least as many (windows, logs: requests); a request may cost no more than "
            "one bucket's part."
        ),
    )

    class Meta:
        model = PlanLimit
        fields = [
            *("name", "scope", "methods", "algorithm", "requests", "period_seconds", "burst"),
            *("per", "shards", "lease", "mode", "on_failure"),
        ]
        help_texts = {
            "algorithm": gettext_lazy(
                "Memory of one caller in Redis: 100 to 200 bytes, whatever the traffic. "
                "Only the sliding log grows, by about 10 bytes for each request of the period."
            ),
            "methods": gettext_lazy("Only these, such as POST, PUT; empty covers all. HEAD counts as GET."),
            "on_failure": gettext_lazy(
                "Local: of a limit smaller than the number of processes, each still lets one request through at least, "
                "so together more than the limit. Choose closed where that is too many."
            ),
        }

    def clean_methods(self) -> str:
        """The methods as they are stored; one that does not exist would be a limit that covers nothing."""
        sent = _SEPARATORS.split(self.cleaned_data["methods"].upper())
        methods = dict.fromkeys("GET" if method == "HEAD" else method for method in sent if method)
        unknown = [method for method in methods if method.lower() not in View.http_method_names]
        if unknown:
            raise ValidationError(_("Not an HTTP method: %(methods)s.") % {"methods": ", ".join(unknown)})
        return ",".join(methods)

    def clean_shards(self) -> int:
        shards: int | None = self.cleaned_data["shards"]
        return DEFAULT_SHARDS if shards is None else shards

    def add_error(self, field: str | None, error: Any) -> None:
        """As Django's; but while one number cannot be read, nothing true can be said of how it fits the others."""
        errors: dict[str, Any] = getattr(error, "error_dict", {})
        if _NUMBERS & errors.keys() and _NUMBERS & self.errors.keys():
            errors = {name: found for name, found in errors.items() if name not in _NUMBERS}
            if not errors:
                return
            error = ValidationError(errors)
        super().add_error(field, error)


class PlanLimitInline(admin.StackedInline):  # type: ignore[type-arg]  # generic in the stubs only
    model = PlanLimit
    form = PlanLimitForm
    fields = [
        ("name", "scope", "methods"),
        ("algorithm", "requests", "period_seconds", "burst"),
        "rate_enforced",
        ("per", "mode", "on_failure"),
        "shards",
        "lease",
    ]
    readonly_fields = ["rate_enforced"]

    def get_extra(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        return 0 if obj else 1

    @admin.display(description=gettext_lazy("Rate enforced"))
    def rate_enforced(self, limit: PlanLimit) -> str:
        return (lowered_rate(limit) or _("as asked for")) if limit.pk else _("shown once it is saved")


@admin.register(Plan)
class PlanAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    form = PlanForm
    inlines = [PlanLimitInline]
    list_display = ["name", "slug", "audience", "limits_in_short"]
    search_fields = ["name", "slug"]
    prepopulated_fields = {"slug": ["name"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Plan]:
        return super().get_queryset(request).prefetch_related("limits")

    @admin.display(description=gettext_lazy("limits"))
    def limits_in_short(self, plan: Plan) -> str:
        return "; ".join(
            in_short(limit) + ("" if limit.mode == PlanLimit.Mode.ENFORCE else f" ({limit.mode})")
            for limit in plan.limits.all()
        )

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        for limit in [*formset.new_objects, *(changed for changed, _fields in formset.changed_objects)]:
            for note in filter(None, (lowered_rate(limit), exceeded_by_shares(limit))):
                messages.warning(request, f"{limit.name}: {note}")

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """As Django's, but a plan with many keys is refused with their number instead of all their names."""
        plan_ids = [plan.pk for plan in objs]
        count = APIKey.objects.filter(plan__in=plan_ids).count()
        if count <= _LISTED_KEYS:
            return super().get_deleted_objects(objs, request)
        named = ngettext("%(count)s API key", "%(count)s API keys", count) % {"count": grouped(count)}
        return [], {}, set(), [named]


def in_short(limit: PlanLimit) -> str:
    """A limit in one line: its numbers, whose requests it counts, and which."""
    numbers = {
        "requests": grouped(limit.requests),
        "period": grouped(limit.period_seconds),
        "burst": grouped(limit.burst),
        "algorithm": limit.algorithm.replace("_", " "),
    }
    if limit.algorithm == PlanLimit.Algorithm.TOKEN_BUCKET:
        text = _("%(requests)s per %(period)s s, burst %(burst)s") % numbers
    elif limit.algorithm == PlanLimit.Algorithm.LEAKY_BUCKET:
        text = _("%(requests)s per %(period)s s, queue %(burst)s") % numbers
    else:
        text = _("%(requests)s per %(period)s s, %(algorithm)s") % numbers
    if limit.per != PlanLimit.Per.KEY:
        text += _(", per %(per)s") % {"per": limit.per}
    covered = " ".join(filter(None, (limit.methods, limit.scope)))
    return text + (_(", on %(covered)s") % {"covered": covered} if covered else "")


def lowered_rate(limit: PlanLimit) -> str:
    """Says which rate is really enforced, where whole ticks between tokens lower it by 0.1 % or more; else ""."""
    if limit.algorithm not in BUCKETS:
        return ""
    value = Limit(id=0, name="", requests=limit.requests, period_seconds=limit.period_seconds, burst=limit.burst)
    asked = Fraction(limit.requests, limit.period_seconds)
    enforced = Fraction(TICKS_PER_SECOND, value.interval_ticks)
    if 1 - enforced / asked < _WORTH_A_NOTE:
        return ""
    return _("%(enforced)s requests a second, instead of %(asked)s: time between tokens is counted in 100 ns.") % {
        "enforced": grouped(float(enforced), decimals=1),
        "asked": grouped(float(asked), decimals=1),
    }


def exceeded_by_shares(limit: PlanLimit) -> str:
    """Says what a local limit that is smaller than the fleet lets through while Redis is down; else ""."""
    processes = fallback.fleet_size()
    held = limit.burst if limit.algorithm in BUCKETS else limit.requests
    if limit.on_failure != PlanLimit.OnFailure.LOCAL or held >= processes:
        return ""
    return _(
        "while Redis is down, each of %(processes)s processes lets one request through at least: together more than "
        "the %(held)s of this limit. Closed lets none through."
    ) % {"processes": grouped(processes), "held": grouped(held)}
