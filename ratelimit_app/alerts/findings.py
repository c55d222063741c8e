"""What is wrong right now? Read from the statistics with a fixed number of queries, however many keys there are.

Shares and times are taken over five whole minutes that are settled: every process had the time to
send them. What must never happen at all is looked for in the last hour, so that rows which come
late, when a broker is back, are not missed; such rows count from the end of the last episode on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Max, Min, Q, QuerySet, Sum

from ratelimit_app import conf, stats
from ratelimit_app.models import Batch, DecisionMinute, DroppedMinute, Episode, PlanMinute, UsageMinute

Kind = Episode.Kind

WINDOW = timedelta(minutes=5)
#: How far back rows that come late are still looked for.
LOOKBACK = timedelta(hours=1)
#: How long after the last flush of a minute its rows are expected to be stored.
_SETTLING_SECONDS = 20
#: An episode goes on until its value is below this part of the threshold, or it would begin and end all the time.
_CLEAR = 0.8
#: At most so many keys have an open episode: a fault that hurts all keys must not send a message for each.
KEYS_AT_ONCE = 10
#: Data is missed when so many minutes of the last hour that had any had some: seldom traffic may well pause.
_STEADY_MINUTES = 45
#: Refusals that are counted but not kept in full are no loss: every flood has them.
_NO_LOSS = "samples"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or not yet right again."""

    kind: Kind
    #: The bucket identity of a key; "" for all callers.
    subject: str
    since: datetime
    until: datetime
    #: In the unit of the kind, as the threshold.
    value: float
    threshold: float
    #: Whether an episode begins with it; if not, it only keeps an open one from ending.
    opens: bool = True


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far the statistics can be believed."""

    now: datetime
    #: The end of the last minute that is complete.
    settled: datetime
    newest_batch_at: datetime | None
    #: The beginning of the newest minute with decisions.
    newest_minute: datetime | None
    #: What is wrong with the arrival of data.
    findings: tuple[Finding, ...] = ()


def horizon(*, now: datetime) -> Horizon:
    """How far the statistics reach. Two queries; one more when nothing arrives."""
    settings = conf.current()
    complete = now - timedelta(seconds=settings.counts_flush_seconds + _SETTLING_SECONDS)
    settled = complete.replace(second=0, microsecond=0)
    newest_batch_at = Batch.objects.aggregate(newest=Max("received_at"))["newest"]
    newest_minute = DecisionMinute.objects.aggregate(newest=Max("minute"))["newest"]
    if newest_batch_at is None or newest_minute is None or not settings.alert_late_seconds:
        return Horizon(now, settled, newest_batch_at, newest_minute)
    findings = tuple(_arrivals(now=now, batch_at=newest_batch_at, minute=newest_minute))
    if any(finding.opens for finding in findings):
        settled = min(settled, newest_minute)  # what did not arrive is no news, and ends nothing
    return Horizon(now, settled, newest_batch_at, newest_minute, findings)


def _arrivals(*, now: datetime, batch_at: datetime, minute: datetime) -> Iterator[Finding]:
    late_after = conf.current().alert_late_seconds
    silent = (now - batch_at).total_seconds()
    if silent > late_after:
        if conf.current().mode != "off" and _is_steady(minute):
            yield Finding(Kind.NO_DATA, "", batch_at, now, silent, late_after)
        return
    until = minute + timedelta(minutes=1)
    late = (batch_at - until).total_seconds()
    if late > late_after * _CLEAR:
        yield Finding(Kind.LATE, "", until, now, late, late_after, opens=late > late_after)


def _is_steady(minute: datetime) -> bool:
    hour = DecisionMinute.objects.filter(minute__gt=minute - timedelta(hours=1), minute__lte=minute)
    return hour.values("minute").distinct().count() >= _STEADY_MINUTES


def look(
    reach: Horizon, *, open_episodes: Mapping[tuple[str, str], Episode], ended: Mapping[tuple[str, str], datetime]
) -> Iterator[Finding]:
    """All that is wrong. Both mappings are by kind and subject; `ended` has the last moment of recent episodes."""
    yield from reach.findings
    yield from _blocked(reach)
    yield from _blocked_keys(reach, {subject for kind, subject in open_episodes if kind == Kind.KEY_BLOCKED})
    yield from _slow(reach)
    undecided = PlanMinute.objects.filter(Q(unchecked__gt=0) | Q(failed_closed__gt=0) | Q(local__gt=0))
    dropped = DroppedMinute.objects.filter(dropped__gt=0).exclude(kind=_NO_LOSS)
    for kind, rows, value in (
        (Kind.UNCHECKED, undecided, Sum(F("unchecked") + F("failed_closed") + F("local"))),
        (Kind.DROPPED, dropped, Sum("dropped")),
    ):
        episode = open_episodes.get((kind, ""))
        start = reach.settled - LOOKBACK
        if episode is not None:
            start = max(start, episode.started_at)
        elif (kind, "") in ended:
            start = max(start, ended[kind, ""])  # what was told is not told again
        yield from _counted(kind, rows.filter(minute__gte=start, minute__lte=reach.now), value)


def _within(reach: Horizon) -> Q:
    return Q(minute__gte=reach.settled - WINDOW, minute__lt=reach.settled)


def _blocked(reach: Horizon) -> Iterator[Finding]:
    settings = conf.current()
    if threshold := settings.alert_blocked_percent:
        totals = PlanMinute.objects.filter(_within(reach))
        sums = totals.aggregate(all=Sum(F("allowed") + F("refused")), blocked=Sum("refused"))
        everything, blocked = int(sums["all"] or 0), int(sums["blocked"] or 0)
        if everything >= settings.alert_min_requests:
            yield from _over(Kind.BLOCKED, "", reach, blocked * 100 / everything, threshold)


def _blocked_keys(reach: Horizon, already_open: Collection[str]) -> Iterator[Finding]:
    settings = conf.current()
    threshold = settings.alert_key_blocked_percent
    if not threshold:
        return
    keys = (
        UsageMinute.objects.filter(_within(reach))
        .exclude(identity__in=[stats.NO_KEY, stats.OTHERS])
        .values("identity")
        .annotate(all=Sum(F("allowed") + F("refused")), blocked=Sum("refused"))
        .filter(all__gte=settings.alert_min_requests)
    )
    rows = list(keys.filter(identity__in=already_open).order_by())
    if (room := KEYS_AT_ONCE - len(already_open)) > 0:
        # Whole numbers on both sides: a share in floats would depend on the database.
        over = keys.annotate(excess=F("blocked") * 10_000 - F("all") * round(threshold * 100)).filter(excess__gt=0)
        rows += over.exclude(identity__in=already_open).order_by("-blocked", "identity")[:room]
    for row in rows:
        yield from _over(Kind.KEY_BLOCKED, row["identity"], reach, int(row["blocked"]) * 100 / row["all"], threshold)


def _slow(reach: Horizon) -> Iterator[Finding]:
    settings = conf.current()
    if threshold := settings.alert_p99_seconds:
        times = stats.decision_times(stats.Window(reach.settled - WINDOW, reach.settled, bucket_seconds=60))
        if times.p99_microseconds is not None and times.decisions >= settings.alert_min_requests:
            yield from _over(Kind.SLOW, "", reach, times.p99_microseconds / 1e6, threshold)


def _over(kind: Kind, subject: str, reach: Horizon, value: float, threshold: float) -> Iterator[Finding]:
    if value > threshold * _CLEAR:
        since, until = reach.settled - WINDOW, reach.settled
        yield Finding(kind, subject, since, until, value, threshold, opens=value > threshold)


def _counted(kind: Kind, rows: QuerySet[PlanMinute] | QuerySet[DroppedMinute], value: Sum) -> Iterator[Finding]:
    found = rows.aggregate(first=Min("minute"), last=Max("minute"), value=value)
    if found["value"]:
        yield Finding(kind, "", found["first"], found["last"] + timedelta(minutes=1), int(found["value"]), 0)
