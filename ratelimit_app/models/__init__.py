"""What is stored? Plans with their limits, API keys, and the rows that usage becomes."""

from ratelimit_app.models.alerts import AlertMessage, Episode, Evaluation
from ratelimit_app.models.announcements import KeyChange, Version, changed
from ratelimit_app.models.api_keys import APIKey
from ratelimit_app.models.key_life import NotRotatable
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
from ratelimit_app.models.plan_versions import PlanVersion, record_versions
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
    "AlertMessage",
    "Batch",
    "DecisionDay",
    "DecisionHour",
    "DecisionMinute",
    "DroppedMinute",
    "Episode",
    "Evaluation",
    "Frontier",
    "KeyChange",
    "KeyUse",
    "LimitDay",
    "LimitHour",
    "LimitMinute",
    "NotRotatable",
    "OutageSpan",
    "Overview",
    "Plan",
    "PlanDay",
    "PlanHour",
    "PlanLimit",
    "PlanMinute",
    "PlanVersion",
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
    "record_versions",
]
