"""Who calls while nobody does? A few invented callers, on this machine only, some of whom ask for too much.

Run as a script that reads one JSON object from standard input: `port`, and `keys` as the seed
printed them. Bounded: never more than MAX_CONNECTIONS requests at once, to 127.0.0.1 alone.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

MAX_CONNECTIONS = 16
TIMEOUT_SECONDS = 10.0
PATHS = ("/api/ping/", "/api/ping/", "/api/items/", "/plain/ping/", "/async/ping/")
#: Seconds between two tries of somebody who guesses a password.
GUESS_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a caller may, as the seed set it up: requests a second, and at once."""

    per_second: float
    burst: int


PLANS = {"free": Plan(1, 20), "pro": Plan(1000 / 60, 100), "business": Plan(10_000 / 60, 1_000)}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after_seconds: int


async def steady(plan: Plan) -> AsyncIterator[int]:
    """Three quarters of the plan, evenly, and never more than ten requests a second."""
    while True:
        yield 1
        await asyncio.sleep(max(1 / (plan.per_second * 0.75), 0.1) * random.uniform(0.5, 1.5))


async def quiet(plan: Plan) -> AsyncIterator[int]:
    """A request now and then."""
    while True:
        yield 1
        await asyncio.sleep(random.uniform(2, 6))


async def bursts(plan: Plan) -> AsyncIterator[int]:
    """Nothing, then more at once than a small plan holds."""
    while True:
        yield min(int(plan.burst * 1.4), 140)
        await asyncio.sleep(random.uniform(12, 18))


async def impatient(plan: Plan) -> AsyncIterator[int]:
    """Half as much again as the plan allows, without end, deaf to Retry-After."""
    while True:
        yield 1
        await asyncio.sleep(1 / (plan.per_second * 1.5))


async def patient(plan: Plan) -> AsyncIterator[int]:
    """As fast as it can, but it does what Retry-After says."""
    while True:
        yield 1
        await asyncio.sleep(0.2)


HABITS = {"steady": steady, "quiet": quiet, "bursts": bursts, "impatient": impatient, "patient": patient}


class Client:
    """Sends requests to one port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, method: str, path: str, *, headers: dict[str, str], body: bytes = b"") -> Answer | None:
        """Send a request on a connection of its own; None when there was no answer."""
        head = {"Host": f"127.0.0.1:{self._port}", "Connection": "close", "Content-Length": str(len(body)), **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        async with self._slots:
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                    try:
                        writer.write("\r\n".join(lines).encode() + body)
                        reply = await reader.read()
                    finally:
                        writer.close()
            except (OSError, TimeoutError):
                return None
        return read_answer(reply)


def read_answer(reply: bytes) -> Answer | None:
    """The status and Retry-After of a whole reply; None when it is none."""
    head = reply.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = head[0].split(" ")
    if len(words) < 2 or not words[1].isdecimal():
        return None
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    retry_after = fields.get("retry-after", "0")
    return Answer(int(words[1]), int(retry_after) if retry_after.isdecimal() else 0)


async def call(client: Client, *, key: str, plan: Plan, habit: str) -> None:
    """Be one caller for ever."""
    headers = {"Authorization": f"Bearer {key}"}
    await asyncio.sleep(random.uniform(0, 1))
    async for count in HABITS[habit](plan):
        answers = await asyncio.gather(
            *(client.send("GET", random.choice(PATHS), headers=headers) for _ in range(count))
        )
        waits = [answer.retry_after_seconds for answer in answers if answer]
        if not waits:
            await asyncio.sleep(1)  # nobody answers: do not hammer
        elif habit == "patient":
            await asyncio.sleep(max(waits))


async def guess_passwords(client: Client) -> None:
    """Be somebody who tries one password after another."""
    while True:
        body = json.dumps({"username": "ops", "password": f"guess {random.randrange(1000)}"}).encode()
        await client.send("POST", "/api/login/", headers={"Content-Type": "application/json"}, body=body)
        await asyncio.sleep(GUESS_SECONDS)


async def main(port: int, keys: list[dict[str, str]]) -> None:
    client = Client(port)
    async with asyncio.TaskGroup() as callers:
        callers.create_task(guess_passwords(client))
        for key in keys:
            if key["habit"]:
                callers.create_task(call(client, key=key["key"], plan=PLANS[key["plan"]], habit=key["habit"]))


if __name__ == "__main__":
    given = json.load(sys.stdin)
    asyncio.run(main(given["port"], given["keys"]))
