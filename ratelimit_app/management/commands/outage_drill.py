"""What would an outage of Redis do to each limit? `manage.py outage_drill` tries it in its own process alone."""

from __future__ import annotations

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ratelimit_app import drill
from ratelimit_app.drill.exercise import Question, made_up, questions_of
from ratelimit_app.models import APIKey, Plan

_HEADS: tuple[str, ...] = (
    *("", "plan", "limit", "mode", "on failure", "requests"),
    *("by Redis", "from memory", "unchecked", "allowed", "429", "503", "longest"),
)
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")


class Command(BaseCommand):
    help = (
        "Make this process, and no other, believe that Redis is gone or slow; send made-up requests meanwhile, and say "
        "what happened to each limit. Callers and servers notice nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--seconds", type=_number(1, 3600), default=10.0, metavar="N", help="how long it lasts; 10 by default"
        )
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--gone", action="store_true", help="Redis refuses connections; this is the default")
        kind.add_argument("--slow-by", type=_time, metavar="50ms", help="every reply of Redis is late by so much")
        parser.add_argument(
            "--plan", action="append", default=[], metavar="SLUG", help="try this plan; all of them by default"
        )
        parser.add_argument(
            "--key",
            action="append",
            default=[],
            metavar="PUBLIC_ID",
            help="try as this key, which spends its own tokens, instead of as a made-up caller",
        )
        parser.add_argument(
            "--rate", type=_number(1, 1000), default=50.0, metavar="R", help="requests a second, in all; 50 by default"
        )
        parser.add_argument(
            "--count", action="store_true", help="count the requests in the statistics, to see pages and alerts react"
        )
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        questions = _questions(options["plan"], options["key"])
        try:
            exercise = drill.Exercise(
                questions,
                seconds=options["seconds"],
                per_second=options["rate"],
                slow_by_seconds=options["slow_by"],
                is_counted=options["count"],
            )
            report = exercise.hold(tell=self.stderr.write)
        except (drill.Unfit, drill.NoDetour) as problem:
            raise CommandError(str(problem)) from None
        except KeyboardInterrupt:
            raise CommandError("The drill was broken off.") from None
        self.stdout.write(json.dumps(asdict(report), indent=2) if options["json"] else _as_text(report))


def _questions(slugs: list[str], public_ids: list[str]) -> list[Question]:
    found: list[Question] = []
    plans = Plan.objects.exclude(audience=Plan.Audience.EVERYONE)
    for slug in slugs:
        if not plans.filter(slug=slug).exists():
            known = ", ".join(plans.order_by("slug").values_list("slug", flat=True)) or "none"
            raise CommandError(f"There is no plan {slug!r} that a caller can be on. Those are: {known}.")
    for public_id in public_ids:
        key = APIKey.objects.filter(public_id=public_id).first()
        if key is None or not key.usable:
            raise CommandError(f"There is no key with the public id {public_id!r} that may be used.")
        found += questions_of(key.as_caller())
    if slugs or not public_ids:
        for plan in plans.filter(slug__in=slugs) if slugs else plans:
            found += questions_of(made_up(plan.pk, has_key=plan.audience == Plan.Audience.KEYS))
    return found


def _as_text(report: drill.Report) -> str:
    what = "gone" if report.slow_by_seconds is None else f"slow by {report.slow_by_seconds * 1000:g} ms"
    lines = [f"Redis at {report.place} was {what} for {report.seconds:g} s, for this process alone."]
    if report.noticed_after_seconds is None:
        lines.append("Redis decided every request all the same.")
    else:
        lines.append(
            f"The first request without Redis came after {report.noticed_after_seconds * 1000:.0f} ms "
            f"({', '.join(report.failures)}); Redis decided again {report.resumed_after_seconds or 0:.2f} s after it "
            f"was back. Local limits were shared among {report.gateways} processes."
        )
    rows = [_HEADS]
    for row in report.limits:
        for name, phase in (("before", row.before), ("during", row.during), ("after", row.after)):
            counts = (phase.decisions, phase.by_redis, phase.from_memory, phase.unchecked)
            answers = (phase.allowed, phase.refused, phase.failed_closed)
            longest = f"{phase.longest_seconds * 1000:.1f} ms"
            rows.append((name, row.plan, row.limit, row.mode, row.on_failure, *map(str, counts + answers), longest))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(_padded, row, widths, range(len(row)))).rstrip() for row in rows]
    return "\n".join(lines)


def _padded(cell: str, width: int, place: int) -> str:
    return cell.rjust(width) if place >= _HEADS.index("requests") else cell.ljust(width)


def _number(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}.")
        return value

    return number


def _time(text: str) -> float:
    match = _TIME.fullmatch(text)
    seconds = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else 0.0
    if not 0 < seconds <= 60:
        raise ArgumentTypeError(f"{text!r} is no time such as 50ms or 2s, up to 60s.")
    return seconds
