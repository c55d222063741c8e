"""Does the admin stay quick with many rows, and work with any user model?"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimit_app.models import APIKey, KeyUse, Plan, Refusal, UsageMinute
from tests.admin_pages import KEYS, PLANS, REFUSALS

pytestmark = pytest.mark.django_db


def _grow(plan: Plan, *, to_keys: int, to_users: int, to_rows: int) -> None:
    user_model = get_user_model()
    users = user_model.objects.bulk_create(
        [user_model(username=f"user-{n}") for n in range(user_model.objects.count(), to_users)], batch_size=2_000
    )
    start = APIKey.objects.count()
    made = APIKey.objects.bulk_create(
        [
            APIKey(
                plan=plan,
                name=f"key {n}",
                owner=users[n % len(users)],
                public_id=f"{n:012d}",
                digest=b"\0" * 32,
                bucket_identity=f"{n:016d}",
            )
            for n in range(start, to_keys)
        ],
        batch_size=2_000,
    )
    KeyUse.objects.bulk_create([KeyUse(key_id=key.pk, last_used_at=timezone.now()) for key in made], batch_size=5_000)
    now = timezone.now().replace(second=0, microsecond=0)
    UsageMinute.objects.bulk_create(
        [
            UsageMinute(
                minute=now - timedelta(minutes=n // to_keys),
                identity=f"{n % to_keys:016d}",
                plan_id=plan.pk,
                allowed=n % 100,
                refused=n % 7,
            )
            for n in range(UsageMinute.objects.count(), to_rows)
        ],
        batch_size=5_000,
        ignore_conflicts=True,
    )
    Refusal.objects.bulk_create(
        [
            Refusal(
                receipt=uuid.uuid4(),
                at=now,
                identity=f"{start:016d}",
                key_id=made[0].pk,
                plan_id=plan.pk,
                limit_id=1,
                limit_name="free",
                cost=1,
                retry_after_seconds=1,
            )
            for _ in range(to_rows // 100)
        ],
        batch_size=2_000,
    )


def test_c30_no_page_slows_down_with_fifty_thousand_keys(admin_client: Client, make_plan: Any, configure: Any) -> None:
    # The middleware reads the plans again now and then: not what is counted here.
    configure(EXEMPT_PATHS=["/admin"])
    plan = make_plan("Free")

    def measure() -> dict[str, tuple[int, float, int]]:
        busy = APIKey.objects.order_by("pk").first()
        assert busy is not None
        pages = {
            "list": KEYS,
            "last page": f"{KEYS}?p=1",
            "active": f"{KEYS}?state=active",
            "by public id": f"{KEYS}?q={busy.public_id}",
            "by prefix and id": f"{KEYS}?q=rl_live_{busy.public_id[:11]}",
            "by owner": f"{KEYS}?q=user-7",
            "by name": f"{KEYS}?q=key",
            "expiring": f"{KEYS}?expires=soon",
            "page": f"{KEYS}{busy.pk}/page/",
            "page of an unknown receipt": f"{KEYS}{busy.pk}/page/?range=7d&receipt={uuid.UUID(int=1)}",
            "rotate": f"{KEYS}{busy.pk}/rotate/",
            "change plan": f"{KEYS}{busy.pk}/move/",
            "form": f"{KEYS}{busy.pk}/change/",
            "new": f"{KEYS}add/",
            "delete a busy key": f"{KEYS}{busy.pk}/delete/",
            "delete its plan": f"{PLANS}{plan.pk}/delete/",
            "plans": PLANS,
            "plan": f"{PLANS}{plan.pk}/change/",
            "refusals": REFUSALS,
            "refusals of a key": f"{REFUSALS}?q={busy.public_id}",
            "overview": "/admin/ratelimit_app/overview/",
        }
        measured = {}
        for name, url in pages.items():
            admin_client.get(url)
            with CaptureQueriesContext(connection) as captured:
                started = time.perf_counter()
                answer = admin_client.get(url)
                seconds = time.perf_counter() - started
            assert answer.status_code == 200, name
            html = answer.content.decode()
            # One entry per plan, state, algorithm, mode: nothing per user or key.
            assert html.count("<option") < 40, name
            measured[name] = (len(captured), seconds, len(answer.content))
        return measured

    _grow(plan, to_keys=101, to_users=100, to_rows=400)
    small = measure()
    _grow(plan, to_keys=50_000, to_users=5_000, to_rows=200_000)
    large = measure()

    assert {name: queries for name, (queries, _, _) in large.items()} == {
        name: queries for name, (queries, _, _) in small.items()
    }
    # Two seconds on a machine that does nothing else, and ten times that on a busy one.
    assert not {name: seconds for name, (_, seconds, _) in large.items() if seconds >= 20}
    assert not {name: size for name, (_, _, size) in large.items() if size >= 200_000}


def test_c26_an_owner_with_a_uuid_works_in_the_admin(tmp_path: Path) -> None:
    """In a process of its own: a user model is chosen once."""
    people = tmp_path / "people"
    people.mkdir()
    (people / "__init__.py").touch()
    (people / "models.py").write_text(
        textwrap.dedent("""
            import uuid
            from django.contrib.auth.models import AbstractUser
            from django.db import models

            class Person(AbstractUser):
                id = models.UUIDField(primary_key=True, default=uuid.uuid4)
        """)
    )
    (tmp_path / "uuid_settings.py").write_text(
        textwrap.dedent("""
            from tests.settings import *

            INSTALLED_APPS = [*INSTALLED_APPS, "people"]
            AUTH_USER_MODEL = "people.Person"
            DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        """)
    )
    script = textwrap.dedent("""
        import django
        django.setup()
        from django.contrib.auth import get_user_model
        from django.core.management import call_command
        from django.test import Client
        from django.test.utils import setup_test_environment
        from ratelimit_app.models import APIKey, Plan

        setup_test_environment()

        call_command("migrate", run_syncdb=True, verbosity=0)
        root = get_user_model().objects.create_superuser("root")
        plan = Plan.objects.create(name="Free", slug="free")
        client = Client()
        client.force_login(root)
        url = "/admin/ratelimit_app/apikey/"
        for wrong in ("1", "abc", str(plan.pk)):
            assert client.post(url + "add/", {"name": "x", "plan": plan.pk, "owner": wrong}).status_code == 200
        assert not APIKey.objects.exists()
        answer = client.post(url + "add/", {"name": "x", "plan": plan.pk, "owner": str(root.pk)})
        assert answer.status_code == 200 and b"rl-key" in answer.content, answer.content
        key = APIKey.objects.get()
        assert key.owner == root and key.as_caller().user_id == str(root.pk)
        assert list(client.get(url, {"q": "root"}).context["cl"].result_list) == [key]
        assert client.get(f"{url}{key.pk}/change/").status_code == 200
        call_command("create_key", "--plan", "free", "--name", "y", "--owner", "root")
        assert APIKey.objects.filter(owner=root).count() == 2
    """)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "uuid_settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr
