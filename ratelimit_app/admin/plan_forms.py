"""What is asked of somebody who edits a plan? Numbers that a typing error cannot turn into holes."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminBigIntegerFieldWidget
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views import View

from ratelimit_app.limits import MAX_BURST, MAX_FILL_SECONDS, MAX_REQUESTS
from ratelimit_app.models import APIKey, Plan, PlanLimit
from ratelimit_app.models.plan_limits import DEFAULT_SHARDS, MAX_SHARDS
from ratelimit_app.pages.text import grouped

_DIGITS = re.compile(r"[+-]?[0-9]+")
_SEPARATORS = re.compile(r"[\s,;]+")
#: The fields of a limit that have to fit together.
_NUMBERS = {"requests", "period_seconds", "burst", "shards"}


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


def state_of(plan: Plan) -> str:
    """A digest of what a plan and its limits say now."""
    fields = ["pk", *PlanLimitForm.Meta.fields]
    rows = [*Plan.objects.filter(pk=plan.pk).values_list(*PlanForm.Meta.fields)]
    rows += PlanLimit.objects.filter(plan=plan.pk).order_by("pk").values_list(*fields)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


class Seen(forms.CharField):
    """Not a value of the plan: the log has nothing to say of it."""

    widget = forms.HiddenInput

    def has_changed(self, initial: Any, data: Any) -> bool:
        return False


class PlanForm(forms.ModelForm):  # type: ignore[type-arg]
    """Carries what the plan said when it was opened: of two who edit it at once, the second is told."""

    seen = Seen(required=False)

    class Meta:
        model = Plan
        fields = ["name", "slug", "description", "audience"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk and not self.is_bound and "seen" in self.fields:
            self.fields["seen"].initial = state_of(self.instance)

    def clean(self) -> dict[str, Any] | None:
        if "_back" in self.data:
            raise ValidationError(_("Nothing is saved yet. This is what you had filled in."), code="back")
        if self.instance.pk and (seen := self.cleaned_data.get("seen")):
            # The lock makes a second save wait for the first, and then see what it did.
            Plan.objects.select_for_update().filter(pk=self.instance.pk).first()
            if seen != state_of(self.instance):
                raise ValidationError(
                    _(
                        "Somebody else changed this plan while you were editing it. "
                        "Nothing of yours is saved: open it anew."
                    ),
                    code="changed_meanwhile",
                )
        return super().clean()

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
