"""May this HttpRequest pass? The one path of the middleware and the decorator, sync and async.

A caller whose key is in memory is decided in one trip. A stranger meets the limits per address
first: they stand in front of the one query that a look-up may cost, and in front of every 401.
"""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError  # InterfaceError is one too
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ratelimit_app import callers, changes, conf, key_cache, limiter, plan_cache, responses, routes
from ratelimit_app.limits import Caller, Decision


class _Visit:
    """One request at a door: what is known of its caller so far."""

    def __init__(self, request: HttpRequest, rule: routes.Rule | None) -> None:
        changes.watch()
        self.request = request
        self.rule = rule or routes.Rule()
        self.is_asked = rule is not None and rule.is_early
        self.credential = callers.credential(request) if self.is_asked else None
        self._known, self.is_warm = key_cache.cached(self.credential or "")
        #: Whose plan decides, once that is known.
        self.caller: Caller | None = None
        #: The same request as one of nobody we know, or of a session's user.
        self.stranger = callers.without_key(request)
        self.turned_away: HttpResponse | None = None

    @property
    def is_anonymous_welcome(self) -> bool:
        return self.is_asked and self.credential is None and self.rule.key == "optional" and not self.rule.is_drf

    def identify(self) -> None:
        """Find out whose plan decides, or how to turn the caller away; at most one query."""
        if not self.is_asked:
            return
        try:
            if self.credential is not None:
                known = self._known if self.is_warm else key_cache.find(self.credential)
                self.caller = callers.with_key(self.request, known) if known else None
            elif self.is_anonymous_welcome and plan_cache.welcomes(self.stranger, scope=self.rule.scope):
                self.caller = self.stranger
        except DatabaseError:
            self.turned_away = responses.unavailable()
            return
        if self.caller is None and not self.rule.is_drf:  # DRF turns away in its own words
            self.turned_away = responses.unauthorized()

    def question(self, *, only_address: bool) -> dict[str, Any]:
        """The arguments of `limiter.check`."""
        return {
            "caller": self.stranger if only_address else self.caller,
            "scope": self.rule.scope,
            "cost": self.rule.cost,
            "earlier": callers.decision_on(self.request),
            "only_address": only_address,
            "route": routes.route_of(self.request),
            "method": self.request.method or "",
        }

    def answer(self, decision: Decision) -> HttpResponse | None:
        """Leave the decision on the request; the response when it is a refusal."""
        callers.leave_decision(self.request, decision)
        return None if decision.allowed else responses.refusal(decision)


def admit(request: HttpRequest, rule: routes.Rule | None) -> HttpResponse | None:
    """Decide a request by the rule of its view; the response when it may not pass.

    Without a rule, and where only DRF can tell the caller, it meets the limits per address alone.
    """
    visit = _Visit(request, rule)
    if visit.is_anonymous_welcome:
        visit.stranger = callers.without_key(request, getattr(request, "user", None))
    if visit.is_warm:
        visit.identify()
    if visit.caller is None:
        refusal = visit.answer(limiter.check(**visit.question(only_address=True)))
        if refusal is None and not visit.is_warm:
            visit.identify()
        if refusal or visit.caller is None:
            return refusal or visit.turned_away
    return visit.answer(limiter.check(**visit.question(only_address=False)))


async def aadmit(request: HttpRequest, rule: routes.Rule | None) -> HttpResponse | None:
    """`admit` for async code; a thread is used only while the caches are cold."""
    if not plan_cache.is_warm():
        await _warm_plans()
    visit = _Visit(request, rule)
    if visit.is_anonymous_welcome and hasattr(request, "auser"):  # `user` would query the database right here
        visit.stranger = callers.without_key(request, await request.auser())
    if visit.is_warm:
        visit.identify()
    if visit.caller is None:
        refusal = visit.answer(await _ahold(visit.question(only_address=True)))
        if refusal is None and not visit.is_warm:
            await sync_to_async(visit.identify)()
        if refusal or visit.caller is None:
            return refusal or visit.turned_away
    return visit.answer(await _ahold(visit.question(only_address=False)))


async def _ahold(question: dict[str, Any]) -> Decision:
    """Decide, and hold an allowed request until it is its turn in a leaky bucket."""
    decision = await limiter.acheck(**question, patience_seconds=conf.current().longest_hold_seconds)
    if decision.delay_seconds:
        await asyncio.sleep(decision.delay_seconds)
    return decision


def finish(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Write the decision that was made for a request onto its response, and count it if nobody did."""
    decision = callers.decision_on(request)
    if decision is None:
        return response
    if decision.provisional:
        limiter.count(
            decision, callers.without_key(request), route=routes.route_of(request), method=request.method or ""
        )
    responses.write(response, decision)
    return response


@sync_to_async
def _warm_plans() -> None:
    try:
        plan_cache.table()
    except DatabaseError:
        pass  # `acheck` meets the same failure, and its answer to it is the right one
