"""How long does each page take, and with how many queries? Over tables filled anew, in the database that is named.

A part of `python -m bench.pages`, which runs it once for each size; prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--minutes", type=int, required=True)
    options = parser.parse_args()
    import django
    from django.conf import settings
    from django.core.management import call_command
    from django.test import override_settings

    django.setup()
    call_command("migrate", verbosity=0)
    from bench import crowd
    from ratelimit_app.resolutions import USAGE

    crowd.fill(keys=options.keys, minutes=options.minutes)
    rows = {resolution.name: model._base_manager.count() for resolution, model in USAGE.tables.items()}
    # The middleware reads the plans again now and then, in whatever request it is.
    with override_settings(RATELIMIT_APP={**settings.RATELIMIT_APP, "CACHE_TTL_SECONDS": 3600}):
        sys.stdout.write(json.dumps({"keys": options.keys, "rows": rows, "pages": _pages()}) + "\n")


def _pages() -> dict[str, dict[str, Any]]:
    from django.contrib.auth import get_user_model
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from ratelimit_app.models import PlanLimit
    from tests import ops_pages

    client = Client()
    client.force_login(get_user_model().objects.create_superuser("ann"))
    limit, shadow = PlanLimit.objects.select_related("plan").order_by("pk")[:2]
    about = ops_pages.subjects(limit, shadow)
    found = {}
    for name in ops_pages.NAMES:
        answer = ops_pages.open_page(client, name, about)
        if answer.status_code != 200:
            raise RuntimeError(f"{name}: {answer.status_code}")
        with CaptureQueriesContext(connection) as captured:
            ops_pages.open_page(client, name, about)
            queries = len(captured)  # in here: the next request forgets them
        took = []
        for _ in range(RUNS):
            began = time.perf_counter()
            ops_pages.open_page(client, name, about)
            took.append((time.perf_counter() - began) * 1e3)
        found[name] = {"queries": queries, "median_ms": round(median(took), 1), "most_ms": round(max(took), 1)}
    return found


if __name__ == "__main__":
    main()
