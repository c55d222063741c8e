"""What can become of a key? Created, rotated, moved, boosted, revoked; each in one transaction.

Keys that share a bucket identity are one caller: a key and those it replaced, some of which may
still work. A plan or boost that only one of them had would give that caller a second quota, so
both are set for all of them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, cast

from django.db import router, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from ratelimit_app import conf, keys
from ratelimit_app.models.announcements import AnnouncingQuerySet, Version

if TYPE_CHECKING:
    from ratelimit_app.models.api_keys import APIKey
    from ratelimit_app.models.plans import Plan

#: A boost multiplies limits by so much at least, and at most.
BOOSTS = range(2, 101)
#: A key that expires within so many days is worth a warning.
EXPIRY_WARNING = timedelta(days=14)
_AS_BEFORE: Any = object()


class NotRotatable(ValueError):
    """This key cannot be replaced: it opens nothing any more, or was replaced already."""


class APIKeyQuerySet(AnnouncingQuerySet):
    def create_key(
        self, *, plan: Plan, name: str, owner: Any = None, expires_at: datetime | None = None
    ) -> tuple[APIKey, str]:
        """Create a key. Returns the row and the key's text, which is stored nowhere."""
        return self._with_new_text(plan=plan, name=name, owner=owner, expires_at=expires_at)

    def rotate(
        self, key: APIKey, *, overlap: timedelta = timedelta(hours=24), expires_at: datetime | None = _AS_BEFORE
    ) -> tuple[APIKey, str]:
        """Replace a key by one with the same name, owner, plan and buckets. Returns it and its text.

        The old key goes on working for `overlap`, but not beyond its own expiry. The new one expires
        when the old one would have, unless `expires_at` says otherwise; None is never. Raises
        NotRotatable when the key is revoked, expired, or has a successor that works.
        """
        if overlap < timedelta(0):
            raise ValueError("An overlap cannot be negative.")
        using = router.db_for_write(self.model)
        with transaction.atomic(using=using):
            Version.bump("keys", using=using)  # its row lock puts two rotations of one key in order
            old: APIKey = self.model._base_manager.using(using).get(pk=key.pk)
            if not old.usable:
                raise NotRotatable(f"{old.public_id} is {'expired' if old.revoked_at is None else 'revoked'}.")
            rows = type(self)(self.model, using=using)
            successor = rows.sharing_bucket_with(old).usable().filter(pk__gt=old.pk).first()
            if successor is not None:
                raise NotRotatable(f"{old.public_id} was replaced by {successor.public_id}.")
            new = rows._with_new_text(
                plan_id=old.plan_id,
                name=old.name,
                owner_id=old.owner_id,
                expires_at=old.expires_at if expires_at is _AS_BEFORE else expires_at,
                bucket_identity=old.bucket_identity,
                boost_factor=old.boost_factor,
                boost_ends_at=old.boost_ends_at,
                boost_reason=old.boost_reason,
            )
            ends_at = timezone.now() + overlap
            if old.expires_at is None or ends_at < old.expires_at:
                rows.filter(pk=old.pk).update(expires_at=ends_at)
        return new

    def move(self, key: APIKey, *, plan: Plan) -> int:
        """Put a key, and all that share its bucket, on another plan. Returns how many."""
        if plan.audience != "keys":
            raise ValueError(f"No key can be on the plan {plan.slug}.")
        return self.sharing_bucket_with(key).update(plan=plan)

    def boost(self, key: APIKey, *, factor: int, until: datetime, reason: str) -> int:
        """Multiply the limits of a key, and of all that share its bucket, until a moment. Returns how many.

        It ends by itself. A second boost takes the place of the first.
        """
        if factor not in BOOSTS:
            raise ValueError(f"A boost is a whole number from {BOOSTS[0]} to {BOOSTS[-1]}.")
        if until <= timezone.now():
            raise ValueError("A boost must end in the future.")
        boost = {"boost_factor": factor, "boost_ends_at": until, "boost_reason": reason}
        return self.sharing_bucket_with(key).update(**boost)

    def end_boost(self, key: APIKey) -> int:
        """End the boost of a key, and of all that share its bucket, now. Returns how many."""
        return self.sharing_bucket_with(key).update(boost_factor=1, boost_ends_at=None, boost_reason="")

    def revoke(self, *, reason: str = "") -> int:
        """Revoke those that are not revoked yet, from now on. Returns how many."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now(), revoked_reason=reason)

    def usable(self) -> Self:
        """Those that open anything now."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)

    def sharing_bucket_with(self, key: APIKey) -> Self:
        """The key, those it replaced, and those that replaced it."""
        return self.filter(bucket_identity=key.bucket_identity)

    def expiring(self, *, within: timedelta = EXPIRY_WARNING) -> Self:
        """Those that work, expire so soon, and have no successor: somebody will be surprised."""
        rows = type(self)(self.model, using=self.db)
        successors = rows.usable().filter(bucket_identity=OuterRef("bucket_identity"), pk__gt=OuterRef("pk"))
        return self.usable().filter(~Exists(successors), expires_at__lte=timezone.now() + within)

    def _with_new_text(self, **fields: Any) -> tuple[APIKey, str]:
        text, material = keys.generate(conf.current().key_prefix)
        row = self.create(public_id=material.public_id, digest=material.digest, **fields)
        return cast("APIKey", row), text
