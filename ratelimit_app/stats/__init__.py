"""What happened lately? The queries behind the pages, answered as values.

    windows     which span, in how coarse buckets
    traffic     allowed, refused and undecided requests over time
    callers     who was hurt most, and how many keys were
    shadows     what limits in shadow would have refused
    limits      which limits refused, on which routes, whom
    keys        what one key got, and why
    outages     when Redis could not be asked, and what happened meanwhile
    times       how long decisions took
    forecast    whom other limits would have refused
    health      what arrived when, and what did not
    rows        where the numbers come from: minutes, hours and days as one

Each answer costs a fixed number of queries, however many keys there are and however long the span
is. Times are UTC. Numbers are exact: a span is summed from minutes where they are not rolled up yet.
"""

from ratelimit_app.stats.callers import (
    NO_KEY,
    OTHERS,
    CallerTraffic,
    keys_active,
    keys_active_by_plan,
    keys_over,
    newest_keys,
    top_callers,
)
from ratelimit_app.stats.forecast import Forecast, can_be_replayed, forecast
from ratelimit_app.stats.health import dropped, newest_data_at
from ratelimit_app.stats.limits import (
    CallerOfLimit,
    LimitTraffic,
    RouteTraffic,
    by_limit,
    by_route,
    callers_of_limit,
)
from ratelimit_app.stats.outages import (
    Outage,
    OutageCaller,
    OutagePart,
    outage_callers,
    outage_limits,
    outage_of,
    outage_window,
    outages,
)
from ratelimit_app.stats.rows import one_look
from ratelimit_app.stats.shadows import Trial, TriedCaller, trials, tried_callers
from ratelimit_app.stats.times import DecisionTimes, decision_times, decision_times_over_time
from ratelimit_app.stats.traffic import Traffic, total, traffic
from ratelimit_app.stats.windows import RANGES, Range, Window, between, window

__all__ = [
    "NO_KEY",
    "OTHERS",
    "RANGES",
    "CallerOfLimit",
    "CallerTraffic",
    "DecisionTimes",
    "Forecast",
    "LimitTraffic",
    "Outage",
    "OutageCaller",
    "OutagePart",
    "Range",
    "RouteTraffic",
    "Traffic",
    "Trial",
    "TriedCaller",
    "Window",
    "between",
    "by_limit",
    "by_route",
    "callers_of_limit",
    "can_be_replayed",
    "decision_times",
    "decision_times_over_time",
    "dropped",
    "forecast",
    "keys_active",
    "keys_active_by_plan",
    "keys_over",
    "newest_data_at",
    "newest_keys",
    "one_look",
    "outage_callers",
    "outage_limits",
    "outage_of",
    "outage_window",
    "outages",
    "top_callers",
    "total",
    "traffic",
    "trials",
    "tried_callers",
    "window",
]
