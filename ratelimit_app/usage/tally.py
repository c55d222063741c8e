"""What is counted of a decision? A row per caller and minute, of refusals more, and a sample of them in full.

Knows no threads: whoever counts holds the lock. At most `size` distinct rows are held; what no
longer fits is counted in rows named "*", and what not even they can take is counted as dropped.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from ratelimit_app.limits import Caller, Decision
from ratelimit_app.models.usage import OVERFLOW

#: Upper bounds, in microseconds, of the histogram of decision times; the last takes all that was slower.
LATENCY_BOUNDS = (
    *(10, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 7_000),
    *(10_000, 15_000, 20_000, 30_000, 50_000, 70_000, 100_000, 200_000, 500_000, 1_000_000, 60_000_000),
)

#: Refusals kept in full: so many at once, and so many a second after that. All are counted.
_SAMPLE_BURST = 200.0
_SAMPLES_PER_SECOND = 20.0
_ROWS_IN_A_BATCH = 500
_KEYS_REMEMBERED = 100_000
#: How many counts a row of each table ends with, and their places in it.
_WIDTHS = {"usage": 6, "refusals": 5, "decisions": 1}
_ALLOWED, _REFUSED, _WOULD_REFUSE, _UNCHECKED, _FAILED_CLOSED, _LOCAL = range(6)
_LIMIT_REFUSED, _LIMIT_WOULD_REFUSE, _LIMIT_UNCHECKED, _LIMIT_FAILED_CLOSED, _LIMIT_LOCAL = range(5)

_RowKey = tuple[Any, ...]
Batch = dict[str, Any]


class Tally:
    """What a process has counted and not yet put into a batch."""

    def __init__(self, size: int) -> None:
        self.size = size
        #: Counts by table name and key.
        self.rows: dict[_RowKey, list[int]] = {}
        self.samples: deque[list[Any]] = deque()
        #: By kind, since the process began: the name of the table whose totals are short of so many;
        #: or "samples", counted but not kept in full; or "key_uses", not noted.
        self.dropped: Counter[str] = Counter()
        self._unshipped_drops: Counter[str] = Counter()
        #: Rows that were refused something: they leave at once.
        self._urgent: set[_RowKey] = set()
        self._samples_allowed = _SAMPLE_BURST
        self._sampled_at = 0.0
        self._key_uses: dict[int, int] = {}
        self._keys_seen: set[int] = set()
        self._keys_minute = 0

    def count(self, decision: Decision, caller: Caller, route: str, method: str, seconds: float, at: float) -> None:
        """Count one decision, made at `at`, in seconds since 1970."""
        minute = int(at) // 60 * 60
        would_refuse = decision.would_refuse
        if decision.source == "unchecked":
            outcome = _UNCHECKED if decision.allowed else _FAILED_CLOSED
        else:
            outcome = _ALLOWED if decision.allowed else _REFUSED
        urgent = bool(would_refuse) or not decision.allowed
        row_key = self._add("usage", minute, caller.bucket_identity, caller.plan_id, place=outcome, urgent=urgent)
        if would_refuse and row_key:
            self.rows[row_key][_WOULD_REFUSE] += 1
        if decision.source == "local" and row_key:
            self.rows[row_key][_LOCAL] += 1
        bound = LATENCY_BOUNDS[min(bisect_left(LATENCY_BOUNDS, seconds * 1e6), len(LATENCY_BOUNDS) - 1)]
        self._add("decisions", minute, bound, place=0, urgent=False)
        if caller.key_id:
            self._note_key_use(caller.key_id, minute)
        if urgent:
            self._count_by_limit(decision, caller, storable(route, 200), minute)
        if decision.unweighed or decision.source == "local":
            self._count_without_redis(decision, caller, minute)
        if not decision.allowed:
            self._sample(decision, caller, route, method, at)

    def drop(self, kind: str, count: int = 1) -> None:
        """Take note that records could not be kept."""
        self.dropped[kind] += count
        self._unshipped_drops[kind] += count

    def freeze(self, *, everything: bool, outages: Iterable[list[Any]] = ()) -> list[Batch]:
        """Take out what is urgent, or everything, as batches: an id, and a list of rows per table.

        `outages` are rows that go along.
        """
        row_keys = list(self.rows if everything else self._urgent)
        counted = [(row_key[0], [*row_key[1:], *self.rows.pop(row_key)]) for row_key in row_keys]
        self._urgent.clear()
        counted += [("outages", span) for span in outages]
        counted += [("samples", sample) for sample in self.samples]
        self.samples.clear()
        if everything:
            counted += [("key_uses", [key_id, minute]) for key_id, minute in self._key_uses.items()]
            self._key_uses.clear()
        minute = int(time.time()) // 60 * 60
        counted += [("dropped", [minute, kind, count]) for kind, count in self._unshipped_drops.items()]
        self._unshipped_drops.clear()
        batches = []
        for start in range(0, len(counted), _ROWS_IN_A_BATCH):
            batch: Batch = {"id": str(uuid.uuid4())}
            for table, row in counted[start : start + _ROWS_IN_A_BATCH]:
                batch.setdefault(table, []).append(row)
            batches.append(batch)
        return batches

    def _add(self, table: str, *key: Any, place: int, urgent: bool) -> _RowKey | None:
        """Add one to a row, or to the row for all that no longer fits. Returns the key of that row."""
        row_key: _RowKey = (table, *key)
        row = self.rows.get(row_key)
        if row is None:
            if len(self.rows) >= self.size:
                row_key = _overflow(row_key)
                row = self.rows.get(row_key)
            if row is None:
                # The rows named "*" and the histogram grow with the minutes of an outage, so they
                # have a bound as well.
                if len(self.rows) >= 2 * self.size + len(LATENCY_BOUNDS):
                    self.drop(table)
                    return None
                row = self.rows[row_key] = [0] * _WIDTHS[table]
        row[place] += 1
        if urgent:
            self._urgent.add(row_key)
        return row_key

    def _count_by_limit(self, decision: Decision, caller: Caller, route: str, minute: int) -> None:
        identity = caller.bucket_identity
        for weighed in decision.would_refuse:
            self._add("refusals", minute, identity, weighed.limit.id, route, place=_LIMIT_WOULD_REFUSE, urgent=True)
        # Of several limits that refused the one that the caller is told, so that both tables add up
        # to the same. What failed closed was refused by none.
        limit = decision.refused_by
        if limit is not None and decision.source != "unchecked":
            self._add("refusals", minute, identity, limit.id, route, place=_LIMIT_REFUSED, urgent=True)

    def _count_without_redis(self, decision: Decision, caller: Caller, minute: int) -> None:
        """What each limit did while Redis could not be asked; without the route: in an outage that is every request."""
        undecided: list[tuple[int, int]] = []
        if decision.source == "local":
            undecided += [(weighed.limit.id, _LIMIT_LOCAL) for weighed in decision.weighed]
        if decision.allowed:
            undecided += [(limit.id, _LIMIT_UNCHECKED) for limit in decision.unweighed]
        elif decision.source == "unchecked" and decision.refused_by is not None:
            undecided.append((decision.refused_by.id, _LIMIT_FAILED_CLOSED))
        for limit_id, place in undecided:
            self._add(
                "refusals", minute, caller.bucket_identity, limit_id, "", place=place, urgent=not decision.allowed
            )

    def _note_key_use(self, key_id: int, minute: int) -> None:
        """Have a key's last use written, once a minute; one that was forgotten is just written again."""
        if minute > self._keys_minute or len(self._keys_seen) >= _KEYS_REMEMBERED:
            self._keys_seen.clear()
            self._keys_minute = minute
        if key_id in self._keys_seen:
            return
        if len(self._key_uses) >= self.size and key_id not in self._key_uses:
            self.drop("key_uses")
            return
        self._keys_seen.add(key_id)
        self._key_uses[key_id] = minute

    def _sample(self, decision: Decision, caller: Caller, route: str, method: str, at: float) -> None:
        passed = max(0.0, at - self._sampled_at)
        self._samples_allowed = min(_SAMPLE_BURST, self._samples_allowed + passed * _SAMPLES_PER_SECOND)
        self._sampled_at = at
        if self._samples_allowed < 1:
            self.drop("samples")
            return
        self._samples_allowed -= 1
        if len(self.samples) >= self.size:  # an outage of the broker: the recent ones are worth more
            self.samples.popleft()
            self.drop("samples")
        limit = decision.refused_by
        self.samples.append(
            [
                decision.receipt or str(uuid.uuid4()),
                at,
                caller.bucket_identity,
                caller.key_id,
                caller.plan_id,
                limit.id if limit else 0,
                storable(limit.name if limit else "", 50),
                storable(route, 200),
                storable(method, 10),
                storable(caller.address, 64),
                decision.cost,
                decision.retry_after_seconds or 0,
            ]
        )


def storable(text: str, length: int) -> str:
    """Text as any database takes it: no NUL, no lone surrogate, no more than `length` characters."""
    return text[:length].replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def _overflow(row_key: _RowKey) -> _RowKey:
    match row_key:
        case ("usage", minute, _, _):
            return "usage", minute, OVERFLOW, 0
        case ("refusals", minute, _, limit_id, _):
            return "refusals", minute, OVERFLOW, limit_id, OVERFLOW
    return row_key
