"""What would happen if Redis were slow or gone? Tried out in one process, which alone is made to believe it.

detour      a way to the real Redis that can be blocked
exercise    checks before, during and after, and what became of them
"""

from ratelimit_app.drill.detour import Detour, NoDetour
from ratelimit_app.drill.exercise import Exercise, LimitReport, Phase, Report, Unfit

__all__ = ["Detour", "Exercise", "LimitReport", "NoDetour", "Phase", "Report", "Unfit"]
