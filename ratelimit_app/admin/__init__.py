"""What can staff see and do? Plans, keys and recent refusals in Django's admin, and the overview page."""

from ratelimit_app.admin.api_keys import APIKeyAdmin
from ratelimit_app.admin.outages import OutageSpanAdmin
from ratelimit_app.admin.overview import OverviewAdmin
from ratelimit_app.admin.plans import PlanAdmin
from ratelimit_app.admin.refusals import RefusalAdmin

__all__ = ["APIKeyAdmin", "OutageSpanAdmin", "OverviewAdmin", "PlanAdmin", "RefusalAdmin"]
