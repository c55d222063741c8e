"""What is stored? Plans with their limits, API keys, and the rows that usage becomes."""

from ratelimit_app.models.alerts import AlertMessage, Episode, Evaluation
from ratelimit_app.models.announcements import KeyChange, Version, changed
from ratelimit_app.models.api_keys import APIKey
from ratelimit_app.models.key_life import NotRotatable
from ratelimit_app.models.plan_limits import PlanLimit
from ratelimit_app.models.plans import Plan
from ratelimit_app.models.usage import (
    Batch,
    DecisionMinute,
    DroppedMinute,
    KeyUse,
    Overview,
    Refusal,
    RefusalMinute,
    SetAside,
    UsageMinute,
)

__all__ = [
    "APIKey",
    "AlertMessage",
    "Batch",
    "DecisionMinute",
    "DroppedMinute",
    "Episode",
    "Evaluation",
    "KeyChange",
    "KeyUse",
    "NotRotatable",
    "Overview",
    "Plan",
    "PlanLimit",
    "Refusal",
    "RefusalMinute",
    "SetAside",
    "UsageMinute",
    "Version",
    "changed",
]
