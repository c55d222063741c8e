"""A soak from beginning to end; a table for people, and an exit status for machines."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.soak import checks
from tests.soak.callers import EXPECTED, Callers, Summary, summary
from tests.soak.site import THREADS, Site, Use

WARM_UP_SECONDS = 5.0
#: Servers let go of idle connections of callers within so long.
COOL_DOWN_SECONDS = 6.0
#: The part of each round during which Redis is gone.
_DOWN = 0.4


def main() -> int:
    arguments = _arguments()
    if not Path("/proc/self/status").exists():
        sys.exit("A soak reads /proc, which this system does not have.")
    with tempfile.TemporaryDirectory(prefix="ratelimit_app_soak_") as directory, Site(Path(directory)) as site:
        print(f"The limiter's Redis fails {arguments.kills} times in {arguments.seconds:g} s. Starting ...", flush=True)
        site.prepare()
        site.start()
        found = list(_soak(site, seconds=arguments.seconds, kills=arguments.kills))
        failed = [check for check in found if not check.is_good]
        for check in found:
            print(f"{'good' if check.is_good else 'FAILED':>6}  {check.what}: {check.found}")
        if failed:
            for log in sorted(Path(directory).glob("*.log")):
                print(f"--- the end of {log.name}\n{log.read_text(errors='replace')[-1500:]}")
    print(f"{len(found) - len(failed)} of {len(found)} hold.")
    return 1 if failed else 0


def _soak(site: Site, *, seconds: float, kills: int) -> Iterator[checks.Check]:
    with Callers(site.webs, site.keys) as warming:
        time.sleep(WARM_UP_SECONDS)
    before = _use(site)
    print(_row("", "gone s", "sent", *EXPECTED, "other", "slowest ms", "decides again after s"))
    with Callers(site.webs, site.keys) as callers:
        ups = [_fail(site, callers, number, seconds=seconds / kills) for number in range(1, kills + 1)]
    after = _use(site)
    answers = [*warming.answers, *callers.answers]
    yield from checks.of_answers(answers)
    yield checks.of_outages(ups)
    for name, use in after.items():
        yield from checks.of_use(name, before[name], use, workers=THREADS)
    site.stop_webs()
    yield from checks.of_totals(answers)


def _fail(site: Site, callers: Callers, number: int, *, seconds: float) -> Summary:
    """One round: Redis is killed, or stalled every second time, and restored. Returns what came after."""
    redis, down_at = site.limiter_redis, time.monotonic()
    if number % 2:
        redis.kill()
        time.sleep(_DOWN * seconds)
        redis.start()
    else:
        redis.pause()
        time.sleep(_DOWN * seconds)
        redis.resume()
    up_at = time.monotonic()
    time.sleep(max(0.0, down_at + seconds - up_at))
    answers, now = [*callers.answers], time.monotonic()
    whole, up = summary(answers, since=down_at, until=now), summary(answers, since=up_at, until=now)
    by_status = [whole.by_status[status] for status in EXPECTED]
    # fmt: off
    print(_row(
        f"{number} killed" if number % 2 else f"{number} stalled",
        f"{up_at - down_at:.1f}",
        whole.requests,
        *by_status,
        whole.requests - sum(by_status),
        f"{whole.slowest_ms:.0f}",
        "never" if up.exact_after_seconds is None else f"{up.exact_after_seconds:.2f}",
    ), flush=True)
    # fmt: on
    return up


def _use(site: Site) -> dict[str, Use]:
    time.sleep(COOL_DOWN_SECONDS)
    return {web.name: web.use() for web in site.webs}


def _row(*cells: object) -> str:
    first, *rest = cells
    return f"{first!s:<12}" + "".join(f"{cell!s:>{max(8, len(str(cell)) + 2)}}" for cell in rest)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long Redis fails and comes back (300)")
    parser.add_argument("--kills", type=int, default=10, help="how often (10)")
    arguments = parser.parse_args()
    if arguments.kills < 1 or arguments.seconds < 3 * arguments.kills:
        parser.error("at least one kill, and three seconds for each: a process looks for Redis once a second")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
