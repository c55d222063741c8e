"""Which pages do the people on call and the owners of plans use? One line each, for whatever must hold of all of them.

In addresses stand ids of what a page is about, by name: see `Subjects`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote_plus

from django.test import Client

from ratelimit_app.admin.plan_history import filled_in
from ratelimit_app.models import APIKey, Episode, OutageSpan, Plan, PlanLimit, PlanVersion, Refusal
from ratelimit_app.models.plan_versions import FIELDS

OVERVIEW = "/admin/ratelimit_app/overview/"
KEY = "/admin/ratelimit_app/apikey/{key}/page/"
SHADOWS = "/admin/ratelimit_app/plan/shadow/"
PLAN = "/admin/ratelimit_app/plan/{plan}/"
#: By name the address of each page.
PAGES = {
    "overview, 15 min": OVERVIEW + "?range=15m",
    "overview, 1 h": OVERVIEW + "?range=1h",
    "overview, 24 h": OVERVIEW + "?range=24h",
    "overview, 30 d": OVERVIEW + "?range=30d",
    "overview, a plan, 1 h": OVERVIEW + "?range=1h&plan={slug}",
    "overview, a plan, 24 h": OVERVIEW + "?range=24h&plan={slug}",
    "overview, a plan, 30 d": OVERVIEW + "?range=30d&plan={slug}",
    "overview, all callers": OVERVIEW + "?range=1h&callers=all",
    "list of keys": "/admin/ratelimit_app/apikey/",
    "list of keys, one plan": "/admin/ratelimit_app/apikey/?plan__id__exact={plan}",
    "list of keys, those that expire": "/admin/ratelimit_app/apikey/?expires=soon",
    "list of keys, by name": "/admin/ratelimit_app/apikey/?q={name}",
    "key": KEY,
    "key, 24 h": KEY + "?range=24h",
    "key, 30 d": KEY + "?range=30d",
    "key, why refused": KEY + "?receipt={receipt}",
    "key, form": "/admin/ratelimit_app/apikey/{key}/change/",
    "key, history": "/admin/ratelimit_app/apikey/{key}/history/",
    "key, rotate": "/admin/ratelimit_app/apikey/{key}/rotate/",
    "key, change plan": "/admin/ratelimit_app/apikey/{key}/move/",
    "new key": "/admin/ratelimit_app/apikey/add/",
    "refusals": "/admin/ratelimit_app/refusal/",
    "refusals, by receipt": "/admin/ratelimit_app/refusal/?q={receipt}",
    "refusals, of a key": "/admin/ratelimit_app/refusal/?q={public_id}",
    "list of plans": "/admin/ratelimit_app/plan/",
    "plan": PLAN + "change/",
    "plan, versions": PLAN + "versions/",
    "plan, a version": PLAN + "versions/1/",
    "plan, delete": PLAN + "delete/",
    "limits in shadow, 1 h": SHADOWS + "?range=1h",
    "limits in shadow, 24 h": SHADOWS + "?range=24h",
    "limits in shadow, 30 d": SHADOWS + "?range=30d",
    "limit in shadow, whom": SHADOWS + "?range=1h&limit={shadow}",
    "limit in shadow, whom, 30 d": SHADOWS + "?range=30d&limit={shadow}",
    "limit in shadow, enforce": SHADOWS + "{shadow}/enforce/",
    "alerts": "/admin/ratelimit_app/episode/",
    "alert": "/admin/ratelimit_app/episode/{episode}/change/",
    "outages": "/admin/ratelimit_app/outagespan/",
    "outage": "/admin/ratelimit_app/outagespan/{outage}/change/",
}
#: The page between the form of a plan and its saving: the only one that is asked for by POST.
PREVIEW = "plan, before it is saved"
#: What an open page asks for again and again, as JSON.
_REFRESHED = {
    f"{name}, refreshed": PAGES[name]
    for name in ("overview, 1 h", "overview, 24 h", "overview, 30 d", "overview, a plan, 24 h", "key")
}
NAMES = [*PAGES, PREVIEW, *_REFRESHED]


@dataclass(frozen=True)
class Subjects:
    """What the pages are about: rows that are there."""

    key: int
    name: str
    public_id: str
    plan: int
    slug: str
    shadow: int
    receipt: str
    episode: int
    outage: int


def subjects(limit: PlanLimit, shadow: PlanLimit) -> Subjects:
    """The first key on a plan, its newest refusal, and the newest alert and outage."""
    key = APIKey.objects.filter(plan=limit.plan_id).earliest("pk")
    return Subjects(
        key=key.pk,
        name=quote_plus(key.name),
        public_id=key.public_id,
        plan=limit.plan_id,
        slug=limit.plan.slug,
        shadow=shadow.pk,
        receipt=str(Refusal.objects.filter(identity=key.bucket_identity).latest("at").pk),
        episode=Episode.objects.latest("started_at").pk,
        outage=OutageSpan.objects.latest("started_at").pk,
    )


def open_page(client: Client, name: str, about: Subjects) -> Any:
    """The answer of a page, by its name."""
    if name == PREVIEW:
        answer = client.post(PAGES["plan"].format(**asdict(about)), _edited(about))
        assert b'name="_enforce"' in answer.content, "this is another page"
        return answer
    if name in _REFRESHED:
        return client.get(_REFRESHED[name].format(**asdict(about)), headers={"accept": "application/json"})
    return client.get(PAGES[name].format(**asdict(about)))


def _edited(about: Subjects) -> dict[str, str]:
    """What a browser sends when somebody changed one limit of the plan."""
    plan = Plan.objects.get(pk=about.plan)
    limits = list(plan.limits.order_by("pk"))
    said = [{"id": limit.pk, **{name: getattr(limit, name) for name in FIELDS}} for limit in limits]
    said[0] |= {"requests": said[0]["requests"] + 1}
    return dict(filled_in(plan, limits, PlanVersion(plan_id=plan.pk, number=1, limits=said)))
