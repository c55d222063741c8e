"""Limits how fast each caller may use an API, across a fleet of servers.

A request's life, and the module that knows each step:

    middleware, throttling, decorators   the doors: an HTTP request comes in, an answer goes out
    admission                            the path of one request through a door
    routes, callers, addresses           what the view asks, who is asking, from where
    authentication, permissions          the same for DRF
    key_cache, plan_cache                whose key it is, which limits apply; from memory
    limiter                              check(): the whole decision on one page. READ FIRST
    buckets, lua/                        many limits weighed and charged by one script call
    asking, names                        buckets that live apart, each asked; what a bucket is called
    algorithms, local_buckets            how each algorithm counts; the script's twin in memory
    denials, breaker, fallback           known to be out of tokens; is Redis worth asking; what if it is not
    debts                                what Redis last said; told again to a server that forgot it
    leases                               tokens taken ahead of time, spent without asking Redis
    connections                          how Redis is reached
    responses                            a decision as headers and problem bodies
    usage, shipping                      counts in memory; batches onto the queue
    tasks, recording/                    a batch becomes rows, exactly once; minutes become hours and days
    resolutions                          in which rows a moment is counted
    ending                               what a process does before it ends
    pacing                               tasks and scripts that wait for their turn
    stats/, pages, admin, templatetags   what people on call look at; plans and keys to edit
    alerts                               what is wrong, who is told, and when it is over
    metrics                              the same for Prometheus and OpenTelemetry
    changes                              an edit reaches every process
    limits, keys, models/                the values, the key's text, the rows
    conf, checks                         the settings, and what can be wrong with them
    drill/                               what an outage of Redis would do, tried in one process
    testing                              a clean limiter between the tests of your project
"""

from __future__ import annotations

__all__ = ["allow"]


def allow(key: str, *, scope: str = "", cost: int = 1) -> bool:
    """Whether the caller with this key may make a request now; charges it if so.

    `key` is the text that a caller sends, `cost` is in tokens. False for a key that is unknown,
    expired or revoked. When Redis is down, what the limits say: True for those that stay open.
    """
    # Imported here: a package that imports its models cannot be named in INSTALLED_APPS.
    from ratelimit_app import key_cache, limiter

    known = key_cache.find(key)
    return known is not None and limiter.check(known.caller, scope=scope, cost=cost).allowed
