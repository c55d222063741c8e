"""Does the example project do what it is an example of, under WSGI and under ASGI?"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from django.core.exceptions import ImproperlyConfigured
from django.urls import reverse

from project import environment
from project.demo import processes, seed, traffic
from ratelimit_app.models import APIKey, Plan
from tests.servers import running, wait_for_port
from tests.settings import BROKER_URL

ROOT = Path(__file__).resolve().parent.parent
SERVERS = {
    "WSGI": ["project.wsgi", "--worker-class", "gthread"],
    "ASGI": ["project.asgi", "--worker-class", "uvicorn_worker.UvicornWorker"],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The environment of a prepared deployment, and a key of each plan."""
    data_dir = tmp_path_factory.mktemp("project")
    variables = {
        "DEBUG": "1",
        "DATA_DIR": str(data_dir),
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "REDIS_TIMEOUT_SECONDS": "1",
        "REDIS_CONNECT_TIMEOUT_SECONDS": "1",
    }
    seeded = subprocess.run(
        [sys.executable, "-m", "project.demo.seed"],
        cwd=ROOT,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    return variables, {key["plan"]: key["key"] for key in json.loads(seeded.stdout)["keys"]}


@pytest.fixture
def project_pages(settings):
    """The project's pages in the tests' settings: its folder of templates, and what they ask for."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "project"]
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [ROOT / "templates"]}]
    settings.CELERY_TASK_DEFAULT_QUEUE = "empty"


@contextlib.contextmanager
def served(kind, variables, log_path):
    """The address of the example, served by gunicorn."""
    port = processes.free_port()
    command = [sys.executable, "-m", "gunicorn", *SERVERS[kind], "--bind", f"127.0.0.1:{port}"]
    with running(command, log_path=log_path, environment=variables, directory=ROOT) as process:
        wait_for_port(port, process=process, log_path=log_path)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=SERVERS)
def base(request, project, tmp_path):
    with served(request.param, project[0], tmp_path / "web.log") as address:
        yield address


def manage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    return subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=inherited | variables, capture_output=True, text=True
    )


def test_every_kind_of_view_is_limited_by_the_plan_of_the_key(base, project):
    key = project[1]["business"]
    with requests.Session() as session:
        for path in ("/api/ping/", "/api/items/", "/plain/ping/", "/async/ping/"):
            without = session.get(base + path, timeout=10)
            answer = session.get(base + path, headers={"Authorization": f"Bearer {key}"}, timeout=10)

            assert without.status_code == 401, path
            assert without.headers["WWW-Authenticate"].startswith("Bearer"), path
            assert answer.status_code == 200, path
            assert answer.json(), path
            assert answer.headers["X-RateLimit-Limit"] == "1000", path


def test_guessing_passwords_is_limited_by_address(base, redis_client):
    redis_client.flushdb()  # the other server's guesses came from the same address
    with requests.Session() as session:
        guesses = [
            session.post(f"{base}/api/login/", json={"username": "ops", "password": str(n)}, timeout=10)
            for n in range(6)
        ]

    assert [guess.status_code for guess in guesses[:5]] == [403] * 5
    assert guesses[5].status_code == 429
    assert 1 <= int(guesses[5].headers["Retry-After"]) <= 6


@pytest.mark.parametrize("kind", SERVERS)
def test_in_one_outage_the_api_goes_on_and_its_login_answers_503(kind, project, tmp_path):
    variables = {**project[0], "REDIS_URL": f"redis://127.0.0.1:{processes.free_port()}/0", "BROKER_URL": BROKER_URL}
    with served(kind, variables, tmp_path / "web.log") as base, requests.Session() as session:
        for _ in range(5):  # before the breaker opens, and after
            login = session.post(f"{base}/api/login/", json={"username": "ops", "password": "ops"}, timeout=30)
            assert (login.status_code, login.headers["Retry-After"]) == (503, "5")
            headers = {"Authorization": f"Bearer {project[1]['business']}"}
            for path in ("/api/ping/", "/plain/ping/", "/async/ping/"):
                assert session.get(base + path, headers=headers, timeout=30).status_code == 200, path


def test_a_login_tells_who_it_is_and_refuses_nonsense_with_400(base, redis_client):
    redis_client.flushdb()
    good = requests.post(f"{base}/api/login/", json={"username": "ops", "password": "ops"}, timeout=10)
    nonsense = requests.post(f"{base}/api/login/", json={"username": "ops"}, timeout=10)

    assert (good.status_code, good.json()) == (200, {"user": "ops"})
    assert nonsense.status_code == 400


def test_the_health_check_and_static_files_are_free(base):
    for path in ("/healthz", "/static/admin/css/base.css", "/admin/login/"):
        answer = requests.get(base + path, timeout=10)

        assert answer.status_code == 200, path
        assert not [name for name in answer.headers if "ratelimit" in name.lower()], path


@pytest.mark.parametrize("missing", ["SECRET_KEY", "REDIS_URL"])
def test_without_debug_a_missing_secret_refuses_to_start_in_one_line(missing):
    given = {"SECRET_KEY": "a secret", "REDIS_URL": "redis://127.0.0.1:1/0"}
    del given[missing]

    ended = manage("check", **given)

    assert ended.returncode != 0
    assert len(ended.stderr.strip().splitlines()) == 1
    assert missing in ended.stderr


def test_the_project_passes_every_system_check(tmp_path):
    ended = manage("check", "--fail-level", "INFO", DEBUG="1", DATA_DIR=str(tmp_path))

    assert ended.returncode == 0, ended.stderr


def test_the_projects_page_extends_the_packages_by_the_same_path(admin_client, request):
    address = reverse("admin:ratelimit_app_overview_changelist")
    alone = admin_client.get(address).content.decode()
    request.getfixturevalue("project_pages")
    extended = admin_client.get(address).content.decode()

    assert "ops-queue-depth" not in alone
    assert extended.count('id="ops-queue-depth" value="0"') == 1
    assert extended.count('id="rl-page"') == alone.count('id="rl-page"') == 1


def test_the_page_says_so_when_redis_and_the_queue_do_not_answer(admin_client, project_pages, settings):
    settings.REDIS_URL = settings.BROKER_URL = f"redis://127.0.0.1:{processes.free_port()}/0"
    page = admin_client.get(reverse("admin:ratelimit_app_overview_changelist"))

    assert page.status_code == 200
    assert "does not answer" in page.content.decode()


@pytest.mark.django_db(transaction=True)
def test_seeding_again_keeps_edits_and_identities_and_replaces_keys(settings):
    settings.DEBUG = True
    first = {key["name"]: key["key"] for key in seed.main(reset=False)["keys"]}
    identities = dict(APIKey.objects.values_list("name", "bucket_identity"))
    Plan.objects.get(slug="free").limits.update(burst=33)

    second = {key["name"]: key["key"] for key in seed.main(reset=False)["keys"]}

    assert len(first) == len(second) == APIKey.objects.count() == 12
    assert not set(first.values()) & set(second.values())
    assert dict(APIKey.objects.values_list("name", "bucket_identity")) == identities
    assert Plan.objects.get(slug="free").limits.get().burst == 33

    seed.main(reset=True)

    assert Plan.objects.get(slug="free").limits.get().burst == 20
    assert APIKey.objects.count() == 12


@pytest.mark.django_db(transaction=True)
def test_without_debug_no_user_with_a_known_password_is_made(settings, django_user_model):
    settings.DEBUG = False

    assert seed.main(reset=False)["user"] is False
    assert not django_user_model.objects.exists()


@pytest.mark.parametrize("text", ["mysql://host/name", "nothing"])
def test_an_unknown_database_is_refused_in_words(text):
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        environment.database(text)


def test_a_database_url_may_hold_any_password():
    settings = environment.database("postgresql://me:p%40ss%2F@db.example.com:5433/name?sslmode=require")

    assert settings["PASSWORD"] == "p@ss/"
    assert (settings["HOST"], settings["PORT"], settings["NAME"]) == ("db.example.com", "5433", "name")
    assert settings["OPTIONS"] == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "beside"),
    [
        ("redis://localhost", "redis://localhost/1"),
        ("redis://localhost:6379/0", "redis://localhost:6379/1"),
        ("rediss://:secret@redis.example.com:6380/4?ssl_cert_reqs=none", None),
    ],
)
def test_the_broker_is_beside_the_buckets_by_default(url, beside):
    expected = beside or "rediss://:secret@redis.example.com:6380/5?ssl_cert_reqs=none"

    assert environment.next_redis_database(url) == expected


def test_the_invented_callers_read_answers():
    refused = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"

    assert traffic.read_answer(refused) == traffic.Answer(429, 7)
    assert traffic.read_answer(b"HTTP/1.1 200 OK\r\n\r\n{}") == traffic.Answer(200, 0)
    assert traffic.read_answer(b"") is None
