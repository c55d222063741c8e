"""What is a limit, who asks, and what is the answer? The values that everything exchanges.

Pure: no Django, no I/O. Time inside a bucket is counted in ticks of 100 ns, as whole numbers, so
that Python and Lua agree to the last digit.
"""

from ratelimit_app.limits.caller import Caller
from ratelimit_app.limits.decision import Decision, Level, Source, Weighed, new_receipt
from ratelimit_app.limits.limit import (
    EPOCH_SECONDS,
    LEASE_TICKS,
    MAX_BURST,
    MAX_FILL_SECONDS,
    MAX_LOGGED,
    MAX_REQUESTS,
    MAX_SLIDING_PRODUCT,
    TICKS_PER_MILLISECOND,
    TICKS_PER_SECOND,
    Algorithm,
    Limit,
    Mode,
    OnFailure,
    Per,
)

__all__ = [
    "EPOCH_SECONDS",
    "LEASE_TICKS",
    "MAX_BURST",
    "MAX_FILL_SECONDS",
    "MAX_LOGGED",
    "MAX_REQUESTS",
    "MAX_SLIDING_PRODUCT",
    "TICKS_PER_MILLISECOND",
    "TICKS_PER_SECOND",
    "Algorithm",
    "Caller",
    "Decision",
    "Level",
    "Limit",
    "Mode",
    "OnFailure",
    "Per",
    "Source",
    "Weighed",
    "new_receipt",
]
