"""Do the tests pass on the servers that people run? `python -m tests.on_installed_servers` starts them and pytest."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import rabbitmq
from tests.servers import PostgresServer, RedisServer


def main() -> int:
    redis_server = shutil.which("redis-server")
    if redis_server is None:
        sys.exit("redis-server is not installed; on Debian: apt install redis-server")
    os.environ["REDIS_SERVER"] = redis_server  # the private servers of fault tests, too
    if rabbitmq.program():
        os.environ["RABBITMQ"] = "1"  # each test that needs one starts its own
    elif os.environ.get("CI"):
        sys.exit("RabbitMQ is not installed; on Debian: apt install rabbitmq-server")
    else:
        print("Without RabbitMQ, which is not installed; on Debian: apt install rabbitmq-server")  # noqa: T201
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ratelimit_app_servers_")))
        directory.chmod(0o755)  # PostgreSQL enters as another user
        redis = RedisServer(directory / "redis")
        stack.callback(redis.stop)
        postgres = PostgresServer(directory / "postgres")
        stack.callback(postgres.stop)
        os.environ |= {"REDIS_URL": redis.url, "DATABASE_URL": postgres.url}
        os.environ.pop("DJANGO_SETTINGS_MODULE", None)  # importing the project named its own; the tests have theirs
        return subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
