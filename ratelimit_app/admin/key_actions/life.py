"""How does a key end? Replaced by another one, with an overlap; or revoked, for good."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ratelimit_app.admin import pasted_keys
from ratelimit_app.admin.key_actions.action import Done, KeyAction, NotDone, in_the_future
from ratelimit_app.models import APIKey, NotRotatable
from ratelimit_app.models.key_life import EXPIRY_WARNING
from ratelimit_app.pages.text import shown_as


class Rotate(KeyAction):
    slug, permission = "rotate", "rotate_apikey"
    title, button = gettext_lazy("Rotate API key"), gettext_lazy("Rotate")

    overlap_hours = forms.TypedChoiceField(
        label=gettext_lazy("The old key works on for"),
        coerce=int,
        choices=[
            (0, gettext_lazy("not at all: it ends now")),
            (1, gettext_lazy("1 hour")),
            (24, gettext_lazy("24 hours")),
            (72, gettext_lazy("72 hours")),
        ],
        initial=24,
    )
    expires_at = forms.DateTimeField(
        label=gettext_lazy("The new key expires"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
    )
    field_order = ("overlap_hours", "expires_at", "reason")

    def shape(self) -> None:
        self.fields["reason"].required = False
        if not self.may_edit:  # who may only rotate cannot let a key live longer than was granted
            del self.fields["expires_at"]
            return
        expires_at = self.key.expires_at
        soon = expires_at is not None and expires_at < timezone.now() + EXPIRY_WARNING
        self.fields["expires_at"].initial = timezone.now() + timedelta(days=365) if soon else expires_at
        self.fields["expires_at"].help_text = _("In the time zone %(zone)s. Empty: never.") % {
            "zone": timezone.get_current_timezone_name()
        }

    def clean_expires_at(self) -> datetime | None:
        return in_the_future(self.cleaned_data["expires_at"])

    @property
    def obstacle(self) -> str:
        newer = [other for other in self.others if other.pk > self.key.pk]
        if newer:
            return _("This key was replaced by %(key)s. Rotate that one.") % {"key": shown_as(newer[0].public_id)}
        return super().obstacle

    @property
    def sentences(self) -> list[str]:
        return [
            _("The new key is shown once, on the next page. Its plan, owner and buckets are those of the old one."),
            _("While both work they spend from one bucket: changing over gives nobody a second quota."),
        ]

    def act(self) -> Done:
        overlap = timedelta(hours=self.cleaned_data["overlap_hours"])
        expiry = {"expires_at": self.cleaned_data["expires_at"]} if "expires_at" in self.cleaned_data else {}
        try:
            new, text = APIKey.objects.rotate(self.key, overlap=overlap, **expiry)
        except NotRotatable:
            # Also the second sending of one form.
            raise NotDone(_("This key was rotated or ended meanwhile. The new text was shown once.")) from None
        hours = self.cleaned_data["overlap_hours"]
        logged = f"Rotated: replaced by {shown_as(new.public_id)}, overlap of {hours} h.{self._why()}"
        return Done(logged, "", (self.key,), new=(new, text))


class Revoke(KeyAction):
    slug, permission = "revoke", "revoke_apikey"
    title, button, ends = gettext_lazy("Revoke API key"), gettext_lazy("Revoke"), True

    typed = forms.CharField(label=gettext_lazy("Type the key's public id or name"), max_length=200)
    all_of_them = forms.BooleanField(required=False)
    field_order = ("typed", "reason", "all_of_them")

    def shape(self) -> None:
        self.fields["typed"].widget.attrs["autocomplete"] = "off"
        if not self.others:
            del self.fields["all_of_them"]
            return
        listed = ", ".join(shown_as(other.public_id) for other in self.others)
        self.fields["all_of_them"].label = _("Also revoke what shares its bucket: %(keys)s") % {"keys": listed}

    def clean_typed(self) -> str:
        typed: str = pasted_keys.without_secrets(self.cleaned_data["typed"])
        if typed not in (self.key.public_id, shown_as(self.key.public_id), self.key.name.strip()):
            raise ValidationError(_("That is neither the public id nor the name of this key."))
        return typed

    @property
    def obstacle(self) -> str:
        return _("This key is revoked already.") if self.key.revoked_at is not None else ""

    @property
    def sentences(self) -> list[str]:
        return [_("Within a second, requests with this key will be answered 401. This cannot be undone.")]

    def act(self) -> Done:
        ended = self.bucket_mates if self.cleaned_data.get("all_of_them") else (self.key,)
        pks = [key.pk for key in ended]
        if not APIKey.objects.filter(pk__in=pks).revoke(reason=self.cleaned_data["reason"]):
            raise NotDone(_("This key is revoked already."))
        shown = ngettext("%(count)s API key was revoked.", "%(count)s API keys were revoked.", len(ended))
        return Done(f"Revoked.{self._why()}", shown % {"count": len(ended)}, ended)
