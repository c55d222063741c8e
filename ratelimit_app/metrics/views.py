"""Where are the metrics read, and by whom? At a URL of your choice, by who has the token or comes from the networks."""

from __future__ import annotations

import hmac
from ipaddress import ip_network

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from ratelimit_app import addresses, conf


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scrape: `path("metrics", metrics)`. 403 for who may not read it; without a setting that is everybody."""
    # Imported here: the app works without prometheus-client, which only this view needs.
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    from ratelimit_app.metrics.prometheus import Collector

    if not _may_read(request):
        text = "Set METRICS_TOKEN or METRICS_NETWORKS to read this.\n"
        return HttpResponse(text, status=403, content_type="text/plain; charset=utf-8")
    registry = CollectorRegistry()
    registry.register(Collector())
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    response = HttpResponse(encode(registry), content_type=content_type)
    response["Cache-Control"] = "no-store"
    return response


# What `decorators.exempt` would set: a limiter that refuses everybody must not hide it.
metrics.ratelimit_exempt = True  # type: ignore[attr-defined]


def _may_read(request: HttpRequest) -> bool:
    settings = conf.current()
    scheme, _space, token = request.headers.get("Authorization", "").partition(" ")
    if settings.metrics_token and scheme.lower() == "bearer":
        return hmac.compare_digest(token.strip().encode(), settings.metrics_token.encode())
    client = addresses.client_address(request.META, ipv6_prefix=128)
    if not client:
        return False
    address = ip_network(client).network_address
    return any(address in ip_network(network, strict=False) for network in settings.metrics_networks)
