"""Does a client that nobody here wrote get along with our answers? `requests`, with urllib3's `Retry`."""

from __future__ import annotations

import time

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_client_that_honours_retry_after_never_sees_an_error(live_server, make_plan, make_key):
    burst, per_second = 20, 2
    key = make_key(make_plan(requests=120, period_seconds=60, burst=burst))[1]
    retry = Retry(total=3, allowed_methods=["GET"], status_forcelist=[429], respect_retry_after_header=True)
    started = time.monotonic()
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retry))
        session.headers["Authorization"] = f"Bearer {key}"
        answers = [session.get(f"{live_server.url}/api/ping/", timeout=10) for _ in range(60)]
    elapsed = time.monotonic() - started
    assert [answer.status_code for answer in answers] == [200] * 60
    assert burst + per_second * elapsed >= 60, "no more than the plan allows"
    # It waited when told to, and for about as long as it had to.
    assert elapsed < 60
