"""How are numbers, moments and keys written for people? The way their language and time zone have it.

Moments are shown in Django's current time zone, always with its name, so that no hour is ambiguous when clocks change.
"""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ratelimit_app import conf

#: Stands where there is no number.
NOTHING = "\N{EN DASH}"
_PERCENT = "\N{NO-BREAK SPACE}%"
#: A moment that nobody can take for another, in Django's format.
TO_THE_MINUTE = "Y-m-d H:i"


def grouped(number: float, *, decimals: int = 0) -> str:
    """A number for people: 1,234,567 or 1.234.567, as their language has it."""
    # Rounded here: number_format() cuts off.
    return number_format(round(number, decimals), decimal_pos=decimals, use_l10n=True, force_grouping=True)


def exactly(number: float) -> str:
    """A number that somebody set, with no more decimals than it has: 5, 2.5."""
    decimals = next((places for places in range(3) if round(number, places) == number), 3)
    return grouped(number, decimals=decimals)


def signed(number: float) -> str:
    """A change for people: +4, or with a minus sign."""
    return ("\N{MINUS SIGN}" if number < 0 else "+") + grouped(abs(number))


def short(number: int) -> str:
    """A large number for people at a glance: 412,880, but 1.84 M."""
    for unit, size in ((_("G"), 10**9), (_("M"), 10**6)):
        if number >= size:
            return f"{grouped(number / size, decimals=2)} {unit}"
    return grouped(number)


def percent(share: float) -> str:
    """A share from 0 to 1 for people; what is not zero never reads as zero."""
    if 0 < share < 0.0005:
        return "<" + grouped(0.1, decimals=1) + _PERCENT
    return grouped(share * 100, decimals=1) + _PERCENT


def milliseconds(microseconds: float) -> str:
    """A time for people: 0.07 ms, 0.3 ms, 1.9 ms, 5 ms, 25 ms."""
    decimals = 0 if microseconds >= 10_000 or not microseconds % 1_000 else 1
    if microseconds < 1_000 and microseconds % 100:
        decimals = 2
    return _("%(time)s ms") % {"time": grouped(microseconds / 1000, decimals=decimals)}


def duration(seconds: float) -> str:
    """A span for people, in its largest unit: 40 s, 14 min, 3 h, 2 days."""
    whole = int(seconds)
    if whole < 60:
        return _("%(count)s s") % {"count": grouped(whole)}
    if whole < 2 * 3600 and whole != 3600:
        return _("%(count)s min") % {"count": grouped(whole // 60)}
    if whole < 48 * 3600:
        return _("%(count)s h") % {"count": grouped(whole // 3600)}
    days = whole // 86400
    return ngettext("%(count)s day", "%(count)s days", days) % {"count": grouped(days)}


def zone(at: datetime) -> str:
    """The name of the reader's time zone at that moment: CET, CEST, or UTC+05:45 where it has none."""
    # Not the "T" of Django's formats: that is empty in the hour that comes twice.
    name = _local(at).tzname() or ""
    return f"UTC{name[:3]}:{name[3:] or '00'}" if name[:1] in ("+", "-") else name


def written(at: datetime, how: str = TO_THE_MINUTE) -> str:
    """A moment on the reader's clock, in one of Django's formats, with its zone."""
    return f"{date_format(_local(at), how)} {zone(at)}"


def clock(at: datetime, *, seconds: bool = False) -> str:
    """A moment of today: 15:00 UTC."""
    return written(at, "H:i:s" if seconds else "H:i")


def moment(at: datetime, *, now: datetime) -> str:
    """A moment: 15:00 UTC when it is less than half a day from `now`, else 28 Nov, 15:00 UTC."""
    return clock(at) if abs((now - at).total_seconds()) < 12 * 3600 else written(at, "j M, H:i")


def between(start: datetime, end: datetime, *, now: datetime) -> str:
    """A span: 14:20 to 14:24 UTC. The zone is named twice only when the clocks change inside."""
    first, last = moment(start, now=now), moment(end, now=now)
    if zone(start) == zone(end):
        first = first.removesuffix(" " + zone(start))
    return _("%(start)s to %(end)s") % {"start": first, "end": last}


def _local(at: datetime) -> datetime:
    """Also of a moment as a project without time zones stores it."""
    return timezone.localtime(at if timezone.is_aware(at) else timezone.make_aware(at))


def shown_as(public_id: str) -> str:
    """How a key is shown to people: what its text begins with."""
    return f"{conf.current().key_prefix}_{public_id}…"
