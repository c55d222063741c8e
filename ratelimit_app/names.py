"""What is a bucket called? `<prefix>:{<owner>}:<limit>.<generation>`.

The owner is a hash of length-prefixed parts, so no text of a caller reaches Redis, no two callers
share a bucket, and nobody steers a cluster's slots. Its braces are the hash tag: what counts by the
same lives on the same node.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from urllib.parse import quote

from ratelimit_app import conf
from ratelimit_app.limits import Caller, Per


def prefix() -> bytes:
    """What every name of this project begins with."""
    return _quoted(conf.current().prefix)


def stem(per: Per, shard: int, caller: Caller) -> bytes:
    """What the names of all buckets begin with that a caller has by one thing; they live together."""
    return _stem(conf.current().prefix, *owner(per, shard, caller))


def owner(per: Per, shard: int, caller: Caller) -> tuple[str, str]:
    """Whose bucket it is; what counts by the same lives together."""
    # The parts of a limit per everyone live apart, so that no node of a cluster carries all of them.
    return ("everyone", str(shard)) if per == "everyone" else caller.identity(per)


def tag(bucket: bytes) -> bytes:
    """The hash tag of a name."""
    return bucket[bucket.index(b"{") : bucket.index(b"}")]


@lru_cache(maxsize=16)
def _quoted(prefix: str) -> bytes:
    # A brace would move the hash tag, and a colon would nest one project's names in another's.
    return quote(prefix, safe="-_.~").encode("ascii")


@lru_cache(maxsize=100_000)
def _stem(prefix: str, kind: str, value: str) -> bytes:
    text = value.encode("utf-8", "surrogatepass")
    parts = b"%d:%b%d:%b" % (len(kind), kind.encode("ascii"), len(text), text)
    owner = base64.urlsafe_b64encode(hashlib.blake2b(parts, digest_size=15).digest())
    return b"%b:{%b}" % (_quoted(prefix), owner)
