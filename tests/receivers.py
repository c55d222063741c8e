"""Who takes the webhooks of a test? A real HTTP server that remembers what it was sent, and answers as it is told.

`hook = pytest.fixture(hooked)`, then `blocked(2)`, `alerts.evaluate()` and `send_all()` have it told of an alert.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from django.utils import timezone

from ratelimit_app import alerts
from ratelimit_app.models import AlertMessage
from tests import statistics

SITE = "https://ops.example.com"


@dataclass
class Receiver:
    port: int = 0
    #: Given to each request, in order; the last one for ever.
    statuses: list[int] = field(default_factory=lambda: [200])
    #: Sent along with an answer that redirects.
    location: str = ""
    #: Method, path, headers (names in lower case) and body of each request.
    received: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    #: While it is not set, nobody is answered.
    answering: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def receiver(*statuses: int) -> Iterator[Receiver]:
    """A receiver for the length of a block."""
    state = Receiver(statuses=list(statuses) or [200])
    state.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.received.append((self.command, self.path, headers, body))
            state.answering.wait(30)
            status = state.statuses.pop(0) if len(state.statuses) > 1 else state.statuses[0]
            self.send_response(status)
            if state.location:
                self.send_header("Location", state.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - what a followed redirect would do

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.answering.set()
        server.shutdown()
        server.server_close()
        thread.join()


def hooked(configure: Callable[..., None]) -> Iterator[Receiver]:
    """A receiver that alerts are posted to."""
    with receiver() as started:
        configure(ALERT_WEBHOOK_URL=started.url, SITE_URL=SITE)
        yield started


def blocked(minutes_ago: int, *, identity: str = "") -> None:
    """A tenth of 1,000 requests were blocked in that minute."""
    minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes_ago)
    statistics.used(identity, at=minute, allowed=900, refused=100)


def send_all() -> list[bool]:
    """Send what is due; whether each was sent."""
    return [alerts.send(pk) for pk in alerts.due()]


def retry_now() -> None:
    """Let all that failed be due."""
    AlertMessage.objects.exclude(next_attempt_at=None).update(next_attempt_at=timezone.now())
