"""Is what we ship whole, and enough? The wheel, installed into an empty project that has none of the extras."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: What a reader of the quickstart adds to a project that `startproject` made.
ADDED_SETTINGS = """
import os
INSTALLED_APPS += ["ratelimit_app"]
MIDDLEWARE.insert(0, "ratelimit_app.middleware.RateLimitMiddleware")
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "ratelimit": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ["REDIS_URL"],
        "OPTIONS": {"CONNECTION_FACTORY": "ratelimit_app.connections.ConnectionFactory"},
    },
}
RATELIMIT_APP = {"PATHS": {"/hello/": "required"}, "PREFIX": os.environ["TEST_PREFIX"], "TIMEOUT_SECONDS": 1.0}
"""
URLS = """
from django.contrib import admin
from django.http import HttpResponse
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls), path("hello/", lambda request: HttpResponse("hello"))]
"""
#: Nothing that the wheel does not ask for may be importable.
WITHOUT_EXTRAS = """
import sys
for name in ("rest_framework", "corsheaders", "prometheus_client", "opentelemetry", "project", "tests"):
    sys.modules[name] = None
"""
USE_IT = """
import django
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
import ratelimit_app
from ratelimit_app.models import APIKey, Plan

plan = Plan.objects.create(name="Tiny", slug="tiny")
plan.limits.create(name="tiny", requests=1, period_seconds=3600, burst=2)
_, key = APIKey.objects.create_key(plan=plan, name="me")
client = Client(SERVER_NAME="localhost")
get = lambda: client.get("/hello/", headers={"authorization": f"Bearer {key}"})
print(get().status_code, get().status_code, get().status_code, client.get("/hello/").status_code)
print(ratelimit_app.allow(key))
client.force_login(get_user_model().objects.create_superuser("admin"))
print(client.get(reverse("admin:ratelimit_app_overview_changelist")).status_code)
print(ratelimit_app.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The built wheel."""
    directory = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", directory],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = directory.glob("*.whl")
    return built


def test_the_wheel_holds_the_whole_app_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / "ratelimit_app"
    expected = {
        str(path.relative_to(ROOT)) for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }

    assert names == expected
    assert any(name.endswith(".lua") for name in names)
    assert "ratelimit_app/py.typed" in names
    assert "ratelimit_app/templates/admin/ratelimit_app/overview.html" in names


def test_the_wheel_works_in_an_empty_project_without_drf(wheel, tmp_path, prefix):
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    (site / "sitecustomize.py").write_text(WITHOUT_EXTRAS)
    subprocess.run([sys.executable, "-m", "django", "startproject", "empty", tmp_path], check=True)
    with (tmp_path / "empty" / "settings.py").open("a") as settings:
        settings.write(ADDED_SETTINGS)
    (tmp_path / "empty" / "urls.py").write_text(URLS)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(site), str(tmp_path)]),
        "DJANGO_SETTINGS_MODULE": "empty.settings",
        "REDIS_URL": os.environ["REDIS_URL"],
        "TEST_PREFIX": prefix,
    }

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    run("manage.py", "check", "--fail-level", "INFO")
    run("manage.py", "migrate", "--verbosity", "0")
    run("manage.py", "makemigrations", "--check", "--dry-run")
    statuses, allowed, overview, where = run("-c", USE_IT).splitlines()

    assert statuses == "200 200 429 401"
    assert allowed == "False"
    assert overview == "200"
    assert where.startswith(str(site))
