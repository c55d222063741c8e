"""What is an action on a key? A form that says what will happen, and does it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ratelimit_app.admin import pasted_keys
from ratelimit_app.models import APIKey


class NotDone(Exception):
    """It could not be done now, for the reason given; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did."""

    #: For the log of the admin.
    logged: str
    #: For who did it.
    shown: str
    #: Those that changed.
    changed: tuple[APIKey, ...]
    #: A key that was made, and its text.
    new: tuple[APIKey, str] | None = None


class KeyAction(forms.Form):
    """One action on one key."""

    slug: ClassVar[str]
    permission: ClassVar[str]
    title: ClassVar[Any]
    button: ClassVar[Any]
    #: Whether it makes something stop.
    ends: ClassVar[bool] = False
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        help_text=gettext_lazy("For those who read the history later."),
    )

    def __init__(self, key: APIKey, *args: Any, may_edit: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = key
        self.may_edit = may_edit
        self.shape()

    @cached_property
    def others(self) -> tuple[APIKey, ...]:
        """Those that share its bucket and work."""
        mates = APIKey.objects.sharing_bucket_with(self.key).usable()
        return tuple(mates.exclude(pk=self.key.pk).order_by("pk"))

    def shape(self) -> None:
        """Fit the fields to the key."""

    @property
    def obstacle(self) -> str:
        """Why it cannot be done to this key; "" when it can."""
        return "" if self.key.usable else _("This key opens nothing any more.")

    @property
    def sentences(self) -> list[str]:
        """What will happen."""
        raise NotImplementedError

    def act(self) -> Done:
        """Do it. Raises NotDone."""
        raise NotImplementedError

    def clean_reason(self) -> str:
        return pasted_keys.without_secrets(self.cleaned_data["reason"])

    @property
    def bucket_mates(self) -> tuple[APIKey, ...]:
        return (self.key, *self.others)

    def _why(self) -> str:
        return f" Reason: {self.cleaned_data['reason']}" if self.cleaned_data.get("reason") else ""


def in_the_future(moment: datetime | None) -> datetime | None:
    if moment is not None and moment <= timezone.now():
        raise ValidationError(_("This moment is past."))
    return moment
