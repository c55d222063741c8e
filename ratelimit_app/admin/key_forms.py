"""What is asked of somebody who creates or edits a key?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.core import signing
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from ratelimit_app import keys
from ratelimit_app.models import APIKey


def _signer() -> signing.Signer:
    return signing.Signer(salt="ratelimit_app.new_key")  # on use: importing needs no SECRET_KEY


class APIKeyForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    class Meta:
        model = APIKey
        fields = ["name", "plan", "owner", "expires_at"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if expiry := self.fields.get("expires_at"):
            # Two inputs, which the admin's widget does not label.
            for part, label in zip(expiry.widget.widgets, (_("date"), _("time")), strict=True):
                part.attrs["aria-label"] = f"{expiry.label}: {label}"

    def clean_expires_at(self) -> Any:
        expires_at = self.cleaned_data["expires_at"]
        if expires_at and "expires_at" in self.changed_data and expires_at <= timezone.now():
            raise ValidationError(_("This moment is past. To end a key now, revoke it."))
        return expires_at


class NewAPIKeyForm(APIKeyForm):
    """Carries the bucket identity of the key to be: sent twice, it makes one key."""

    reserved = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reserved"].initial = lambda: _signer().sign(keys.new_bucket_identity())
        self.fields["expires_at"].initial = lambda: (timezone.now() + timedelta(days=365)).replace(microsecond=0)
        self.fields["expires_at"].help_text = _("A year from now, unless you say otherwise. Empty: never.")

    def clean_expires_at(self) -> Any:
        # Even the proposed moment may be past by the time the form is sent.
        expires_at = self.cleaned_data["expires_at"]
        if expires_at and expires_at <= timezone.now():
            raise ValidationError(_("This moment is past."))
        return expires_at

    def clean_reserved(self) -> str:
        signed = self.cleaned_data["reserved"]
        if not signed:
            return keys.new_bucket_identity()
        try:
            return _signer().unsign(signed)
        except signing.BadSignature:
            raise ValidationError(_("This form is not one of ours. Open it again."), code="reserved") from None
