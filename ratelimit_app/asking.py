"""What if the buckets of one decision live on several nodes, and one of those does not answer?

The others decide, and the limits that nobody weighed are left to what they say themselves. No node
is asked again that failed a moment ago, or that the breaker says is not to be asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ratelimit_app import connections
from ratelimit_app.limits import Decision, Limit

logger = logging.getLogger("ratelimit_app")

#: Limits whose buckets live together, and the name of one of those.
Part = tuple[bytes, tuple[Limit, ...]]


class PartlyDecided(connections.Unavailable):
    """Some nodes of the cluster could not decide."""

    def __init__(self, decided: Decision | None, failures: list[tuple[Part, connections.Unavailable]]) -> None:
        first = failures[0][1]
        super().__init__(first.reason, str(first))
        self.node = first.node
        #: What the other nodes decided: a refusal stands, whatever the rest says. None when none of them did.
        self.decided = decided
        self.undecided = tuple(limit for (_name, limits), _failure in failures for limit in limits)
        self._failures = tuple(failure for _part, failure in failures)

    @property
    def each(self) -> tuple[connections.Unavailable, ...]:
        return self._failures


class Asking:
    """One decision, while one part after the other is asked."""

    def __init__(self, parts: list[Part], *, insist: bool = False, dry: bool = False) -> None:
        """`insist` asks every node, whatever the breaker says; `dry` asks about every part, whatever was refused."""
        #: What the parts before decided together.
        self.taken: Decision | None = None
        self._parts, self._insist, self._dry = parts, insist, dry
        self._asked = parts[0]
        self._failures: list[tuple[Part, connections.Unavailable]] = []

    def parts(self) -> Iterator[tuple[Limit, ...]]:
        """The limits to ask about next, until one refuses."""
        for part in self._parts:
            if self.taken is not None and not self.taken.allowed and not self._dry:
                return
            self._asked = part
            try:
                self._demand_asked(part[0])
            except connections.Unavailable as failure:
                self.failed(failure)
            else:
                yield part[1]

    def failed(self, failure: connections.Unavailable) -> None:
        """The part that was asked could not be decided."""
        self._failures.append((self._asked, failure))

    def decided(self, later: Decision) -> None:
        """The part that was asked was decided."""
        before = self.taken
        self.taken = later if before is None else later.after(before)
        if before is not None and not before.allowed:
            taken = self.taken
            self.taken = Decision(False, taken.weighed, cost=taken.cost, decided_ticks=taken.decided_ticks)

    def regret(self, failure: connections.Unavailable) -> None:
        """What the parts before took could not be given back."""
        logger.warning("A refused request keeps the charge of an earlier limit: %s", str(failure))

    def answer(self) -> Decision:
        """The decision over all parts. Raises connections.Unavailable when one of those that were asked failed."""
        if self.taken is not None and not self._failures:
            return self.taken
        if len(self._parts) == 1:
            raise self._failures[0][1]
        raise PartlyDecided(self.taken, self._failures)

    def _demand_asked(self, name: bytes) -> None:
        if self._insist or not (self._failures or connections.shunned):
            return
        connections.demand_asked(name)
        node = connections.node_of(name)
        for _part, failure in self._failures:
            if failure.node == node:
                raise failure
