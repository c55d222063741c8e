"""What arrived when, and what did not?"""

from __future__ import annotations

from datetime import datetime

from django.db.models import Max, Sum

from ratelimit_app.models import Batch, DroppedMinute
from ratelimit_app.stats.windows import Window


def dropped(within: Window) -> tuple[tuple[str, int], ...]:
    """(kind, how many) of the records that full buffers dropped: what the other answers are short of."""
    rows = (
        DroppedMinute.objects.filter(minute__gte=within.start, minute__lt=within.end, dropped__gt=0)
        .values("kind")
        .annotate(dropped_sum=Sum("dropped"))
        .order_by("kind")
    )
    return tuple((row["kind"], int(row["dropped_sum"])) for row in rows)


def newest_data_at() -> datetime | None:
    """When the last batch of counts was stored; None when there never was one."""
    newest: datetime | None = Batch.objects.aggregate(newest=Max("received_at"))["newest"]
    return newest
