"""Whose key is this? The keys that this process has seen lately, and the ids it knows nobody has.

Looked up by public id, compared by digest. Warm, a key costs no query; junk never reaches the
database, and a well-formed unknown key does once. `changes` drops what was edited or revoked; an
entry also expires, which is how raw SQL is seen. Secrets are not kept, only their digests.
"""

from __future__ import annotations

import copy
import hmac
import logging
import time
from dataclasses import dataclass, replace
from typing import Any

from django.db import Error as DatabaseError  # InterfaceError is one too
from django.db import router

from ratelimit_app import conf, keys
from ratelimit_app.limits import Caller
from ratelimit_app.models import APIKey

#: How long a known key goes on when the database could not be read.
_RETRY_SECONDS = 1.0

logger = logging.getLogger("ratelimit_app")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that may be used, as far as this process knows."""

    row: APIKey
    #: The caller as the plan has it, and during a boost.
    plain: Caller
    boosted: Caller
    #: Seconds since 1970 when the boost is over; 0 without one.
    boost_ends_at: float
    digest: bytes
    #: Seconds since 1970 from when on the key is expired.
    expires_at: float
    #: The monotonic second until which this entry is believed.
    fresh_until: float

    @property
    def caller(self) -> Caller:
        """The value that limits count; a boost ends on time by itself."""
        return self.boosted if self.boost_ends_at and time.time() < self.boost_ends_at else self.plain

    @property
    def owner(self) -> Any:
        """A copy of the owner of its own, so that no request changes another's; None without one."""
        return copy.copy(self.row.owner) if self.row.owner_id is not None else None


_known: dict[str, KnownKey] = {}
#: Public ids that name no usable key, and the monotonic second until which that is believed. Apart
#: from the others, so that a flood of invented ids cannot push known keys out.
_unknown: dict[str, float] = {}
#: Counts `forget` calls: an entry read before one must not be stored after it.
_forgotten = 0


def find(text: str) -> KnownKey | None:
    """The key that this text is, or None when it is unknown, expired or revoked.

    At most one query; none when warm and none for junk. Raises DatabaseError when the database is
    gone and the key was not seen before.
    """
    known, is_certain = cached(text)
    return known if is_certain else _look_up(text)


def cached(text: str) -> tuple[KnownKey | None, bool]:
    """What `find` would answer, and whether that is certain: False when only the database can tell."""
    material = keys.parse(text)
    if material is None:
        return None, True
    known = _known.get(material.public_id)
    if known is None:
        return None, time.monotonic() < _unknown.get(material.public_id, 0.0)
    return (known if _opens(known, material) else None), time.monotonic() < known.fresh_until


def forget(public_ids: list[str] | None) -> None:
    """Drop these keys; None drops all."""
    global _forgotten
    _forgotten += 1
    if public_ids is None:
        _known.clear()
        _unknown.clear()
        return
    for public_id in public_ids:
        _known.pop(public_id, None)
        _unknown.pop(public_id, None)


def _look_up(text: str) -> KnownKey | None:
    material = keys.parse(text)
    if material is None:
        return None
    try:
        known = _read(material.public_id)
    except DatabaseError as failure:
        known = _known.get(material.public_id)
        if known is None:
            raise
        _known[material.public_id] = replace(known, fresh_until=time.monotonic() + _RETRY_SECONDS)
        logger.error("Keys cannot be read, the known ones go on: %s", str(failure))
    return known if known is not None and _opens(known, material) else None


def _read(public_id: str) -> KnownKey | None:
    read_at = _forgotten
    using = router.db_for_write(APIKey)
    row = APIKey.objects.using(using).select_related("owner").filter(public_id=public_id, revoked_at=None).first()
    settings = conf.current()
    fresh_until = time.monotonic() + settings.cache_ttl_seconds
    if row is None or (row.owner_id is not None and not row.owner.is_active):
        _known.pop(public_id, None)
        _store(_unknown, public_id, fresh_until, settings.key_cache_size)
        if read_at != _forgotten:
            _unknown.pop(public_id, None)
        return None
    expires_at = row.expires_at.timestamp() if row.expires_at else float("inf")
    plain, boosted = (replace(row.as_caller(), boost=boost) for boost in (1, row.boost_factor))
    boost_ends_at = row.boost_ends_at.timestamp() if row.boost_ends_at else 0.0
    known = KnownKey(row, plain, boosted, boost_ends_at, bytes(row.digest), expires_at, fresh_until)
    _store(_known, public_id, known, settings.key_cache_size)
    if read_at != _forgotten:  # it may have changed while it was read
        _known.pop(public_id, None)
    return known


def _store(cache: dict[str, Any], public_id: str, value: Any, size: int) -> None:
    while len(cache) >= size:
        try:
            cache.pop(next(iter(cache)), None)  # the oldest
        except (StopIteration, RuntimeError):  # another thread changed the dict meanwhile
            continue
    cache[public_id] = value


def _opens(known: KnownKey, material: keys.KeyMaterial) -> bool:
    return hmac.compare_digest(known.digest, material.digest) and time.time() < known.expires_at
