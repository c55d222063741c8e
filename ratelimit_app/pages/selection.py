"""What does a page look at? What its URL says: a range or a span, a plan, and whether it stands still.

Everything that a reader chooses is in the URL, so that a link shows somebody else the same. What
cannot be used is said on the page, and the range that the page begins with is shown.

    range=6h                                          one of the ranges, ending now
    from=2026-11-30T14:00Z&to=2026-11-30T15:00Z       a span; without a zone: in the current one
    plan=pro                                          callers of one plan
    paused=1                                          no refresh
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.translation import gettext as _

from ratelimit_app import stats
from ratelimit_app.models import Plan

DEFAULT_RANGE = "1h"
LONGEST_SPAN = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Selection:
    """What one look at a page is about."""

    window: stats.Window
    #: The slug of the range, or "" when the URL names a span.
    range_slug: str
    #: None for all plans.
    plan: Plan | None
    paused: bool
    now: datetime
    #: What in the URL could not be used, in a sentence; "" when all of it could.
    problem: str
    #: What the URL says, by parameter: what links carry on.
    parameters: Mapping[str, str]

    @property
    def is_live(self) -> bool:
        """Whether the window ends now, so that looking again shows more."""
        return self.window.end >= self.now

    def link(self, **changes: str | None) -> str:
        """The query of this page with other parameters; None takes one out."""
        kept = {**self.parameters, **changes}
        return "?" + urlencode({name: value for name, value in kept.items() if value})

    def link_to_range(self, slug: str) -> str:
        return self.link(range=slug, **{"from": None, "to": None})

    def link_to_span(self, start: datetime, end: datetime) -> str:
        return self.link(range=None, **{"from": _in_url(start), "to": _in_url(end)})


def selection(
    given: Mapping[str, str], *, now: datetime, keeps: tuple[str, ...] = (), default: str = DEFAULT_RANGE
) -> Selection:
    """What the parameters of a URL mean; `keeps` names those of the page itself that its links carry on.

    `default` is the range that is shown when the URL names none.
    """
    problems = []
    parameters = {name: given[name] for name in keeps if given.get(name)}
    chosen = stats.RANGES.get(given.get("range", ""), stats.RANGES[default])
    window, range_slug = stats.window(chosen, now=now), chosen.slug
    if "from" in given or "to" in given:
        span = _span(given.get("from", ""), given.get("to", ""), now=now)
        if span is None:
            problems.append(
                _(
                    "The span in the address cannot be used: it takes two moments like 2026-11-30T14:00Z, the later "
                    "one second, and at most 31 days between them."
                )
            )
        else:
            window, range_slug = stats.between(*span), ""
            parameters |= {"from": _in_url(window.start), "to": _in_url(window.end)}
    if range_slug and given.get("range"):
        parameters["range"] = range_slug
    plan = Plan.objects.filter(slug=given["plan"]).first() if given.get("plan") else None
    if plan is not None:
        parameters["plan"] = plan.slug
    elif given.get("plan"):
        problems.append(_("There is no plan with the name in the address: all plans are shown."))
    paused = given.get("paused") == "1"
    if paused:
        parameters["paused"] = "1"
    return Selection(
        window=window,
        range_slug=range_slug,
        plan=plan,
        paused=paused,
        now=now,
        problem=" ".join(problems),
        parameters=parameters,
    )


def before(window: stats.Window, *, seconds: float) -> stats.Window:
    """The same window so many seconds earlier."""
    shift = timedelta(seconds=seconds)
    return stats.Window(start=window.start - shift, end=window.end - shift, bucket_seconds=window.bucket_seconds)


def _span(start_text: str, end_text: str, *, now: datetime) -> tuple[datetime, datetime] | None:
    start, end = _moment(start_text), _moment(end_text)
    if start is None or end is None or end <= start or end - start > LONGEST_SPAN or start >= now:
        return None
    return start, end


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
        return (timezone.make_aware(at) if timezone.is_naive(at) else at).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _in_url(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
