"""Whom do we measure ourselves with? The limiters that Django projects use, each on the same server and limit.

Each is made by a function of the server's URL and a limit, and returns its attempt: a function of
the caller's number that says whether the request may pass. Those that decide inside a request get one.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import redis

from bench.rounds import Attempt

AsyncAttempt = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Rival:
    """Another limiter, used as its documentation says."""

    name: str
    make: Callable[[str, int], Attempt]
    #: What it promises for the bound: "bucket" burst + rate * T, "window" so many per window.
    kind: str


def all_rivals() -> list[Rival]:
    """Every other limiter, cores first, then those that need a request."""
    return [
        Rival("limits, fixed window", _limits("FixedWindowRateLimiter"), "window"),
        Rival("limits, sliding counter", _limits("SlidingWindowCounterRateLimiter"), "window"),
        Rival("limits, moving window", _limits("MovingWindowRateLimiter"), "window"),
        Rival("throttled-py, token bucket", _throttled("token_bucket"), "bucket"),
        Rival("throttled-py, GCRA", _throttled("gcra"), "bucket"),
        Rival("pyrate-limiter, log", _pyrate_log, "window"),
        Rival("pyrate-limiter, GCRA", _pyrate_gcra, "bucket"),
        Rival("smart-ratelimit, token bucket", _smart_core, "bucket"),
        Rival("drf-ratelimit-plus, token bucket", _plus_core, "bucket"),
        Rival("smart-ratelimit, DRF throttle", _smart_throttle, "bucket"),
        Rival("drf-ratelimit-plus, DRF throttle", _plus_throttle, "bucket"),
        Rival("django-ratelimit", _django_ratelimit, "window"),
        Rival("DRF's throttle on django-redis", _drf("default"), "window"),
        Rival("DRF's throttle on Django's cache", _drf("django"), "window"),
    ]


def ping(url: str) -> Attempt:
    """The measure of all: one PING through redis-py's own pool."""
    client = redis.Redis.from_url(url)
    return lambda _number: client.ping()


def bare_script(url: str) -> Attempt:
    """The limit: a script that does nothing, over a bare socket."""
    with redis.Redis.from_url(url) as client:
        sha = client.script_load("return 1")
    question = b"*3\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n0\r\n" % sha.encode()
    return bare(url, lambda _number: question)


def bare(url: str, question: Callable[[int], bytes]) -> Attempt:
    """One system call to send, one to receive, and nobody looks at the reply."""
    at = urlsplit(url)
    connection = socket.create_connection((at.hostname or "127.0.0.1", at.port or 6379))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def attempt(number: int) -> bytes:
        connection.sendall(question(number))
        return connection.recv(256)

    return attempt


# --- Cores -------------------------------------------------------------------------------------


def _limits(strategy: str) -> Callable[[str, int], Attempt]:
    def make(url: str, requests: int) -> Attempt:
        from limits import RateLimitItemPerMinute, storage, strategies

        limiter = getattr(strategies, strategy)(storage.RedisStorage(url, key_prefix=strategy))
        item = RateLimitItemPerMinute(requests)
        return lambda number: limiter.hit(item, f"caller{number}")

    return make


def _throttled(algorithm: str) -> Callable[[str, int], Attempt]:
    def make(url: str, requests: int) -> Attempt:
        from throttled import RedisStore, Throttled, per_min

        throttle = Throttled(using=algorithm, quota=per_min(requests, burst=requests), store=RedisStore(server=url))
        return lambda number: not throttle.limit(f"caller{number}").limited

    return make


def _unwatched(bucket: Any) -> Any:
    """A bucket without the thread that clears old entries away: one for each caller would be all that is measured."""
    from pyrate_limiter import SingleBucketFactory

    return SingleBucketFactory(bucket, schedule_leak=False)


def _pyrate_log(url: str, requests: int) -> Attempt:
    from pyrate_limiter import Duration, Limiter, Rate, RedisBucket

    client, rates = redis.Redis.from_url(url), [Rate(requests, Duration.MINUTE)]
    limiters: dict[int, Any] = {}

    def attempt(number: int) -> object:
        limiter = limiters.get(number)
        if limiter is None:
            limiter = limiters[number] = Limiter(_unwatched(RedisBucket.init(rates, client, f"pyrate:{number}")))
        return limiter.try_acquire("request", blocking=False)

    return attempt


def _pyrate_gcra(url: str, requests: int) -> Attempt:
    from pyrate_limiter import GCRA, Duration, Limiter, Rate, RedisStateStore, StateBucket

    client, rates = redis.Redis.from_url(url), [Rate(requests, Duration.MINUTE, burst=requests)]
    limiters: dict[int, Any] = {}

    def attempt(number: int) -> object:
        limiter = limiters.get(number)
        if limiter is None:
            store = RedisStateStore(client, f"pyrate-gcra:{number}")
            limiter = limiters[number] = Limiter(_unwatched(StateBucket(rates, GCRA(), store)))
        return limiter.try_acquire("request", blocking=False)

    return attempt


def _smart_core(url: str, requests: int) -> Attempt:
    from django_smart_ratelimit.algorithms import TokenBucketAlgorithm
    from django_smart_ratelimit.backends import get_backend

    backend, algorithm = get_backend(), TokenBucketAlgorithm()
    return lambda number: algorithm.is_allowed(backend, f"caller{number}", requests, 60)[0]


def _plus_core(url: str, requests: int) -> Attempt:
    from drf_ratelimit_plus.algorithms import token_bucket_check
    from drf_ratelimit_plus.rates import parse_rate

    client, rate = redis.Redis.from_url(url), parse_rate(f"{requests}/m")
    return lambda number: token_bucket_check(client, f"caller{number}", rate).allowed


# --- Inside a request --------------------------------------------------------------------------


_VIEW: Any = None  # none of them looks at it


def _request(number: int) -> Any:
    """As much of a DRF request of a signed-in user as these throttles read."""
    user = SimpleNamespace(pk=number, id=number, is_authenticated=True)
    return SimpleNamespace(user=user, META={"REMOTE_ADDR": "127.0.0.1"}, method="GET", headers={}, path="/")


def _smart_throttle(url: str, requests: int) -> Attempt:
    from django_smart_ratelimit.integrations.drf import UserRateLimitThrottle

    class Throttle(UserRateLimitThrottle):
        algorithm = "token_bucket"
        rate = f"{requests}/m"

    return lambda number: Throttle().allow_request(_request(number), _VIEW)


def _plus_throttle(url: str, requests: int) -> Attempt:
    from drf_ratelimit_plus.throttles import rate_limit

    throttle = rate_limit(rate=f"{requests}/m", key="user", scope="bench")
    return lambda number: throttle().allow_request(_request(number), _VIEW)


def _django_ratelimit(url: str, requests: int) -> Attempt:
    from django_ratelimit.core import is_ratelimited

    def key(group: str, request: Any) -> str:
        return str(request.user.pk)

    return lambda number: (
        not is_ratelimited(_request(number), group="bench", key=key, rate=f"{requests}/m", increment=True)
    )


def _drf(cache: str) -> Callable[[str, int], Attempt]:
    def make(url: str, requests: int) -> Attempt:
        from django.core.cache import caches
        from rest_framework.throttling import UserRateThrottle

        class Throttle(UserRateThrottle):
            rate = f"{requests}/min"
            scope = f"bench-{cache}"

        Throttle.cache = caches[cache]
        return lambda number: Throttle().allow_request(_request(number), _VIEW)

    return make


# --- asyncio -----------------------------------------------------------------------------------


def async_rivals(url: str, requests: int) -> dict[str, AsyncAttempt]:
    """Those that can be asked from a coroutine without a thread; made inside the event loop."""
    from limits import RateLimitItemPerMinute, aio
    from throttled.asyncio import RedisStore, Throttled, per_min

    store = aio.storage.RedisStorage(f"async+{url}", implementation="redispy")
    counter, item = aio.strategies.SlidingWindowCounterRateLimiter(store), RateLimitItemPerMinute(requests)
    quota = per_min(requests, burst=requests)
    throttle = Throttled(using="token_bucket", quota=quota, store=RedisStore(server=url))

    async def throttled(number: int) -> object:
        return not (await throttle.limit(f"caller{number}")).limited

    return {
        "limits, sliding counter": lambda number: counter.hit(item, f"caller{number}"),
        "throttled-py, token bucket": throttled,
    }
