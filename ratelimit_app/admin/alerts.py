"""What is or was wrong, and who takes care of it? Episodes to look at, and a note that acknowledges one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _

from ratelimit_app import alerts
from ratelimit_app.alerts import words
from ratelimit_app.models import AlertMessage, APIKey, Episode
from ratelimit_app.pages.text import NOTHING, shown_as, written


def _key(episode: Episode) -> APIKey | None:
    return alerts.keys_of([episode]).get(episode.subject)


class OpenFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("open", _("open")), ("ended", _("over"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Episode]) -> QuerySet[Episode]:
        if self.value() == "open":
            return queryset.filter(ended_at=None)
        return queryset.exclude(ended_at=None) if self.value() == "ended" else queryset


class MessageInline(admin.TabularInline):  # type: ignore[type-arg]  # generic in the stubs only
    """What was sent about an episode, and what could not be: only to be read."""

    model = AlertMessage
    template = "admin/ratelimit_app/episode/messages.html"
    fields = ("event", "channel", "attempts", "sent", "next_attempt", "error")
    readonly_fields = fields
    can_delete = False
    extra = 0

    @admin.display(description=_("sent"))
    def sent(self, message: AlertMessage) -> str:
        return written(message.sent_at) if message.sent_at else NOTHING

    @admin.display(description=_("next attempt"))
    def next_attempt(self, message: AlertMessage) -> str:
        return written(message.next_attempt_at) if message.next_attempt_at else NOTHING

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("ratelimit_app.view_episode")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Episode)
class EpisodeAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["kind", "about", "started", "ended", "worst_value", "acknowledged_by"]
    list_filter = [OpenFilter, "kind"]
    readonly_fields = (
        *("what", "about", "started", "ended", "worst_value", "threshold_value"),
        *("look", "acknowledged_by", "acknowledged"),
    )
    fields = (*readonly_fields, "note")
    sortable_by = ["started", "ended"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    inlines = [MessageInline]

    class Media:
        css = {"all": ["ratelimit_app/stock.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Episode]:
        keys = APIKey.objects.filter(bucket_identity=OuterRef("subject")).order_by("-pk")
        rows: QuerySet[Episode] = super().get_queryset(request)
        return rows.annotate(key_public_id=Subquery(keys.values("public_id")[:1]))

    @admin.display(description=_("what"))
    def what(self, episode: Episode) -> str:
        return words.sentence(episode, key=_key(episode))

    @admin.display(description=_("look"))
    def look(self, episode: Episode) -> str:
        links = [
            (words.look_path(episode, key=_key(episode), now=timezone.now()), _("what happened at that time")),
            (words.outage_path(episode), _("the outage")),
        ]
        return format_html_join(", ", '<a href="{}">{}</a>', (link for link in links if link[0]))

    @admin.display(description=_("about"))
    def about(self, episode: Any) -> str:
        if not episode.subject:
            return str(_("all callers"))
        return shown_as(episode.key_public_id) if episode.key_public_id else str(_("a deleted key"))

    @admin.display(description=_("started"), ordering="started_at")
    def started(self, episode: Episode) -> str:
        return written(episode.started_at)

    @admin.display(description=_("ended"), ordering="ended_at")
    def ended(self, episode: Episode) -> str:
        return written(episode.ended_at) if episode.ended_at else str(_("still open"))

    @admin.display(description=_("acknowledged"))
    def acknowledged(self, episode: Episode) -> str:
        return written(episode.acknowledged_at) if episode.acknowledged_at else NOTHING

    @admin.display(description=_("worst value"))
    def worst_value(self, episode: Episode) -> str:
        return words.amount(episode.kind, episode.worst)

    @admin.display(description=_("threshold"))
    def threshold_value(self, episode: Episode) -> str:
        return words.amount(episode.kind, episode.threshold)

    def save_model(self, request: HttpRequest, obj: Episode, form: Any, change: bool) -> None:
        """Saving the note acknowledges the episode; only that is written, for it may go on meanwhile."""
        obj.acknowledged_at = timezone.now()
        obj.acknowledged_by = request.user.get_username()[:150]
        obj.save(update_fields=["note", "acknowledged_at", "acknowledged_by"])

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("ratelimit_app.acknowledge_episode")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
