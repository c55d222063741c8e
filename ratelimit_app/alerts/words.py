"""How is an alert said to people? A sentence, its numbers in the unit of the kind, and where to look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode, urlsplit

from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ratelimit_app import conf, stats
from ratelimit_app.models import APIKey, Episode, OutageSpan

Kind = Episode.Kind

_SENTENCES = {
    Kind.BLOCKED: gettext_lazy("%(worst)s of all requests were blocked; the threshold is %(threshold)s."),
    Kind.KEY_BLOCKED: gettext_lazy("%(key)s had %(worst)s of its requests blocked; the threshold is %(threshold)s."),
    Kind.UNCHECKED: gettext_lazy("%(worst)s requests within an hour were not decided by Redis."),
    Kind.SLOW: gettext_lazy("The p99 of the time that decisions take was %(worst)s; the budget is %(threshold)s."),
    Kind.DROPPED: gettext_lazy(
        "%(worst)s records within an hour did not fit into the buffers: the statistics are short of them."
    ),
    Kind.LATE: gettext_lazy("Statistics arrive %(worst)s late: a worker is behind, or a queue was not emptied."),
    Kind.NO_DATA: gettext_lazy(
        "No statistics arrived for %(worst)s, after steady traffic: the broker, the worker, or the API stands still."
    ),
}
#: What a page shows around an episode, so that its beginning does not stick to the edge.
_MARGIN = timedelta(minutes=5)


def sentence(episode: Episode, *, key: APIKey | None) -> str:
    """What is or was wrong."""
    kind = Kind(episode.kind)
    return _SENTENCES[kind] % {
        "worst": amount(kind, episode.worst),
        "threshold": amount(kind, episode.threshold),
        "key": key_name(key),
    }


def amount(kind: str, value: float) -> str:
    """A value in the unit of its kind."""
    if kind in (Kind.BLOCKED, Kind.KEY_BLOCKED):
        return f"{_number(value, decimals=1)} %"
    if kind == Kind.SLOW:
        return f"{_number(value * 1000, decimals=1)} ms"
    if kind in (Kind.LATE, Kind.NO_DATA):
        return _("%(minutes)s min") % {"minutes": _number(value / 60, decimals=1)}
    return _number(value)


def key_name(key: APIKey | None) -> str:
    """A key by its name and the beginning of its text."""
    if key is None:
        return _("A deleted key")
    return f"{key.name} ({conf.current().key_prefix}_{key.public_id}…)"


def moment(at: datetime) -> str:
    """A moment for people who read messages: in UTC, since nobody knows in which zone they do."""
    return f"{utc(at):%Y-%m-%d %H:%M} UTC"


def utc(at: datetime) -> datetime:
    """A stored moment in UTC, also where the project stores local times."""
    return (at if timezone.is_aware(at) else timezone.make_aware(at)).astimezone(UTC)


def look_path(episode: Episode, *, key: APIKey | None, now: datetime) -> str:
    """The page of its key, or the overview, over the time of the episode; "" where there is no admin."""
    start, end = utc(episode.started_at) - _MARGIN, utc(episode.ended_at or now) + _MARGIN
    spans = list(stats.RANGES.values())
    chosen = next((span for span in spans if span.seconds >= (utc(now) - start).total_seconds()), spans[-1])
    query = {"range": chosen.slug}
    if episode.ended_at is not None:
        query |= {"from": f"{start:%Y-%m-%dT%H:%MZ}", "to": f"{end:%Y-%m-%dT%H:%MZ}"}
    path = _path("admin:ratelimit_app_apikey_page", key.pk) if key else ""
    if not path:
        path = _path("admin:ratelimit_app_overview_changelist")
        query |= {"key": key.public_id} if key else {}
    return f"{path}?{urlencode(query)}" if path else ""


def episode_path(episode: Episode) -> str:
    """The episode itself, where it is acknowledged; "" where there is no admin."""
    return _path("admin:ratelimit_app_episode_change", episode.pk)


def outage_path(episode: Episode) -> str:
    """The newest outage within an episode of requests that were not decided by Redis; "" where there was none."""
    if episode.kind != Kind.UNCHECKED:
        return ""
    spans = OutageSpan.objects.filter(last_seen_at__gte=episode.started_at, started_at__lt=episode.bad_until)
    span = spans.order_by("-started_at").first()
    return _path("admin:ratelimit_app_outagespan_change", span.pk) if span else ""


def link(path: str) -> str:
    """A path of this site as people outside of it open it; "" when nobody said where the site is."""
    site = conf.current().site_url.rstrip("/")
    return f"{site}{path}" if site and path else ""


def site_name() -> str:
    """Which site a message is about."""
    return urlsplit(conf.current().site_url).hostname or "ratelimit_app"


def _path(name: str, *args: object) -> str:
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""


def _number(value: float, *, decimals: int = 0) -> str:
    return number_format(round(value, decimals), decimal_pos=decimals, use_l10n=True, force_grouping=True)
