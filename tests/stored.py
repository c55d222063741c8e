"""Where does Redis keep a bucket, and what is there? A key of its own, or a field of a hash.

storage = pytest.fixture(stored.storage, params=stored.WAYS, autouse=True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ratelimit_app import names

#: Numbers of hashes: every bucket by itself, and all callers of the test in one.
WAYS = (pytest.param(0, id="own key"), pytest.param(1, id="one hash"))


def storage(request: Any, configure: Callable[..., None]) -> int:
    """The number of hashes in force."""
    configure(BUCKET_HASHES=request.param)
    return int(request.param)


def key(bucket: bytes) -> bytes:
    """The key of Redis that holds a bucket."""
    return names.parted(bucket)[0]


def read(client: Any, bucket: bytes) -> bytes:
    """What is stored of a token or leaky bucket that there is."""
    of, field = names.parted(bucket)
    held = client.hget(of, field) if field else client.get(of)
    assert held is not None, "there is no such bucket"
    return bytes(held)


def write(client: Any, bucket: bytes, value: str, *, lives_seconds: int = 3_600) -> None:
    """Store something by hand."""
    of, field = names.parted(bucket)
    if field:
        client.hset(of, field, value)
        client.expire(of, lives_seconds)
    else:
        client.set(of, value, ex=lives_seconds)
