"""When could Redis not be asked? Spans, as each gateway process saw them; `stats.outages` makes outages of them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class OutageSpan(models.Model):
    """One gateway could not ask one server, for one reason."""

    #: Stands for the process.
    gateway = models.CharField(_("gateway"), max_length=16)
    #: Which node of a cluster; "" is the one server.
    server = models.CharField(_("server"), max_length=100, blank=True)
    started_at = models.DateTimeField(_("started"))
    #: As in the log lines: one word.
    error = models.CharField(_("reason"), max_length=50)
    #: When the server was last found silent; of one that is over, when it answered again.
    last_seen_at = models.DateTimeField(_("last seen"), db_index=True)
    #: 1 when the server answers again, 0 while it does not; a process that died leaves a 0.
    ended = models.PositiveSmallIntegerField(_("ended"), default=0)

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("outage")
        verbose_name_plural = _("outages")
        constraints = [
            models.UniqueConstraint(
                name="ratelimit_app_outage_span", fields=["gateway", "server", "started_at", "error"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} {self.error} {self.gateway}"
