"""What does a limit say, in a line? Its numbers, and what they will not do."""

from __future__ import annotations

from fractions import Fraction

from django.utils.translation import gettext as _

from ratelimit_app import fallback
from ratelimit_app.limits import TICKS_PER_SECOND, Limit
from ratelimit_app.models import PlanLimit
from ratelimit_app.models.plan_limits import BUCKETS
from ratelimit_app.pages.text import grouped

#: How far the rate enforced may lie below the one asked for before the form says so.
_WORTH_A_NOTE = Fraction(1, 1000)


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


def in_words(limit: PlanLimit | None) -> str:
    """A limit in one line, with its mode; "" for none."""
    return "" if limit is None else f"{in_short(limit)} ({limit.mode})"


def in_full(limit: PlanLimit) -> str:
    """All that a limit says, but its name."""
    more = [in_words(limit), _("without Redis %(choice)s") % {"choice": limit.on_failure}]
    if limit.per == PlanLimit.Per.EVERYONE:
        more.append(_("shards: %(shards)s") % {"shards": grouped(limit.shards)})
    if limit.lease:
        more.append(_("leased"))
    return "; ".join(more)


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
