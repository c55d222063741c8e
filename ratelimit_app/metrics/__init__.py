"""How does the limiter do, for a monitoring system? Counts and states, never by caller.

    reading        what there is to tell, of this process or of all on this machine
    prometheus     as Prometheus asks for it (needs prometheus-client)
    views          at a URL, for those who may read it
    telemetry      as OpenTelemetry collects it (needs opentelemetry-api)

Nothing is counted in a request for this: `usage` counts behind it what it has recorded anyway.
"""

from __future__ import annotations

__all__ = ["connect"]


def connect() -> None:
    """Tell the buffer how a process stands, and OpenTelemetry where to ask. Called once, when Django starts."""
    from ratelimit_app.metrics import reading
    from ratelimit_app.usage import sharing

    sharing.read_gauges = reading.own_gauges
    try:
        from ratelimit_app.metrics import telemetry
    except ImportError:  # its API is not installed
        return
    telemetry.connect()
