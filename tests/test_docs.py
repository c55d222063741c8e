"""Do the pages tell the truth? Their links lead somewhere, their lists are complete, and their code is run."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
from django.test import override_settings

from ratelimit_app import checks, conf
from tests.followed_pages import FENCE, ROOT, Project, fences, section
from tests.servers import RedisServer

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# --- What is written ---------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings, as GitHub makes links of them."""
    text = FENCE.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_on_a_page_leads_somewhere(page):
    text = FENCE.sub("", page.read_text())
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    broken = []
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_a_page_is_python(page):
    for _language, code in fences(page.read_text(), "python"):
        compile(code, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_each_setting_has_a_heading_in_the_reference_and_the_other_way_round():
    headings = re.findall(r"^## (.+)$", (ROOT / "docs/settings.md").read_text(), re.MULTILINE)
    assert headings == list(conf.NAMES)


@pytest.mark.parametrize("name", conf.NAMES)
def test_the_reference_states_the_default_in_force(name):
    stated = re.search(r"Default: `(.+)`", section("docs/settings.md", name))
    assert stated, f"{name} has no line with its default"
    default = ast.literal_eval(stated[1])
    with override_settings(RATELIMIT_APP={}):  # no longer: the default timeouts are none for a busy machine
        in_force = getattr(conf.current(), name.lower())
    assert (tuple(default) if isinstance(default, list) else default) == in_force


def test_each_system_check_is_listed():
    source = "".join(module.read_text() for module in Path(checks.__file__).parent.glob("*.py"))
    issued = set(re.findall(r"ratelimit_app\.[EW]\d{3}", source))
    listed = set(re.findall(r"ratelimit_app\.[EW]\d{3}", section("docs/operations.md", "System checks")))
    assert listed == issued


def test_each_make_target_that_a_page_names_exists():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for page in PAGES
        for code in re.findall(r"`([^`\n]+)`", page.read_text()) + [code for _, code in fences(page.read_text(), "sh")]
        for target in re.findall(r"\bmake ([a-z][a-z-]*)", code)
    }
    assert named <= targets


def test_the_changelog_begins_with_what_is_unreleased():
    first, *_earlier = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first.startswith("Unreleased")


# --- What is run -------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, redis_server: Callable[..., RedisServer]) -> Iterator[Project]:
    directory = tmp_path / "site"
    directory.mkdir()
    with ExitStack() as stack:
        yield Project(directory, redis_server(), stack)


def test_the_quickstart_ends_in_a_refusal_that_the_overview_shows(project, wait_until):
    project.follow(section("docs/quickstart.md", "1. A project"))
    # Not on the page: a busy machine must not fail a test.
    patient = '"TIMEOUT_SECONDS": 1.0, "CONNECT_TIMEOUT_SECONDS": 1.0'
    project.follow(section("docs/quickstart.md", "2. A plan and a key"))
    project.follow(section("docs/quickstart.md", "3. Requests"))
    assert project.statuses == [200]
    assert not [name for name in project.call().headers if "RateLimit" in name]
    assert project.get("/api/hello/").status_code == 401
    assert project.get("/api/hello/", headers={"Authorization": "Bearer wrong"}).status_code == 401

    project.append("shop/settings.py", f"RATELIMIT_APP |= {{{patient}}}\n")
    files, _start, loop = section("docs/quickstart.md", "4. See it on the dashboard").partition("Restart the server")
    project.follow(files)
    project.serve()
    project.follow(loop)
    assert project.statuses == [200] * 26
    loop_alone = "".join(f"```sh\n{code}```" for _, code in fences(loop, "sh") if code.startswith("for "))
    browser = signed_in(project)
    # The 25 requests suffice unless the machine is so busy that tokens come back meanwhile.
    wait_until(lambda: would_have_blocked(browser, project) > 0 or project.follow(loop_alone), seconds=40)

    project.follow(section("docs/quickstart.md", "5. Enforce"))
    project.append("shop/settings.py", f"RATELIMIT_APP |= {{{patient}}}\n")
    project.serve()
    refused = next(answer for answer in iter(project.call, None) if answer.status_code == 429)
    assert refused.headers["Retry-After"] == "1"
    receipt = refused.json()["instance"]
    found = f"http://127.0.0.1:{project.port}/admin/ratelimit_app/refusal/?q={receipt}"
    wait_until(lambda: "1 refusal" in browser.get(found, timeout=10).text, seconds=40)

    client: dict[str, Any] = {}
    ((_language, code),) = fences((ROOT / "docs/client-guide.md").read_text(), "python")
    exec(code, client)  # noqa: S102 (what the client guide tells people to write)
    with client["session"] as session:
        session.headers["Authorization"] = f"Bearer {project.key}"
        for _ in range(3):
            assert session.get(f"http://127.0.0.1:{project.port}/api/hello/", timeout=10).status_code == 200


def signed_in(project: Project) -> requests.Session:
    """A session of the user that the page made, in the admin."""
    session = requests.Session()
    login = f"http://127.0.0.1:{project.port}/admin/login/"
    form = session.get(login, timeout=10)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)
    assert token
    fields = {"username": "ann", "password": "a password of ann", "csrfmiddlewaretoken": token[1], "next": "/admin/"}
    assert session.post(login, data=fields, timeout=10).url.endswith("/admin/")
    return session


def would_have_blocked(browser: requests.Session, project: Project) -> int:
    """What the overview says of limits in shadow."""
    page = browser.get(f"http://127.0.0.1:{project.port}/admin/ratelimit_app/overview/", timeout=10).text
    shadow = page.partition('id="rl-shadow"')[2].partition("</section>")[0]
    return sum(int(count) for count in re.findall(r'<data value="(\d+)"', shadow))


FAIL_CLOSED = """
import django

django.setup()
from ratelimit_app.models import PlanLimit

PlanLimit.objects.update(name="login", on_failure="closed")
"""
PROBE = """
import json
import sys

import django

django.setup()
from django.conf import settings
from django.test import Client

settings.ALLOWED_HOSTS = ["*"]
client = Client(headers={"Authorization": "Bearer " + sys.argv[1]})
answers = (client.get("/api/hello/") for _ in range(1000))
first = next(answers)
worst = first if first.status_code == 503 else next(answer for answer in answers if answer.status_code == 429)
json.dump([[answer.status_code, dict(answer.headers), answer.json()] for answer in (first, worst)], sys.stdout)
"""


def test_the_readme_sets_a_project_up_and_shows_the_answers_that_it_gives(project):
    project.run(sys.executable, "-m", "django", "startproject", "shop", ".")
    project.append(
        "shop/settings.py",
        'CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}\nREST_FRAMEWORK = {}\n',
    )
    project.append(
        "shop/urls.py",
        next(
            code for _, code in fences(section("docs/quickstart.md", "1. A project"), "python") if "urlpatterns" in code
        ),
    )
    (set_up, *_others) = (code for _, code in fences(section("README.md", "Add it to your project"), "python"))
    project.append("shop/settings.py", set_up)
    assert "no issues" in project.run(sys.executable, "manage.py", "check")
    project.run(sys.executable, "manage.py", "migrate", "--verbosity", "0")
    project.follow(
        "\n".join(
            f"```{lang}\n{code}```" for lang, code in fences(section("docs/quickstart.md", "2. A plan and a key"))
        )
    )
    project.append(
        "shop/settings.py",
        'RATELIMIT_APP = {"MODE": "enforce", "TIMEOUT_SECONDS": 1.0, "CONNECT_TIMEOUT_SECONDS": 1.0}\n',
    )
    allowed, refused = (text for _, text in fences(section("README.md", "What a caller gets"), "http"))

    first, worst = json.loads(project.run(sys.executable, "-c", PROBE, project.key))

    assert_as_shown(allowed, *first)
    assert_as_shown(refused, *worst)

    project.redis.stop()
    ((_language, failed),) = fences(section("README.md", "When Redis is down"), "http")

    _first, worst = json.loads(project.run(sys.executable, "-c", FAIL_CLOSED + PROBE, project.key))

    assert_as_shown(failed, *worst)


def assert_as_shown(shown: str, status: int, headers: dict[str, str], body: dict[str, Any]) -> None:
    """An answer is the one on the page, but for what is new each time."""
    head, _, problem = shown.partition("\n\n")
    status_line, *lines = head.splitlines()
    assert status_line.split()[1] == str(status)
    for name, _, value in (line.partition(": ") for line in lines):
        if name == "X-RateLimit-Reset":
            assert len(headers[name]) == len(value)
        else:
            assert (name, headers[name]) == (name, value)
    if problem:
        expected = json.loads(problem)
        assert body.pop("instance").startswith("urn:uuid:")
        expected.pop("instance")
        assert body == expected
