"""How does a change become known? By a version row, bumped in the transaction of the change itself.

`save`, `delete`, `update` and the bulk calls all announce (a lone `save()` outside a transaction
bumps right behind it). Raw SQL does not, and is seen when the caches of a process expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

from django.db import models, transaction
from django.db.models.signals import post_delete, post_save
from django.dispatch import Signal
from django.utils import timezone

from ratelimit_app import keys

#: Sent after a commit that changed plans or keys. Arguments: `what`, "plans" or "keys"; `public_ids`,
#: the keys that changed, or None when there were too many to list.
changed = Signal()

#: A change of more keys than this is announced as "all of them".
LISTED_KEYS = 1_000


class Version(models.Model):
    """A number for plans and one for keys that rises with each change; processes compare it every second."""

    name = models.CharField(max_length=8, primary_key=True)
    number = models.PositiveBigIntegerField(default=0)

    class Meta:
        default_permissions = ()

    @classmethod
    def bump(cls, name: str, *, using: str) -> int:
        """Raise a version inside the caller's transaction; its row lock puts commits in order."""
        rows = cls.objects.using(using).filter(name=name)
        if not rows.update(number=models.F("number") + 1):
            cls.objects.using(using).get_or_create(name=name)
            rows.update(number=models.F("number") + 1)
        return int(rows.values_list("number", flat=True).get())


class KeyChange(models.Model):
    """One key that changed with one version of the keys; an empty public id stands for all of them."""

    version = models.PositiveBigIntegerField(db_index=True)
    public_id = models.CharField(max_length=keys.PUBLIC_ID_LENGTH, blank=True)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        default_permissions = ()


class Announced(models.Model):
    """A model whose changes other processes must hear of."""

    class Meta:
        abstract = True

    @classmethod
    def announce(cls, rows: Iterable[Self], *, using: str) -> None:
        """Bump the version these rows belong to; runs inside the transaction that changed them."""
        raise NotImplementedError


class AnnouncingQuerySet(models.QuerySet[Any]):
    """A QuerySet whose bulk calls announce what they changed, as signals do for single rows."""

    def update(self, **kwargs: Any) -> int:
        with transaction.atomic(using=self.db):
            touched = list(self.model._base_manager.using(self.db).filter(pk__in=self.values("pk"))[: LISTED_KEYS + 1])
            count = super().update(**kwargs)
            self._announce(touched)
        return count

    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        with transaction.atomic(using=self.db):
            created = super().bulk_create(objs, *args, **kwargs)
            self._announce(created)
        return created

    def _announce(self, touched: Sequence[Any]) -> None:
        if touched:
            self.model.announce(touched, using=self.db)


def announce_keys(public_ids: Sequence[str], *, using: str) -> None:
    """Announce that these keys changed, were created or are gone."""
    listed = list(public_ids) if len(public_ids) <= LISTED_KEYS else None
    with transaction.atomic(using=using):
        version = Version.bump("keys", using=using)
        KeyChange.objects.using(using).bulk_create(
            [KeyChange(version=version, public_id=public_id) for public_id in listed or [""]]
        )
        _send_on_commit("keys", listed, using=using)


def announce_plans(*, using: str) -> None:
    """Announce that plans or their limits changed."""
    with transaction.atomic(using=using):
        Version.bump("plans", using=using)
        _send_on_commit("plans", None, using=using)


def announce_saves_and_deletes(model: type[Announced]) -> None:
    """Make `save` and `delete` of a model announce."""

    def row_changed(instance: Announced, using: str, **kwargs: Any) -> None:
        with transaction.atomic(using=using):
            model.announce([instance], using=using)

    for signal in (post_save, post_delete):
        signal.connect(row_changed, sender=model, weak=False, dispatch_uid=f"ratelimit_app.{model.__name__}")


def _send_on_commit(what: str, public_ids: list[str] | None, *, using: str) -> None:
    transaction.on_commit(lambda: changed.send(sender=Version, what=what, public_ids=public_ids), using=using)
