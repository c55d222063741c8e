"""What did a plan say before, and how does it say so again? A list of versions, and a form that puts one back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from ratelimit_app.admin.plan_forms import PlanForm, state_of
from ratelimit_app.admin.plan_pages import PlanPages
from ratelimit_app.admin.plan_words import in_full
from ratelimit_app.models import Plan, PlanLimit, PlanVersion
from ratelimit_app.models.plan_versions import FIELDS

_LISTED = 50


class PlanHistory(PlanPages):
    def get_urls(self) -> list[URLPattern]:
        name, view = "ratelimit_app_plan", self.admin_site.admin_view
        return [
            path("<int:pk>/versions/", view(self.versions), name=f"{name}_versions"),
            path("<int:pk>/versions/<int:number>/", view(self.version), name=f"{name}_version"),
            *super().get_urls(),
        ]

    @method_decorator(require_safe)
    def versions(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What changed, when, by whom and why; newest first."""
        plan = self._plan(request, pk)
        found = list(PlanVersion.objects.filter(plan_id=pk).order_by("-number")[: _LISTED + 1])
        context = {
            **self.page_context(
                request,
                title=_("Versions of %(plan)s") % {"plan": plan.name},
                parent=plan.name,
                parent_url=self.url("change", pk),
            ),
            "plan": plan,
            "rows": [
                (version, differences(older.rows() if older else (), version.rows()))
                for version, older in zip(found, [*found[1:], None], strict=True)
            ][:_LISTED],
        }
        return TemplateResponse(request, "admin/ratelimit_app/plan/versions.html", context)

    @method_decorator(require_safe)
    def version(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        """One version, beside what the plan says now; a button puts it back, by the page that asks before saving."""
        plan = self._plan(request, pk)
        version = get_object_or_404(PlanVersion, plan_id=pk, number=number)
        stored = list(plan.limits.order_by("pk"))
        changes = differences(stored, version.rows())
        context = {
            **self.page_context(
                request,
                title=_("Version %(number)s") % {"number": number},
                parent=plan.name,
                parent_url=self.url("versions", pk),
            ),
            "plan": plan,
            "version": version,
            "limits": [(limit.name, in_full(limit)) for limit in version.rows()],
            "changes": changes,
            "plan_url": self.url("change", pk),
            "filled_in": list(filled_in(plan, stored, version)) if changes and self._may_restore(request) else [],
        }
        return TemplateResponse(request, "admin/ratelimit_app/plan/version.html", context)

    def _plan(self, request: HttpRequest, pk: int) -> Plan:
        if not self.has_view_permission(request):
            raise PermissionDenied
        plan: Plan = get_object_or_404(Plan, pk=pk)
        return plan

    def _may_restore(self, request: HttpRequest) -> bool:
        needed = (f"ratelimit_app.{what}_planlimit" for what in ("add", "change", "delete"))
        return self.has_change_permission(request) and all(map(request.user.has_perm, needed))


def differences(before: Iterable[PlanLimit], after: Iterable[PlanLimit]) -> list[tuple[str, str, str]]:
    """(name, what it said, what it says) of each limit that differs; "" for one that does not exist."""
    old, new = ({limit.pk: limit for limit in limits} for limits in (before, after))
    found = []
    for pk in sorted({*old, *new}):
        names = dict.fromkeys(side[pk].name for side in (old, new) if pk in side)
        was, says = (in_full(side[pk]) if pk in side else "" for side in (old, new))
        if was != says or len(names) > 1:
            found.append((" → ".join(names), was, says))
    return found


def filled_in(plan: Plan, stored: Iterable[PlanLimit], version: PlanVersion) -> Iterator[tuple[str, str]]:
    """The plan's form, as somebody would fill it in to have the limits of that version."""
    for name in PlanForm.Meta.fields:
        yield name, str(getattr(plan, name))
    yield "seen", state_of(plan)
    yield "_reason", f"Back to version {version.number}."
    wanted = {limit.pk: limit for limit in version.rows()}
    kept = list(stored)
    # One that was deleted and made anew has another id, and its name is taken.
    by_name = {limit.name: limit for pk, limit in wanted.items() if pk not in {row.pk for row in kept}}
    forms: list[tuple[PlanLimit, dict[str, str]]] = []
    for row in kept:
        limit = wanted.pop(row.pk, None) or wanted.pop(by_name[row.name].pk if row.name in by_name else 0, None)
        forms.append((limit or row, {"id": str(row.pk)} | ({} if limit else {"DELETE": "on"})))
    forms += [(limit, {}) for limit in wanted.values()]
    yield "limits-TOTAL_FORMS", str(len(forms))
    yield "limits-INITIAL_FORMS", str(len(kept))
    for number, (limit, more) in enumerate(forms):
        values = {name: getattr(limit, name) for name in FIELDS}
        values |= {"lease": "on"} if values.pop("lease") else {}
        for name, value in {**values, **more, "plan": plan.pk}.items():
            yield f"limits-{number}-{name}", str(value)
