"""Who is known to be out of tokens? Such a caller is refused without a trip to Redis.

Remembers, per limit, caller and cost, until when the tokens cannot be there; for a second at most,
since another process may reset the bucket or give tokens back. A plan edit is another limit here,
and so forgets by itself; a reset or refund in this process forgets everything.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from django.core.signals import setting_changed

from ratelimit_app.limits import TICKS_PER_SECOND, Caller, Decision, Limit, Weighed, new_receipt

#: The longest that a denial is believed.
LONGEST_SECONDS = 1.0
#: Denials remembered at once; the oldest goes first.
_REMEMBERED = 50_000


class _Denial(NamedTuple):
    #: Monotonic seconds.
    until: float
    asked_at: float
    decided_ticks: int
    weighed: Weighed


_denials: dict[tuple[Limit, str, str, int], _Denial] = {}


def find(limits: tuple[Limit, ...], caller: Caller, *, cost: int) -> Decision | None:
    """The refusal of a limit that is known to be out of tokens, or None."""
    if not _denials:
        return None
    now = time.monotonic()
    for limit in limits:
        kind, name = caller.identity(limit.per)
        denial = _denials.get((limit, kind, name, cost))
        if denial is not None and now < denial.until:
            passed = int((now - denial.asked_at) * TICKS_PER_SECOND)
            # Floods are answered here: positions instead of names, and the receipt at once.
            at = denial.decided_ticks + passed
            return Decision(False, (denial.weighed.later(passed),), "denied-cache", cost, at, new_receipt())
    return None


def note(decision: Decision, caller: Caller, *, asked_at: float) -> None:
    """Remember why Redis refused; `asked_at` is the monotonic second before it was asked."""
    for weighed in decision.refusals:
        if weighed.limit.algorithm == "leaky_bucket" or weighed.limit.lease:
            continue  # the one depends on how long the request may be held, the other remembers by itself
        if weighed.wait_ticks is None:
            wait = LONGEST_SECONDS
        else:
            wait = min(LONGEST_SECONDS, weighed.wait_ticks / TICKS_PER_SECOND)
        while len(_denials) >= _REMEMBERED:
            try:
                _denials.pop(next(iter(_denials)), None)
            except (StopIteration, RuntimeError):  # another thread changed the dict meanwhile
                continue
        key = (weighed.limit, *caller.identity(weighed.limit.per), decision.cost)
        _denials[key] = _Denial(asked_at + wait, asked_at, decision.decided_ticks, weighed)


def forget() -> None:
    """Forget everything, because some bucket has more tokens than was known."""
    _denials.clear()


def _forget_other_buckets(*, setting: str, **kwargs: Any) -> None:
    if setting in ("RATELIMIT_APP", "CACHES"):  # another prefix or server has buckets of its own
        forget()


setting_changed.connect(_forget_other_buckets, dispatch_uid="ratelimit_app.denials")
