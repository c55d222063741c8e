"""Does `manage.py demo` show what it promises, and does nothing of it outlive it?"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from project.demo import processes
from tests.servers import RedisServer

ROOT = Path(__file__).resolve().parent.parent
STARTS_WITHIN_SECONDS = 60
ENDS_WITHIN_SECONDS = 30

pytestmark = pytest.mark.timeout(300)


class Demo:
    """A running demo, as somebody who started it sees it."""

    def __init__(self, directory: Path, *arguments: str, through: tuple[str, ...] = ()) -> None:
        self.data_dir = directory / "demo"
        self.port = processes.free_port()
        self.output = directory / "output"
        command = [sys.executable, "manage.py", "demo", "--port", str(self.port), *arguments]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*through, *command],
                cwd=ROOT,
                env=environment(self.data_dir),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def line(self, label: str) -> str:
        """What stands behind a label; waits until the line is there."""
        deadline = time.monotonic() + STARTS_WITHIN_SECONDS
        while not (found := re.search(rf"^{label} +(\S.*?)\s*$", self.text(), re.MULTILINE)):
            assert self.process.poll() is None, f"the demo ended:\n{self.text()}"
            assert time.monotonic() < deadline, f"no line {label!r}:\n{self.text()}"
            time.sleep(0.05)
        return found[1]

    def wait(self) -> int:
        return self.process.wait(ENDS_WITHIN_SECONDS)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(ENDS_WITHIN_SECONDS)


def environment(data_dir: Path) -> dict[str, str]:
    """What somebody has who just cloned this; a Redis that was given to the tests is given to the demo."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TEST_")}
    for name in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "DEBUG", "SECRET_KEY"):
        own.pop(name, None)
    if os.environ["REDIS_URL"] == os.environ.get("TEST_EMBEDDED_REDIS_URL"):
        del own["REDIS_URL"]
    return own | {"DATA_DIR": str(data_dir), "PYTHONDONTWRITEBYTECODE": "1"}


def family(pid: int) -> set[int]:
    """A process and all that it started, directly or not, as far as they live."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listing.splitlines())}
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    states = {int(pid): state for pid, state in (line.split() for line in listing.splitlines())}
    return {pid for pid in pids if not states.get(pid, "Z").startswith("Z")}


def sign_in(base: str, *, user: str, password: str) -> requests.Session:
    session = requests.Session()
    form = session.get(f"{base}/admin/login/", timeout=10).text
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert token
    answer = session.post(
        f"{base}/admin/login/",
        data={"username": user, "password": password, "csrfmiddlewaretoken": token[1], "next": "/healthz"},
        timeout=10,
    )
    assert answer.url.endswith("/healthz"), "signing in failed"
    return session


def counted(page: str, caller: str) -> tuple[int, int]:
    """(allowed, blocked) of a caller on the overview page; zeros while it is not there."""
    row = next((row for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if caller in row), "")
    numbers = [int(value) for value in re.findall(r'<data value="(\d+)"', row)]
    return (numbers[0] - numbers[1], numbers[1]) if numbers else (0, 0)


@pytest.fixture
def demos() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def start(demos: contextlib.ExitStack, directory: Path, *arguments: str, through: tuple[str, ...] = ()) -> Demo:
    demo = Demo(directory, *arguments, through=through)
    demos.callback(demo.close)
    return demo


def test_the_dashboard_shows_refusals_that_went_through_the_worker(demos, tmp_path, wait_until):
    demo = start(demos, tmp_path, "--seconds", "120")
    dashboard, login, try_it = demo.line("Dashboard"), demo.line("Login"), demo.line("Try it")
    said = re.fullmatch(r'curl -i -H "Authorization: (Bearer (\S+))" (\S+)', try_it)
    assert said, try_it
    header, key, url = said.groups()
    everything = family(demo.process.pid)

    with requests.Session() as caller:
        answers = [caller.get(url, headers={"Authorization": header}, timeout=10) for _ in range(30)]
    statuses = [answer.status_code for answer in answers]
    refusals = statuses.count(429)
    assert statuses[:20] == [200] * 20
    assert refusals > 0, "30 calls met a burst of 20 and a token each second, and none was refused"
    assert answers[0].headers["X-RateLimit-Remaining"] == "19"
    assert re.fullmatch(r"[1-9][0-9]*", answers[statuses.index(429)].headers["Retry-After"])

    user, password = login.split(" / ")
    with sign_in(f"http://127.0.0.1:{demo.port}", user=user, password=password) as session:

        def overview() -> str:
            answer = session.get(dashboard + "?callers=all", timeout=10)
            assert answer.status_code == 200
            return answer.text

        wait_until(lambda: counted(overview(), "Your terminal") == (30 - refusals, refusals), seconds=40)
        wait_until(lambda: counted(overview(), "Camden price tracker")[1] > 0, seconds=40)
        assert re.search(r'id="ops-queue-depth" value="\d+"', overview())
    refused = 'ratelimit_decisions_total{outcome="refused"'  # told by whichever process is asked, seconds later
    wait_until(lambda: refused in requests.get(demo.line("Metrics"), timeout=10).text, seconds=40)

    stored = b"".join(path.read_bytes() for path in demo.data_dir.rglob("*") if path.is_file())
    assert key.split("_")[2].encode() in stored, "the public id is in the database"
    assert key.encode() not in stored
    assert key.rpartition("_")[2].encode() not in stored, "of the secret only a digest is stored"

    demo.process.send_signal(signal.SIGTERM)
    assert demo.wait() == 0, demo.text()
    wait_until(lambda: not alive(everything), seconds=5)
    assert processes.port_is_free(demo.port)


def test_it_ends_by_itself_without_a_terminal_and_leaves_your_own_redis_running(
    demos, tmp_path, monkeypatch, wait_until
):
    mine = RedisServer(tmp_path / "mine")
    demos.callback(mine.stop)
    monkeypatch.setenv("REDIS_URL", mine.url)
    demo = start(demos, tmp_path, "--seconds", "2", "--no-traffic", "--reset")
    said = re.search(r'"Authorization: (.*)" (\S+)', demo.line("Try it"))
    assert said
    everything = family(demo.process.pid)

    assert requests.get(said[2], headers={"Authorization": said[1]}, timeout=10).status_code == 200
    with mine.client() as client:
        assert client.keys("rl*"), "the bucket is in the Redis that was named"

    assert demo.wait() == 0, demo.text()
    wait_until(lambda: not alive(everything), seconds=5)
    assert not (demo.data_dir / "traffic.log").exists()
    assert not processes.port_is_free(mine.port)


def test_nothing_outlives_a_demo_that_is_killed(demos, tmp_path, wait_until):
    demo = start(demos, tmp_path, "--no-traffic")
    demo.line("Stop")
    everything = family(demo.process.pid)
    assert len(everything) > 6, "a web server with workers, a worker, beat, a keeper, perhaps Redis"

    demo.process.kill()

    demo.wait()
    wait_until(lambda: not alive(everything), seconds=20)


@pytest.mark.parametrize("pressed", ["q", "\x03"], ids=["q", "Ctrl+C"])
def test_a_key_in_the_terminal_ends_it(demos, tmp_path, wait_until, pressed):
    terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    demo = start(demos, tmp_path, "--no-traffic", through=(sys.executable, "-c", terminal))
    demo.line("Stop")
    everything = family(demo.process.pid)

    assert demo.process.stdin is not None
    demo.process.stdin.write(pressed.encode())
    demo.process.stdin.flush()

    assert demo.wait() == 0, demo.text()
    wait_until(lambda: not alive(everything), seconds=5)
    assert "Traceback" not in demo.text()


def test_an_occupied_port_gets_one_clear_line(tmp_path):
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        port = str(occupant.getsockname()[1])
        ended = subprocess.run(
            [sys.executable, "manage.py", "demo", "--port", port],
            cwd=ROOT,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
        )

    assert ended.returncode != 0
    assert len(ended.stderr.strip().splitlines()) == 1
    assert port in ended.stderr
