"""What will an edit of a plan do? A page between the form and the saving says it: old and new, and an estimate."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.db import router, transaction
from django.forms import all_valid
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from ratelimit_app import conf, stats
from ratelimit_app.admin import pasted_keys
from ratelimit_app.admin.plan_forms import PlanLimitForm
from ratelimit_app.admin.plan_pages import PlanPages
from ratelimit_app.admin.plan_words import exceeded_by_shares, in_words, lowered_rate
from ratelimit_app.limits import Limit
from ratelimit_app.models import APIKey, Plan, PlanLimit
from ratelimit_app.pages.text import grouped, percent

#: A change of any of these is shown before it is saved; a limit's name and what happens without Redis are not.
_WEIGHTY = ("algorithm", "requests", "period_seconds", "burst", "per", "scope", "methods", "shards", "lease", "mode")
#: The buttons: how to save what was shown, or not at all.
_SHADOW, _ENFORCE, _KEEP, _BACK = "_shadow", "_enforce", "_keep", "_back"
#: What belongs to one sending of a form, not to what was filled in.
_NOT_FILLED_IN = ("csrfmiddlewaretoken", "_save", "_changed", _SHADOW, _ENFORCE, _KEEP, _BACK, "_reason")


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What an edit makes of one limit."""

    #: Of its fields in the form.
    prefix: str
    #: None when the edit adds it, or deletes it.
    before: PlanLimit | None
    after: PlanLimit | None

    @property
    def matters(self) -> bool:
        return _weighty(self.before) != _weighty(self.after)

    @property
    def is_off(self) -> bool:
        """Whether it will limit nobody, whichever way it is saved."""
        return self.after is None or self.after.mode == PlanLimit.Mode.OFF


class PlanPreview(PlanPages):
    """Shows what an edit will do before it is saved, where it does anything to a limit."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method == "POST":
            if _SHADOW in request.POST or _ENFORCE in request.POST:
                _set_modes(request)
            elif (
                _KEEP not in request.POST
                and _BACK not in request.POST
                and (preview := self._preview(request, unquote(object_id)))
            ):
                return preview
        return super().change_view(request, object_id, form_url, extra_context)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """As Django's; of limits that were changed also what they said before, and say now."""
        message = super().construct_change_message(request, form, formsets, add)
        lines = [line for formset in formsets for line in _before_and_after(formset)]
        reason = f" Reason: {_reason(request)}" if _reason(request) else ""
        if add or not lines:
            return message
        return f"{LogEntry(change_message=json.dumps(message)).get_change_message()} {' '.join(lines)}{reason}"

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        self.record(request, form.instance, reason=_reason(request))

    def _preview(self, request: HttpRequest, object_id: str) -> HttpResponse | None:
        """The page, or None where there is nothing to show: the form's own view answers, with errors or by saving."""
        plan = self.get_object(request, object_id)
        if plan is None or not self.has_change_permission(request, plan):
            return None
        with transaction.atomic(using=router.db_for_write(Plan)):
            # Read first: checking the form writes what it says into the rows it was given.
            stored = {limit.pk: limit for limit in PlanLimit.objects.filter(plan=plan).order_by("pk")}
            form = self.get_form(request, plan, change=True)(request.POST, instance=plan)
            formsets = [
                formset(**self.get_formset_kwargs(request, form.instance, inline, formset.get_default_prefix()))
                for formset, inline in self.get_formsets_with_inlines(request, plan)
            ]
            if not form.is_valid() or not all_valid(formsets):
                return None
        changes = [change for formset in formsets for change in _changes(formset, stored)]
        if not any(change.matters for change in changes):
            return None
        context = {
            **self.page_context(
                request, title=_("Save this plan?"), parent=plan.name, parent_url=request.get_full_path()
            ),
            "plan": plan,
            "reason": _reason(request),
            "filled_in": [
                (name, value) for name, values in request.POST.lists() if name not in _NOT_FILLED_IN for value in values
            ],
            **_what_it_does(plan, stored.values(), changes),
        }
        return TemplateResponse(request, "admin/ratelimit_app/plan/preview.html", context)


def _what_it_does(plan: Plan, stored: Iterable[PlanLimit], changes: list[LimitChange]) -> dict[str, Any]:
    weighty = [change for change in changes if change.matters]
    saved = [change for change in weighty if not change.is_off]
    # What is changed is reckoned as enforced: that is the question. What is not stays as it is.
    after = [
        change.after
        for change in changes
        if change.after is not None and (change in saved or change.after.mode == PlanLimit.Mode.ENFORCE)
    ]
    before = [limit for limit in stored if limit.mode == PlanLimit.Mode.ENFORCE]
    old, new = [_value(limit) for limit in before], [_value(limit) for limit in after]
    left_out = sorted({limit.name for limit in (*old, *new) if not stats.can_be_replayed(limit)})
    has_keys = plan.audience == Plan.Audience.KEYS
    reckoned = None
    if has_keys:
        reckoned = stats.forecast(
            plan.pk,
            before=filter(stats.can_be_replayed, old),
            after=filter(stats.can_be_replayed, new),
            now=timezone.now(),
        )
    return {
        "rows": [
            (change, in_words(change.before), in_words(change.after), change.after or change.before)
            for change in weighty
        ],
        "notes": [
            f"{change.after.name}: {note}"
            for change in saved
            if change.after is not None
            for note in filter(None, (lowered_rate(change.after), exceeded_by_shares(change.after)))
        ],
        "keys": grouped(APIKey.objects.filter(plan=plan).usable().count()) if has_keys else None,
        "estimate": _sentences(reckoned, left_out) if reckoned is not None else [],
        "checked": reckoned.checked if reckoned is not None else 0,
        "asks_how": bool(saved),
        "modes": sorted({change.after.mode for change in saved if change.after is not None}),
        "drops_enforcing": any(change.before and change.before.mode == "enforce" for change in saved),
        "mode": conf.current().mode,
    }


def _sentences(found: stats.Forecast, left_out: list[str]) -> list[str]:
    if not found.checked:
        return [_("Nothing was recorded of this plan in the last 24 hours, so there is no estimate.")]
    words = [
        _("Over the last 24 h, %(recorded)s of %(checked)s requests were blocked; with these numbers about %(after)s.")
        % {
            "recorded": percent(found.blocked / found.checked),
            "checked": grouped(found.checked),
            "after": percent(found.blocked_after / found.checked),
        },
        _("Keys newly hit: %(count)s.") % {"count": grouped(found.newly_hit)},
        _("The same model with the numbers of now: about %(before)s.")
        % {"before": percent(found.blocked_before / found.checked)},
    ]
    if not found.is_complete:
        words.append(
            _(
                "Reckoned from %(callers)s keys, those blocked most and the busiest of late, with %(share)s of the "
                "requests; the rest counts as it was recorded, so others may be hit, too."
            )
            % {"callers": grouped(found.callers), "share": percent(found.replayed / found.checked)}
        )
    if found.unchecked:
        words.append(
            _("%(count)s requests were let through unchecked and are not part of this.")
            % {"count": grouped(found.unchecked)}
        )
    if left_out:
        words.append(
            _("Not reckoned, because what is recorded does not say on which routes or from where: %(names)s.")
            % {"names": ", ".join(left_out)}
        )
    return words


def _changes(formset: Any, stored: dict[int, PlanLimit]) -> list[LimitChange]:
    gone = {id(form) for form in formset.deleted_forms}
    found = []
    for form in formset.forms:
        before = stored.get(form.instance.pk)
        if before is None and (id(form) in gone or not form.has_changed()):
            continue
        found.append(LimitChange(form.prefix, before, None if id(form) in gone else form.instance))
    return found


def _before_and_after(formset: Any) -> list[str]:
    """What a saved formset did to each limit, in a line."""
    gone = set(map(id, formset.deleted_objects))
    lines = []
    for limit in [*formset.new_objects, *(each for each, _fields in formset.changed_objects), *formset.deleted_objects]:
        initial: dict[str, Any] = next((form.initial for form in formset.initial_forms if form.instance is limit), {})
        names = [name for name in PlanLimitForm.Meta.fields if name in initial]
        before = PlanLimit(**{name: initial[name] for name in names}) if names else None
        after = None if id(limit) in gone else limit
        said = [in_words(before) or "-", in_words(after) or "-"]
        if said[0] != said[1]:
            lines.append(f"{limit.name}: {said[0]} → {said[1]}.")
    return lines


def _reason(request: HttpRequest) -> str:
    text = request.POST.get("_reason", "").replace("\0", "").strip()
    return pasted_keys.without_secrets(text)[:200]


def _set_modes(request: HttpRequest) -> None:
    """Let the limits that were shown as changed be saved the way that was chosen; those off stay off."""
    mode = PlanLimit.Mode.SHADOW if _SHADOW in request.POST else PlanLimit.Mode.ENFORCE
    filled_in = request.POST.copy()
    for prefix in request.POST.getlist("_changed"):
        if filled_in.get(f"{prefix}-mode") in (PlanLimit.Mode.SHADOW, PlanLimit.Mode.ENFORCE):
            filled_in[f"{prefix}-mode"] = mode.value
    request.POST = filled_in  # type: ignore[assignment]


def _value(limit: PlanLimit) -> Limit:
    return limit.counting_by(limit.numbers)


def _weighty(limit: PlanLimit | None) -> list[Any]:
    return [] if limit is None else [getattr(limit, name) for name in _WEIGHTY]
