"""What has this process decided since it began? Counts that only ever grow, for whoever watches from outside.

Never by caller: how many counts there are depends on the limits, not on the traffic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from ratelimit_app.limits import Decision
from ratelimit_app.usage.tally import LATENCY_BOUNDS

_DECIDED = {True: "allowed", False: "refused"}
_UNDECIDED = {True: "unchecked", False: "failed_closed"}

#: What is counted, and the values of its labels: ("decisions", outcome, source), ("limits", id of the
#: limit, its name, outcome), ("times", bound in microseconds), ("seconds",), ("dropped", kind).
Series = tuple[str, ...]

#: Limits (and names that they had) beyond so many are counted as one.
_MOST = 10_000
_OTHERS = 0, "other"
_SAID = ("passed", "refused", "would_refuse", "unchecked")
_LAST = len(LATENCY_BOUNDS) - 1


class Counters:
    """The counts of one process. Knows no threads: whoever counts holds the lock."""

    def __init__(self) -> None:
        self._decisions: defaultdict[tuple[bool, str], int] = defaultdict(int)
        #: By id and name of a limit, and what it said.
        self._limits: defaultdict[tuple[int, str, str], int] = defaultdict(int)
        for said in _SAID:
            self._limits[(*_OTHERS, said)] = 0
        self._times = [0] * len(LATENCY_BOUNDS)
        self._seconds = 0.0

    def count(self, decision: Decision, seconds: float) -> None:
        """Count one decision, which took so many seconds. About a microsecond."""
        limits, allowed = self._limits, decision.allowed
        self._decisions[allowed, decision.source] += 1
        self._times[min(bisect_left(LATENCY_BOUNDS, seconds * 1e6), _LAST)] += 1
        self._seconds += seconds
        for weighed in decision.weighed:
            limit = weighed.limit
            if weighed.wait_ticks == 0:
                limits[limit.id, limit.name, "passed"] += 1
            elif limit.mode == "enforce":
                limits[limit.id, limit.name, "refused"] += 1
            elif allowed:
                limits[limit.id, limit.name, "would_refuse"] += 1
        for limit in decision.unweighed:
            limits[limit.id, limit.name, "unchecked"] += 1
        while len(limits) > _MOST:
            (_limit_id, _name, said), count = limits.popitem()  # the newest
            limits[(*_OTHERS, said)] += count

    def counts(self) -> dict[Series, float]:
        """All counts so far."""
        found: dict[Series, float] = {("seconds",): self._seconds}
        for (allowed, source), count in self._decisions.items():
            outcome = _UNDECIDED[allowed] if source == "unchecked" else _DECIDED[allowed]
            found["decisions", outcome, source] = count
        for (limit_id, name, said), count in self._limits.items():
            if count:
                found["limits", str(limit_id), name, said] = count
        found |= {("times", str(bound)): count for bound, count in zip(LATENCY_BOUNDS, self._times, strict=True)}
        return found
