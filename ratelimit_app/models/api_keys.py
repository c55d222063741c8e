"""Who may call? API keys, as far as they may be stored: of the secret only a digest."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ratelimit_app import conf, keys
from ratelimit_app.limits import Caller
from ratelimit_app.models.announcements import (
    Announced,
    AnnouncingQuerySet,
    announce_keys,
    announce_saves_and_deletes,
)
from ratelimit_app.models.pipeline import KeyUse
from ratelimit_app.models.plans import Plan


class APIKeyQuerySet(AnnouncingQuerySet):
    def create_key(
        self, *, plan: Plan, name: str, owner: Any = None, expires_at: datetime | None = None
    ) -> tuple[APIKey, str]:
        """Create a key. Returns the row and the key's text, which is stored nowhere."""
        text, material = keys.generate(conf.current().key_prefix)
        row = self.create(
            plan=plan,
            name=name,
            owner=owner,
            expires_at=expires_at,
            public_id=material.public_id,
            digest=material.digest,
        )
        return row, text

    def revoke(self) -> int:
        """Revoke those that are not revoked yet, from now on. Returns how many."""
        return self.filter(revoked_at=None).update(revoked_at=timezone.now())


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
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True, editable=False)

    objects = APIKeyQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        permissions = [("revoke_apikey", "Can revoke API key")]

    def __str__(self) -> str:
        return f"{self.name} ({self.public_id})"

    @property
    def usable(self) -> bool:
        """Whether the key opens anything now."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

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
        )

    @classmethod
    def announce(cls, rows: Iterable[Self], *, using: str) -> None:
        announce_keys([row.public_id for row in rows], using=using)


announce_saves_and_deletes(APIKey)
