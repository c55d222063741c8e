"""What is a bucket called, and where is it? A field of a hash that some callers share, or a key of its own.

    <prefix>:{<number>}:<limit>.<generation>              a hash; the field is a digest of key or user
    <prefix>:{<number>}:<limit>.<generation>:<digest>     a window or log of the same owner
    <prefix>:{<digest>}:<limit>.<generation>              what is counted by address, or by everyone

Redis takes some 80 bytes for a key beside what it holds, and next to nothing for a field of a small
hash. Addresses stay out: a hash lives as long as one of its buckets, so a flood of addresses would
pile up in it. The digest is of length-prefixed parts, so no text of a caller reaches Redis, no two
callers share a bucket, and nobody steers a cluster's slots. The braces are the hash tag: what counts
by the same lives on the same node.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from ratelimit_app import conf
from ratelimit_app.limits import Caller, Per

#: Kinds of owners whose buckets are in hashes: there are no more of them than rows in the database.
_IN_HASHES = ("key", "user")


def prefix() -> bytes:
    """What every name of this project begins with."""
    return _quoted(conf.current().prefix)


class Place(NamedTuple):
    """Where the buckets of one owner are."""

    #: What the names of all their keys begin with.
    stem: bytes
    #: The owner's field in the hashes; b"" when every bucket is a key of its own.
    field: bytes


def place(per: Per, shard: int, caller: Caller) -> Place:
    """Where all buckets are that a caller has by one thing; they live together."""
    settings = conf.current()
    return _place(settings.prefix, settings.bucket_hashes, *owner(per, shard, caller))


def parted(bucket: bytes) -> tuple[bytes, bytes]:
    """The key that holds a bucket, and its field in there; b"" when it is a key of its own."""
    key, _, field = bucket.partition(b"/")  # a quoted prefix has none
    return key, field


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
def _place(prefix: str, hashes: int, kind: str, value: str) -> Place:
    text = value.encode("utf-8", "surrogatepass")
    parts = b"%d:%b%d:%b" % (len(kind), kind.encode("ascii"), len(text), text)
    digest = hashlib.blake2b(parts, digest_size=15).digest()
    letters = base64.urlsafe_b64encode(digest)
    if not hashes or kind not in _IN_HASHES:
        return Place(b"%b:{%b}" % (_quoted(prefix), letters), b"")
    # Six bytes choose the hash, the other nine the field.
    return Place(b"%b:{%05d}" % (_quoted(prefix), int.from_bytes(digest[:6], "big") % hashes), letters[8:])
