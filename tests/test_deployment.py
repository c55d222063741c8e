"""Does compose.yaml fit the project that it starts? Its parts are started here without containers."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from project.demo import processes
from tests.servers import RedisServer

ROOT = Path(__file__).resolve().parent.parent
GIVEN = {"SECRET_KEY": "a secret of sufficient length, for a test 0123456789", "PASSWORD": "pass"}


def compose() -> dict[str, Any]:
    text = (ROOT / "compose.yaml").read_text()
    for name, value in GIVEN.items():
        text = re.sub(r"\$\{" + name + r"(:\?[^}]*)?\}", value, text)
    read: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))
    return read


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    return subprocess.run(command, cwd=ROOT, env=inherited | variables, capture_output=True, text=True)


def test_the_options_of_its_redis_nodes_start_a_node_of_a_cluster_that_evicts_nothing(tmp_path):
    _server, *options = service("redis-1")["command"]
    server = RedisServer(tmp_path / "redis", *options, "--cluster-port", str(processes.free_port()))
    try:
        with server.client() as client:
            assert client.info("cluster")["cluster_enabled"] == 1
            held = client.config_get("*")
        assert (held["maxmemory-policy"], held["maxmemory"]) == ("noeviction", str(256 * 1024 * 1024))
        assert (held["save"], held["cluster-require-full-coverage"]) == ("", "no")
    finally:
        server.stop()


def test_all_six_nodes_are_joined_and_known_to_the_app():
    services = compose()["services"]
    nodes = [
        f"{each['networks']['default']['ipv4_address']}:6379" for name, each in services.items() if "redis-" in name
    ]
    assert len(set(nodes)) == 6
    assert services["web"]["environment"]["REDIS_URL"] == f"redis+cluster://{','.join(nodes)}/0"
    assert [word for word in services["cluster"]["command"][2].split() if word.endswith(":6379")] == nodes


@pytest.mark.parametrize("name", ["web", "worker", "beat", "migrate"])
def test_the_app_starts_with_its_environment(name):
    """As far as it does without servers: settings are read, and every check but those of a deployment is passed."""
    ended = run([sys.executable, "manage.py", "check"], **service(name)["environment"])
    assert ended.returncode == 0, ended.stderr


def test_gunicorn_takes_the_command_of_the_web_server():
    command = shlex.split(service("web")["command"])
    ended = run([sys.executable, "-m", *command, "--check-config"], **service("web")["environment"])
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", ["worker", "beat"])
def test_celery_takes_the_commands_of_worker_and_beat(name):
    command = shlex.split(service(name)["command"])
    ended = run([sys.executable, "-m", *command, "--help"], **service(name)["environment"])
    assert ended.returncode == 0, ended.stderr
    options = [word.split("=")[0] for word in command if word.startswith("--")]
    assert [option for option in options if option not in ended.stdout and option != "--app"] == []


def test_what_the_image_copies_is_there():
    recipe = service("web")["build"]["dockerfile_inline"]
    for source, _target in re.findall(r"^COPY (\S+) (\S+)$", recipe, re.MULTILINE):
        assert (ROOT / source).exists(), source


def test_every_variable_is_one_that_the_settings_read():
    documented = (ROOT / "project/settings.py").read_text()
    assert [name for name in service("web")["environment"] if name not in documented] == []


def test_a_cluster_without_a_broker_refuses_to_start_in_one_line():
    environment = {name: value for name, value in service("web")["environment"].items() if name != "BROKER_URL"}
    ended = run([sys.executable, "manage.py", "check"], **environment)
    assert ended.returncode != 0
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "BROKER_URL" in ended.stderr
