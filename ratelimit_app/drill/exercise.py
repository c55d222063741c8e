"""What became of requests before, while and after this process believed that Redis was slow or gone?

The requests are made up: callers that nobody else is, on the plans to be tried, or named keys, which
then spend their own tokens. What limits per everyone grant is taken from everyone.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ratelimit_app import conf, fallback, limiter, plan_cache, usage
from ratelimit_app.drill.detour import Detour
from ratelimit_app.limits import Caller, Decision
from ratelimit_app.models import PlanLimit

#: How long limiting may take to resume before the drill says that it does not.
RESUMES_WITHIN_SECONDS = 30.0
_BEFORE_SECONDS = 1.0
_AFTER_SECONDS = 1.0
#: An address that is nobody's: reserved for documentation.
_ADDRESS = "192.0.2.1"


class Unfit(Exception):
    """The drill cannot be held; the message says why."""


@dataclass(slots=True)
class Phase:
    """What one limit did in one part of the drill."""

    decisions: int = 0
    #: Who weighed it: Redis (or what it had said), this process's memory, nobody and the request passed.
    by_redis: int = 0
    from_memory: int = 0
    unchecked: int = 0
    #: Of the requests it covers: let through; refused by it with 429; answered 503 because of it.
    allowed: int = 0
    refused: int = 0
    failed_closed: int = 0
    longest_seconds: float = 0.0


@dataclass(slots=True)
class LimitReport:
    """What one limit did."""

    plan: str
    limit: str
    mode: str
    on_failure: str
    before: Phase = field(default_factory=Phase)
    during: Phase = field(default_factory=Phase)
    after: Phase = field(default_factory=Phase)


@dataclass(slots=True)
class Report:
    """What happened in a drill."""

    #: Where Redis really is.
    place: str
    seconds: float
    #: None when it was gone.
    slow_by_seconds: float | None
    #: From the beginning until the first request that did not ask Redis; None when all were asked.
    noticed_after_seconds: float | None = None
    #: From the end until the first request that Redis decided; None when it never stopped deciding.
    resumed_after_seconds: float | None = None
    #: The gateways among which a local limit is shared.
    gateways: int = 1
    failures: list[str] = field(default_factory=list)
    limits: list[LimitReport] = field(default_factory=list)


class Question(NamedTuple):
    """One kind of request, asked again and again."""

    caller: Caller
    scope: str
    method: str


class Exercise:
    """A drill in this process."""

    def __init__(
        self,
        questions: Sequence[Question],
        *,
        seconds: float,
        per_second: float,
        slow_by_seconds: float | None = None,
        is_counted: bool = False,
    ) -> None:
        """`per_second` requests go through all questions in turn; `is_counted` sends them to the statistics."""
        if not questions:
            raise Unfit("No plan with a limit was chosen: there is nothing to try.")
        if conf.current().mode == "off":
            raise Unfit('RATELIMIT_APP["MODE"] is "off": nothing is limited, so there is nothing to try.')
        self._questions = itertools.cycle(questions)
        self._seconds, self._per_second = seconds, per_second
        self._slow_by_seconds, self._is_counted = slow_by_seconds, is_counted
        self._by_limit: dict[int, LimitReport] = {}

    def hold(self, *, tell: Callable[[str], None] = lambda line: None) -> Report:
        """Hold the drill; `tell` gets a line for each part. Raises Unfit, and NoDetour."""
        if not self._is_counted:
            usage.keep_to_itself()
        try:
            with Detour() as way:
                return self._hold(way, tell)
        finally:
            if not self._is_counted:
                usage.reset()
            limiter.reset_breaker()

    def _hold(self, way: Detour, tell: Callable[[str], None]) -> Report:
        report = Report(place=way.place, seconds=self._seconds, slow_by_seconds=self._slow_by_seconds)
        tell(f"Redis at {way.place} as it is, for {_BEFORE_SECONDS:g} s ...")
        before = list(self._ask("before", until=time.monotonic() + _BEFORE_SECONDS))
        if not any(decision.source == "redis" for decision in before):
            why = next((decision.failure for decision in before if decision.failure), "nothing was weighed")
            raise Unfit(f"Redis does not decide even now ({why}): this would be no drill.")

        began = time.monotonic()
        if self._slow_by_seconds is None:
            tell(f"Redis is gone for {self._seconds:g} s, for this process alone ...")
            way.shut()
        else:
            tell(f"Redis is slow by {self._slow_by_seconds * 1000:g} ms for {self._seconds:g} s, here alone ...")
            way.slow_down(self._slow_by_seconds)
        failures: dict[str, None] = {}
        for decision in self._ask("during", until=began + self._seconds):
            if decision.failure and report.noticed_after_seconds is None:
                report.noticed_after_seconds = time.monotonic() - began
            if decision.failure:
                failures[decision.failure] = None
        report.failures, report.gateways = list(failures), fallback.fleet_size()

        ended = time.monotonic()
        tell("Redis is back ...")
        way.open()
        for decision in self._ask("after", until=ended + RESUMES_WITHIN_SECONDS):
            if not decision.failure and report.resumed_after_seconds is None:
                report.resumed_after_seconds = time.monotonic() - ended
            if report.resumed_after_seconds is not None and time.monotonic() > ended + _AFTER_SECONDS:
                break
        else:
            if report.resumed_after_seconds is None:
                raise Unfit(f"Limiting did not resume within {RESUMES_WITHIN_SECONDS:g} s of Redis being back.")
        if report.noticed_after_seconds is None:
            report.resumed_after_seconds = None
        report.limits = sorted(self._by_limit.values(), key=lambda row: (row.plan, row.limit))
        return report

    def _ask(self, phase: str, *, until: float) -> Iterator[Decision]:
        """Ask at an even pace; a slow answer delays those after it, and is not made up for."""
        while time.monotonic() < until:
            question, began = next(self._questions), time.monotonic()
            decision = limiter.check(question.caller, scope=question.scope, method=question.method, route="(drill)")
            seconds = time.monotonic() - began
            self._count(phase, decision, seconds)
            yield decision
            time.sleep(max(0.0, min(until - time.monotonic(), 1 / self._per_second - seconds)))

    def _count(self, phase: str, decision: Decision, seconds: float) -> None:
        refused_by = decision.refused_by
        for weighed in decision.weighed:
            counts = self._phase(weighed.limit.id, phase)
            counts.decisions += 1
            counts.by_redis += decision.source != "local"
            counts.from_memory += decision.source == "local"
            counts.longest_seconds = max(counts.longest_seconds, seconds)
            counts.allowed += decision.allowed
            counts.refused += refused_by is not None and refused_by.id == weighed.limit.id
        for limit in decision.unweighed:
            counts = self._phase(limit.id, phase)
            counts.decisions += 1
            counts.unchecked += decision.allowed
            counts.longest_seconds = max(counts.longest_seconds, seconds)
            counts.allowed += decision.allowed
            counts.failed_closed += refused_by is not None and refused_by.id == limit.id

    def _phase(self, limit_id: int, phase: str) -> Phase:
        if limit_id not in self._by_limit:
            row = PlanLimit.objects.select_related("plan").get(pk=limit_id)
            self._by_limit[limit_id] = LimitReport(row.plan.slug, row.name, row.mode, row.on_failure)
        found: Phase = getattr(self._by_limit[limit_id], phase)
        return found


def made_up(plan_id: int, *, has_key: bool) -> Caller:
    """A caller on a plan that nobody else is: no other caller's buckets are touched."""
    identity = f"drill-{secrets.token_hex(5)}" if has_key else ""
    return Caller(plan_id=plan_id if has_key else 0, bucket_identity=identity, address=_ADDRESS)


def questions_of(caller: Caller) -> list[Question]:
    """A kind of request for each scope and method that the caller's limits tell apart."""
    table = plan_cache.table()
    limits = (*table.everyone, *table.limits.get(table.plan_id(caller), ()))
    kinds = {(limit.scope, limit.methods[0] if limit.methods else "GET") for limit in limits}
    return [Question(caller, scope, method) for scope, method in sorted(kinds)]
