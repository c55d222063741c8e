"""How does a key get more, or less? By another plan, a boost for a while, or buckets that are full again."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ratelimit_app import connections, limiter
from ratelimit_app.admin.key_actions.action import Done, KeyAction, NotDone, in_the_future
from ratelimit_app.models import APIKey, Plan
from ratelimit_app.models.key_life import BOOSTS
from ratelimit_app.pages.text import shown_as

#: Longer than this is a plan, not a boost.
LONGEST_BOOST = timedelta(days=90)


class Move(KeyAction):
    slug, permission = "move", "move_apikey"
    title, button = gettext_lazy("Change plan of API key"), gettext_lazy("Change plan")

    plan = forms.ModelChoiceField(label=gettext_lazy("New plan"), queryset=Plan.objects.none())
    field_order = ("plan", "reason")

    def shape(self) -> None:
        plans = Plan.objects.filter(audience=Plan.Audience.KEYS).exclude(pk=self.key.plan_id)
        self.fields["plan"].queryset = plans.prefetch_related("limits")  # type: ignore[attr-defined]
        self.fields["plan"].label_from_instance = _with_limits  # type: ignore[attr-defined]

    @property
    def sentences(self) -> list[str]:
        said = [
            _("Now on: %(plan)s.") % {"plan": _with_limits(self.key.plan)},
            _("Buckets belong to the limits of a plan: the key starts on the new plan with full ones."),
        ]
        return said + _about_others(self.others)

    def act(self) -> Done:
        before, plan = self.key.plan, self.cleaned_data["plan"]
        APIKey.objects.move(self.key, plan=plan)
        shown = _("The key is on the plan %(plan)s now.") % {"plan": plan}
        return Done(f"Changed plan from {before.slug} to {plan.slug}.{self._why()}", shown, self.bucket_mates)


class Boost(KeyAction):
    slug, permission = "boost", "boost_apikey"
    title, button = gettext_lazy("Boost API key"), gettext_lazy("Boost")

    factor = forms.IntegerField(
        label=gettext_lazy("Times"),
        initial=2,
        validators=[MinValueValidator(BOOSTS[0]), MaxValueValidator(BOOSTS[-1])],
        help_text=gettext_lazy("A whole number: 5 allows five times the requests and bursts of the plan."),
        localize=False,
    )
    until = forms.DateTimeField(
        label=gettext_lazy("Until"),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    field_order = ("factor", "until", "reason")

    def shape(self) -> None:
        self.fields["until"].initial = timezone.now() + timedelta(days=1)
        self.fields["until"].help_text = _("In the time zone %(zone)s; at most %(days)s days from now.") % {
            "zone": timezone.get_current_timezone_name(),
            "days": LONGEST_BOOST.days,
        }

    def clean_until(self) -> datetime:
        until: datetime = self.cleaned_data["until"]
        in_the_future(until)
        if until > timezone.now() + LONGEST_BOOST:
            raise ValidationError(_("That is too far away for a boost. Change the plan instead."))
        return until

    @property
    def sentences(self) -> list[str]:
        said = [
            _("Limits per key and per user are multiplied. What is used of a bucket stays used, now and at the end."),
            _("It ends by itself, in every process. A boost in force is replaced."),
        ]
        return said + _about_others(self.others)

    def act(self) -> Done:
        factor, until, reason = (self.cleaned_data[name] for name in ("factor", "until", "reason"))
        try:
            APIKey.objects.boost(self.key, factor=factor, until=until, reason=reason)
        except ValueError:  # it took so long that the moment is past
            raise NotDone(_("The end of the boost is past. Nothing was changed.")) from None
        logged = f"Boosted {factor} times until {until.isoformat(timespec='minutes')}.{self._why()}"
        return Done(logged, _("The key is boosted."), self.bucket_mates)


class EndBoost(KeyAction):
    slug, permission = "end-boost", "boost_apikey"
    title, button, ends = gettext_lazy("End the boost of API key"), gettext_lazy("End the boost"), True

    @property
    def obstacle(self) -> str:
        return "" if self.key.boost > 1 else _("This key is not boosted.")

    @property
    def sentences(self) -> list[str]:
        return [_("The limits of its plan are in force again."), *_about_others(self.others)]

    def act(self) -> Done:
        APIKey.objects.end_boost(self.key)
        return Done(f"Ended the boost.{self._why()}", _("The boost is over."), self.bucket_mates)


class Reset(KeyAction):
    slug, permission = "reset", "reset_bucket"
    title, button = gettext_lazy("Fill the buckets of API key"), gettext_lazy("Fill")

    @property
    def sentences(self) -> list[str]:
        return [
            _("Every bucket of this key is full again, on every route, within a second."),
            _("A bucket per user is filled for all keys of that user. Those shared with everyone stay as they are."),
        ]

    def act(self) -> Done:
        try:
            limiter.reset(self.key.as_caller())
        except connections.Unavailable as failure:
            raise NotDone(_("Nothing was changed: %(failure)s") % {"failure": failure}) from failure
        return Done(f"Filled the buckets.{self._why()}", _("The buckets are full."), (self.key,))


def _about_others(others: tuple[APIKey, ...]) -> list[str]:
    if not others:
        return []
    listed = ", ".join(shown_as(other.public_id) for other in others)
    return [_("The same for what shares its bucket: %(keys)s.") % {"keys": listed}]


def _with_limits(plan: Plan) -> str:
    said = [
        _("%(name)s %(requests)s per %(period)s s, burst %(burst)s")
        % {"name": limit.name, "requests": limit.requests, "period": limit.period_seconds, "burst": limit.burst}
        for limit in plan.limits.all()
    ]
    return f"{plan.name} ({'; '.join(said) or _('no limits')})"
