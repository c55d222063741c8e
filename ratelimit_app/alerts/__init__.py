"""Is something wrong that somebody should be told? Episodes, found in the statistics once a minute.

    findings     what is wrong right now, read from the rows
    episodes     findings become episodes, that begin once and end once
    messages     what is sent about them, when, and what became of it
    channels     how an e-mail and a webhook are sent
    words        how an episode is said to people

What stops the evaluation itself (beat or the worker are gone, the database is) cannot be noticed
from in here: ask `evaluated_at()` from outside, through the metrics or a health check.
"""

from ratelimit_app.alerts.episodes import OpenAlert, evaluate, evaluated_at, keys_of, open_alerts, prune
from ratelimit_app.alerts.messages import due, send

__all__ = ["OpenAlert", "due", "evaluate", "evaluated_at", "keys_of", "open_alerts", "prune", "send"]
