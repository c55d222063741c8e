"""What is deleted when? Each resolution has its days; finer rows go only when the coarser ones hold them."""

from __future__ import annotations

import time
from typing import Any

from django.db import connections, models, router, transaction
from django.db.models import F, Min, QuerySet

from ratelimit_app import conf, resolutions
from ratelimit_app.models import (
    APIKey,
    Batch,
    DroppedMinute,
    Frontier,
    KeyChange,
    KeyUse,
    OutageSpan,
    Refusal,
    SetAside,
    Stale,
    UsageMinute,
)
from ratelimit_app.recording.rolling import roll_up
from ratelimit_app.resolutions import DAY, FACTS, FINER, HOUR, MINUTE, Resolution

#: Ids of batches are kept far longer than any broker takes to deliver a message again.
BATCH_DAYS = 7
_ROWS_IN_A_DELETE = 5_000


def prune(*, now_seconds: float | None = None) -> None:
    """Delete statistics older than the settings say, and what only recent deliveries and caches need.

    Rolls up first: nothing goes that is not summed up. The time is for tests.
    """
    now_seconds = time.time() if now_seconds is None else now_seconds
    roll_up(now_seconds=now_seconds)
    settings, using = conf.current(), router.db_for_write(UsageMinute)

    def days_ago(days: int) -> int:
        return int(now_seconds) - days * DAY.seconds

    days = {MINUTE: settings.minute_retention_days, HOUR: settings.hour_retention_days}
    for coarser, finer in FINER.items():
        until = _give_up(coarser, older_than=days_ago(days[finer]), using=using)
        _delete_counts(finer, until, using=using)
    kept_since = resolutions.moment(days_ago(settings.day_retention_days))
    _delete_counts(DAY, days_ago(settings.day_retention_days), using=using)
    _delete(DroppedMinute, using=using, minute__lt=kept_since)
    _delete(OutageSpan, using=using, last_seen_at__lt=kept_since)

    kept_since = resolutions.moment(days_ago(settings.retention_days))
    _delete(Refusal, using=using, at__lt=kept_since)
    _delete(SetAside, using=using, received_at__lt=kept_since)

    kept_since = resolutions.moment(days_ago(BATCH_DAYS))
    _delete(Batch, using=using, received_at__lt=kept_since)
    _delete(KeyChange, using=router.db_for_write(KeyChange), at__lt=kept_since)
    _forget_uses_of_deleted_keys(using=using)


def _give_up(coarser: Resolution, *, older_than: int, using: str) -> int:
    """Decide up to when the finer rows may go: only what is summed up. Late ones then go to the coarser rows."""
    with transaction.atomic(using=using):
        resolutions.hold(using)  # makes the rows
    with transaction.atomic(using=using):
        frontier = Frontier.objects.using(using).filter(resolution=coarser.name)
        frontier.update(purged_until=F("purged_until"))  # from here on nobody holds it
        listed = Stale.objects.using(using).filter(resolution=coarser.name).aggregate(first=Min("start"))["first"]
        row = frontier.get()
        until = min(coarser.floor(older_than), row.rolled_until, *([] if listed is None else [listed]))
        if coarser is DAY:  # an hour that may yet be summed up again needs the others of its day
            until = min(until, DAY.floor(Frontier.objects.using(using).get(resolution=HOUR.name).purged_until))
        if until > row.purged_until:
            frontier.update(purged_until=until)
        return int(max(until, row.purged_until))


def _delete_counts(resolution: Resolution, before: int, *, using: str) -> None:
    for fact in FACTS:
        _delete(fact.tables[resolution], using=using, **{f"{resolution.name}__lt": resolutions.moment(before)})


def _delete(model: type[models.Model], *, using: str, **older: Any) -> None:
    """Delete in small bites, so that nobody who writes waits for long; leaves alone what another one deletes."""
    rows = model._base_manager.using(using)
    deleted = _ROWS_IN_A_DELETE
    while deleted == _ROWS_IN_A_DELETE:
        bite = _that_nobody_holds(rows.filter(**older).order_by(), using=using)
        with transaction.atomic(using=using):
            deleted, _ = rows.filter(pk__in=bite.values("pk")[:_ROWS_IN_A_DELETE]).delete()


def _that_nobody_holds(rows: QuerySet[Any], *, using: str) -> QuerySet[Any]:
    """Rows that no other transaction holds: whoever waits for none can be part of no deadlock."""
    if connections[using].features.has_select_for_update_skip_locked:
        return rows.select_for_update(skip_locked=True)
    return rows


def _forget_uses_of_deleted_keys(*, using: str) -> None:
    """In bites, and key by key in the order of the table, for keys may live in another database."""
    after = 0
    while found := list(
        KeyUse.objects.using(using).filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:_ROWS_IN_A_DELETE]
    ):
        alive = set(APIKey.objects.using(router.db_for_write(APIKey)).filter(pk__in=found).values_list("pk", flat=True))
        uses = KeyUse.objects.using(using)
        gone = uses.filter(pk__in=[pk for pk in found if pk not in alive]).order_by()
        with transaction.atomic(using=using):
            uses.filter(pk__in=_that_nobody_holds(gone, using=using).values("pk")).delete()
        after = found[-1]
