"""Who is asking, as far as a limit can count it?"""

from __future__ import annotations

from dataclasses import dataclass

from ratelimit_app.limits.limit import Per


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking, as far as a limit can count it."""

    #: The API key's row, or 0 for a caller without one.
    key_id: int = 0
    #: The plan whose limits apply, or 0 when none does.
    plan_id: int = 0
    #: What the key's buckets hang on; a rotated key keeps it.
    bucket_identity: str = ""
    #: Primary key, as text, of the key's owner or the session's user; "" when nobody.
    user_id: str = ""
    #: The trusted address, IPv6 already cut to its network; "" when there is none.
    address: str = ""
    #: How many times the plan's limits per key and user this caller has for now.
    boost: int = 1

    def identity(self, per: Per) -> tuple[str, str]:
        """The kind and name of what a limit per `per` counts: the nearest thing this caller has."""
        if per == "everyone":
            return "everyone", ""
        if per == "key" and self.bucket_identity:
            return "key", self.bucket_identity
        if per != "address" and self.user_id:
            return "user", self.user_id
        if per != "address" and self.bucket_identity:
            return "key", self.bucket_identity
        return "address", self.address
