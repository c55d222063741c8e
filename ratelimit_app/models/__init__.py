"""What is stored? Plans with their limits, API keys, and the rows that usage becomes."""

from ratelimit_app.models.announcements import KeyChange, Version, changed
from ratelimit_app.models.api_keys import APIKey
from ratelimit_app.models.outages import OutageSpan
from ratelimit_app.models.pipeline import (
    Batch,
    DroppedMinute,
    Frontier,
    KeyUse,
    Overview,
    Refusal,
    SetAside,
    Stale,
)
from ratelimit_app.models.plan_limits import PlanLimit
from ratelimit_app.models.plans import Plan
from ratelimit_app.models.usage import (
    DecisionDay,
    DecisionHour,
    DecisionMinute,
    LimitDay,
    LimitHour,
    LimitMinute,
    PlanDay,
    PlanHour,
    PlanMinute,
    RefusalDay,
    RefusalHour,
    RefusalMinute,
    UsageDay,
    UsageHour,
    UsageMinute,
)

__all__ = [
    "APIKey",
    "Batch",
    "DecisionDay",
    "DecisionHour",
    "DecisionMinute",
    "DroppedMinute",
    "Frontier",
    "KeyChange",
    "KeyUse",
    "LimitDay",
    "LimitHour",
    "LimitMinute",
    "OutageSpan",
    "Overview",
    "Plan",
    "PlanDay",
    "PlanHour",
    "PlanLimit",
    "PlanMinute",
    "Refusal",
    "RefusalDay",
    "RefusalHour",
    "RefusalMinute",
    "SetAside",
    "Stale",
    "UsageDay",
    "UsageHour",
    "UsageMinute",
    "Version",
    "changed",
]
