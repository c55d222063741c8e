"""Is everything that can be set wrong said, once, with what to do about it?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.test import override_settings

from project.celery import app
from ratelimit_app import checks, conf
from tests.outages import REFUSING, redis_at

ALIAS = "ratelimit"
FACTORY = "ratelimit_app.connections.ConnectionFactory"
MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"
CORS = "corsheaders.middleware.CorsMiddleware"
OURS = {
    "BACKEND": "django_redis.cache.RedisCache",
    "LOCATION": "redis://127.0.0.1:6379/1",
    "OPTIONS": {"CONNECTION_FACTORY": FACTORY},
}


def limiter_settings(**entries: Any) -> dict[str, Any]:
    return {"RATELIMIT_APP": entries}


def cache(**changes: Any) -> dict[str, Any]:
    return {"CACHES": {ALIAS: {**OURS, **changes}}}


def shared_with(location: Any, *, ours: Any = OURS["LOCATION"]) -> dict[str, Any]:
    other = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": location}
    return {"CACHES": {ALIAS: {**OURS, "LOCATION": ours}, "pages": other}}


SENTINELS = {
    "CLIENT_CLASS": "django_redis.client.SentinelClient",
    "CONNECTION_FACTORY": "ratelimit_app.connections.SentinelConnectionFactory",
    "SENTINELS": [("10.0.0.1", 26379), ("sentinel.example", 26379)],
}

CLEAN: dict[str, Any] = {
    "RATELIMIT_APP": {},
    "CACHES": {ALIAS: OURS},
    "MIDDLEWARE": [CORS, MIDDLEWARE],
    "REST_FRAMEWORK": {"DEFAULT_THROTTLE_CLASSES": ["ratelimit_app.throttling.PlanThrottle"]},
}

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("E001", limiter_settings(MODE="enforced")),
    ("E001", limiter_settings(TIMEOUT=1)),
    ("E001", {"RATELIMIT_APP": ["MODE"]}),
    ("E002", {"CACHES": {"default": OURS}}),
    ("E002", limiter_settings(CACHE="nowhere")),
    ("E003", cache(BACKEND="django.core.cache.backends.redis.RedisCache")),
    ("E003", cache(BACKEND="django.core.cache.backends.locmem.LocMemCache")),
    ("E004", cache(OPTIONS={})),
    ("E005", limiter_settings(TRUSTED_PROXIES=["10.0.0.0/8"])),
    ("E006", limiter_settings(PROXY_COUNT=1)),
    ("E007", limiter_settings(TRUSTED_PROXIES=["10.0.0.0/8", "proxy.example"], PROXY_COUNT=1)),
    ("E008", limiter_settings(IPV6_PREFIX=129)),
    ("E009", limiter_settings(KEY_PREFIX="my key")),
    ("E011", cache(LOCATION="redis+cluster://10.0.0.1:6379,10.0.0.2:x/0")),
    ("E011", cache(LOCATION="redis+cluster://:secret@/0")),
    ("E011", cache(LOCATION="rediss+cluster://10.0.0.1:6379/2")),
    ("E012", cache(LOCATION="redis+cluster://10.0.0.1:6379/0", OPTIONS=SENTINELS)),
    ("E013", cache(OPTIONS={**SENTINELS, "CONNECTION_FACTORY": FACTORY})),
    ("E014", cache(LOCATION="redis://mymaster/0", OPTIONS={**SENTINELS, "SENTINELS": []})),
    ("E014", cache(LOCATION="redis://mymaster/0", OPTIONS={**SENTINELS, "SENTINELS": ["10.0.0.1:26379"]})),
    ("E015", cache(LOCATION="redis://10.0.0.1:6379/0", OPTIONS=SENTINELS)),
    ("E009", limiter_settings(KEY_PREFIX="x" * 33)),
    ("E010", limiter_settings(MINUTE_RETENTION_DAYS=40)),
    ("E010", limiter_settings(HOUR_RETENTION_DAYS=500)),
    ("E020", limiter_settings(ALERT_WEBHOOK_URL="file:///etc/passwd", SITE_URL="https://ops.example.com")),
    ("E020", limiter_settings(SITE_URL="ops.example.com")),
    ("E020", limiter_settings(SITE_URL="https://[ops")),
    ("E021", limiter_settings(ALERT_EMAILS=["On call <on-call@example.com>"], SITE_URL="https://ops.example.com")),
    ("E022", limiter_settings(ALERT_BLOCKED_PERCENT=500)),
    ("E022", limiter_settings(ALERT_KEY_BLOCKED_PERCENT=100.5)),
    ("E023", limiter_settings(ALERT_LATE_SECONDS=30)),
    ("E023", limiter_settings(COUNTS_FLUSH_SECONDS=600)),
    ("E024", limiter_settings(ALERT_WEBHOOK_SECRET="whsec_no base64")),
    ("E024", limiter_settings(ALERT_WEBHOOK_SECRET="whsec_")),
    ("E025", limiter_settings(METRICS_NETWORKS=["10.0.0.0/8", "unix"])),
    ("E026", limiter_settings(METRICS_FILE="metrics.sqlite3")),
    ("W001", cache(OPTIONS={**OURS["OPTIONS"], "SOCKET_TIMEOUT": 1})),  # type: ignore[dict-item]
    ("W002", shared_with("redis://127.0.0.1:6379/0")),
    ("W002", shared_with(["redis://127.0.0.1:6379/0", "redis://127.0.0.1:6380/0"])),
    ("W002", shared_with("redis://localhost:6379")),
    ("W002", shared_with("redis://127.0.0.1/0")),
    ("W002", shared_with("rediss://user:p%40ss@127.0.0.1:6379/0?ssl_cert_reqs=none")),
    ("W002", shared_with("unix:///run/redis.sock?db=1", ours="unix:///run/redis.sock?db=0")),
    ("W003", {"MIDDLEWARE": []}),
    ("W003", {"MIDDLEWARE": [], "REST_FRAMEWORK": {}, **limiter_settings(PATHS={"/api/": "required"})}),
    ("W004", {"MIDDLEWARE": [MIDDLEWARE, CORS]}),
    ("W020", limiter_settings(ALERT_EMAILS=["on-call@example.com"])),
    ("W020", limiter_settings(ALERT_WEBHOOK_URL="https://chat.example.com/hook")),
]


def found(**changes: Any) -> list[django_checks.CheckMessage]:
    with override_settings(**{**CLEAN, **changes}):
        return checks.check_setup()


def ids(**changes: Any) -> list[str]:
    return [str(message.id).removeprefix("ratelimit_app.") for message in found(**changes)]


def test_the_defaults_and_the_recommended_setup_pass():
    assert ids() == []


def test_the_setup_of_these_tests_passes():
    assert [message.id for message in checks.check_setup() if message.level >= django_checks.ERROR] == []


@pytest.mark.parametrize(("expected", "changes"), WRONG)
def test_each_mistake_is_said_once_with_a_hint(expected, changes):
    [message] = found(**changes)
    assert message.id == f"ratelimit_app.{expected}"
    assert message.hint
    assert message.msg
    assert isinstance(message, django_checks.Error) == expected.startswith("E")


def test_every_id_in_the_code_is_tested_and_used_for_one_thing():
    source = "".join(module.read_text("utf-8") for module in Path(checks.__file__).parent.glob("*.py"))
    in_code = re.findall(r'id="ratelimit_app\.([EW]\d{3})"', source)
    assert len(in_code) == len(set(in_code))
    elsewhere = {"W005", "W015"}  # a database that is not here; a broker, below
    assert set(in_code) - elsewhere == {expected for expected, _ in WRONG}


@pytest.mark.parametrize(
    "changes",
    [
        shared_with("redis://127.0.0.1:6380/1"),
        shared_with("redis://10.0.0.5:6379/1"),
        shared_with("unix:///run/other.sock"),
        {"CACHES": {ALIAS: OURS, "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}},
        {"MIDDLEWARE": [], "REST_FRAMEWORK": {}},
        {"MIDDLEWARE": [MIDDLEWARE]},
        limiter_settings(TRUSTED_PROXIES=["10.0.0.0/8", "unix", "2001:db8::/32", "192.0.2.1"], PROXY_COUNT=1),
        limiter_settings(KEY_PREFIX="acme_live"),
        limiter_settings(ALERT_WEBHOOK_URL="http://[::1]:8080/hook", SITE_URL="https://ops.example.com/sub/"),
        limiter_settings(ALERT_WEBHOOK_SECRET="any text", ALERT_LATE_SECONDS=0),
        limiter_settings(ALERT_WEBHOOK_SECRET="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        cache(LOCATION="redis+cluster://10.0.0.1,10.0.0.2:6379,[2001:db8::1]:7000/0"),
        cache(LOCATION="rediss+cluster://user:p%40ss@10.0.0.1:6379/?ssl_ca_certs=/etc/ca.pem"),
        cache(LOCATION="redis://:secret@mymaster/0", OPTIONS=SENTINELS),
        shared_with("redis://10.0.0.3:6379/0", ours="redis+cluster://10.0.0.1:6379,10.0.0.2:6379/0"),
    ],
)
def test_what_is_right_is_not_complained_of(changes):
    assert ids(**changes) == []


def test_a_connection_factory_derived_from_ours_is_not_complained_of():
    assert ids(**cache(OPTIONS={"CONNECTION_FACTORY": "tests.test_connections.NamedFactory"})) == []


def test_an_unusable_setting_is_all_that_is_said():
    assert ids(MIDDLEWARE=[], **limiter_settings(MODE="x", PROXY_COUNT=-1)) == ["E001", "E001"]


def test_an_unknown_name_is_answered_with_the_names_there_are():
    [message] = found(**limiter_settings(MODUS="enforce"))
    assert "MODUS" in message.msg
    assert message.hint is not None
    assert all(name in message.hint for name in conf.NAMES)


def test_no_check_contacts_a_server():
    with redis_at(REFUSING):
        call_command("check", "--tag", checks.TAG, "--fail-level", "ERROR")


def test_the_checks_run_with_djangos_own(capsys):
    with override_settings(**{**CLEAN, **limiter_settings(PROXY_COUNT=1)}):
        messages = django_checks.run_checks(tags=[checks.TAG])
    assert [message.id for message in messages] == ["ratelimit_app.E006"]


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("redis://127.0.0.1:6379/1", {"visibility_timeout": 60}, ["W015"]),
        ("redis://127.0.0.1:6379/1", {"visibility_timeout": 600}, []),
        ("redis://127.0.0.1:6379/1", {}, []),
        ("amqp://127.0.0.1//", {"visibility_timeout": 1}, []),
    ],
)
def test_a_broker_must_not_deliver_again_what_a_worker_still_holds(url, options, expected):
    usual = {name: app.conf[name] for name in ("broker_url", "broker_transport_options")}
    app.conf.update(broker_url=url, broker_transport_options=options)
    try:
        assert ids() == expected
    finally:
        app.conf.update(usual)
