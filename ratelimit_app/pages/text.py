"""How are numbers and keys written for people? Grouped the way their language does it; a key by its public id."""

from __future__ import annotations

from django.utils.formats import number_format

from ratelimit_app import conf


def grouped(number: float, *, decimals: int = 0) -> str:
    """A number for people: 1,234,567 or 1.234.567, as their language has it."""
    # Rounded here: number_format() cuts off.
    return number_format(round(number, decimals), decimal_pos=decimals, use_l10n=True, force_grouping=True)


def percent(share: float) -> str:
    """A share from 0 to 1 for people; what is not zero never reads as zero."""
    if 0 < share < 0.0005:
        return "<" + grouped(0.1, decimals=1) + " %"
    return grouped(share * 100, decimals=1) + " %"


def shown_as(public_id: str) -> str:
    """How a key is shown to people: what its text begins with."""
    return f"{conf.current().key_prefix}_{public_id}…"
