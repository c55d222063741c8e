"""Who may call? API keys, as far as they may be stored: of the secret only a digest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ratelimit_app import keys
from ratelimit_app.limits import Caller
from ratelimit_app.models.announcements import Announced, announce_keys, announce_saves_and_deletes
from ratelimit_app.models.key_life import BOOSTS, APIKeyQuerySet
from ratelimit_app.models.pipeline import KeyUse
from ratelimit_app.models.plans import Plan


class APIKey(Announced):
    """One caller's key."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="keys", verbose_name=_("plan"))
    name = models.CharField(_("name"), max_length=100, db_index=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("owner"),
    )
    public_id = models.CharField(_("public id"), max_length=keys.PUBLIC_ID_LENGTH, unique=True, editable=False)
    digest = models.BinaryField(max_length=32, editable=False)
    #: What buckets and usage hang on: a key that replaces another one carries the same.
    bucket_identity = models.CharField(max_length=16, default=keys.new_bucket_identity, editable=False, db_index=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True, db_index=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)
    revoked_reason = models.CharField(_("why it was revoked"), max_length=200, blank=True, editable=False)
    #: How many times the limits of its plan, per key and per user, it has until `boost_ends_at`.
    boost_factor = models.PositiveSmallIntegerField(_("boost"), default=1, editable=False)
    boost_ends_at = models.DateTimeField(_("boost ends"), null=True, blank=True, editable=False)
    boost_reason = models.CharField(_("why it was boosted"), max_length=200, blank=True, editable=False)

    objects = APIKeyQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        permissions = [
            ("rotate_apikey", "Can rotate API key"),
            ("revoke_apikey", "Can revoke API key"),
            ("move_apikey", "Can move API key to another plan"),
            ("boost_apikey", "Can boost API key"),
            ("reset_bucket", "Can fill the buckets of API key"),
        ]
        constraints = [
            models.CheckConstraint(
                name="ratelimit_app_apikey_boost",
                condition=models.Q(boost_factor=1)
                | models.Q(boost_factor__range=(BOOSTS[0], BOOSTS[-1]), boost_ends_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"

    @property
    def usable(self) -> bool:
        """Whether the key opens anything now."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    @property
    def boost(self) -> int:
        """How many times its plan's limits the key has now; 1 without a boost, or when it is over."""
        is_boosted = self.boost_ends_at is not None and self.boost_ends_at > timezone.now()
        return self.boost_factor if is_boosted else 1

    @property
    def last_used_at(self) -> datetime | None:
        """When the key was last used, to the minute, as far as the statistics have arrived."""
        return KeyUse.objects.filter(key_id=self.pk).values_list("last_used_at", flat=True).first()

    def as_caller(self) -> Caller:
        """The value that limits count."""
        return Caller(
            key_id=self.pk,
            plan_id=self.plan_id,
            bucket_identity=self.bucket_identity,
            user_id="" if self.owner_id is None else str(self.owner_id),
            boost=self.boost,
        )

    @classmethod
    def announce(cls, rows: Iterable[Self], *, using: str) -> None:
        announce_keys([row.public_id for row in rows], using=using)


announce_saves_and_deletes(APIKey)
