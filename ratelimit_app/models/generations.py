"""What did a limit count by before its last edits? Kept in its row, so that an edit keeps the used share.

A generation is a dict: its number ("generation"), what buckets depended on ("numbers"), and when its
last bucket is full again ("ends", seconds since 1970; null for the one in force). It is part of a
bucket's name, and for as long as an old bucket can still matter the limit names it beside the new.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from django.db import models
from django.db.models.signals import pre_save

from ratelimit_app.limits import Limit

#: Generations that are remembered beside the one in force.
EARLIER_GENERATIONS = 3


class WithGenerations(models.Model):
    """A row that is a limit, and remembers the limits it was."""

    #: Newest first.
    generations = models.JSONField(default=list, editable=False)

    class Meta:
        abstract = True

    @property
    def numbers(self) -> list[Any]:
        """What buckets depend on: a change of it begins a generation."""
        raise NotImplementedError

    def counting_by(self, numbers: list[Any]) -> Limit:
        """The limit that this row would be with other numbers."""
        raise NotImplementedError

    def as_limit(self) -> Limit:
        """The value that the limiter weighs."""
        matter = [g for g in self.generations[1:] if g["ends"] is not None and g["ends"] > time.time()]
        return replace(
            self.counting_by(self.numbers),
            generation=self.generations[0]["generation"] if self.generations else 1,
            earlier=tuple(
                replace(self.counting_by(known["numbers"]), generation=known["generation"]) for known in matter
            ),
        )

    def settle_generation(self, *, using: str) -> None:
        """Begin a new generation when the numbers are not those of the newest one."""
        known = self.generations
        if known and known[0]["numbers"] == self.numbers:
            return
        ended = [{**each, "ends": each["ends"] or self._last_bucket_ends(each["numbers"])} for each in known]
        newest = {"generation": known[0]["generation"] + 1 if known else 1, "numbers": self.numbers, "ends": None}
        generations = [newest, *ended][: EARLIER_GENERATIONS + 1]
        type(self)._base_manager.using(using).filter(pk=self.pk).update(generations=generations)

    def _last_bucket_ends(self, numbers: list[Any]) -> float:
        limit = self.counting_by(numbers)
        return time.time() + max(limit.fill_seconds, 2 * limit.period_seconds)


def keep_generations_on_save(model: type[WithGenerations]) -> None:
    """See that an instance read before somebody else's edit does not write back the generations of then."""

    def keep(instance: WithGenerations, using: str, raw: bool = False, **kwargs: Any) -> None:
        if not raw:
            stored = model._base_manager.using(using).filter(pk=instance.pk).values_list("generations", flat=True)
            instance.generations = stored.first() or []

    pre_save.connect(keep, sender=model, weak=False, dispatch_uid=f"ratelimit_app.{model.__name__}.generations")
