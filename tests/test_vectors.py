"""Do both implementations answer as the shipped vectors say? `ratelimit_app/vectors.json`, for whoever ports it."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest

from ratelimit_app.limits import EPOCH_SECONDS, TICKS_PER_SECOND, Decision, Limit
from tests import stored
from tests.twins import ALGORITHMS, Twin, both_twins, edited

storage = pytest.fixture(stored.storage, params=stored.WAYS, autouse=True)

#: Numbers are read as they are written, so a tenth of a second is one.
CASES = json.loads((files("ratelimit_app") / "vectors.json").read_bytes(), parse_float=Decimal)["cases"]
ANSWERS = ("remaining", "wait", "next", "full", "delay")


def ticks(seconds: Any) -> int:
    exact = Decimal(seconds) * TICKS_PER_SECOND
    assert exact == int(exact), f"{seconds} s is not a whole number of ticks"
    return int(exact)


def answer(decision: Decision, question: str) -> list[int | None]:
    return [
        {
            "remaining": weighed.remaining,
            "wait": weighed.wait_ticks,
            "next": weighed.level.next_ticks,
            "full": weighed.level.full_ticks,
            "delay": weighed.delay_ticks,
        }[question]
        for weighed in decision.weighed
    ]


def expected(step: dict[str, Any], question: str) -> list[int | None]:
    if question == "remaining":
        return list(step[question])
    return [None if value is None else ticks(value) for value in step[question]]


class Life:
    """One case, played on one implementation."""

    def __init__(self, case: dict[str, Any], twin: Twin) -> None:
        self.twin = twin
        self.start = (int(datetime.fromisoformat(case["start"]).timestamp()) - EPOCH_SECONDS) * TICKS_PER_SECOND
        self.limits = [
            Limit(**{"id": number, "name": f"limit-{number}", "burst": 1, **values})
            for number, values in enumerate(case["limits"])
        ]
        self.taken: dict[int, Decision] = {}

    def play(self, number: int, step: dict[str, Any]) -> None:
        at = self.start + ticks(step["at"])
        if "refund" in step:
            self.twin.refund(self.taken[step["refund"]], at=at)
        elif "edit" in step:
            numbers = {name: value for name, value in step.items() if name not in ("at", "edit")}
            self.limits[step["edit"]] = edited(self.limits[step["edit"]], **numbers)
        elif "reset" in step:
            self.twin.reset(*self.limits)
        else:
            self.ask(number, step, at)

    def ask(self, number: int, step: dict[str, Any], at: int) -> None:
        decision = self.twin.take(
            *self.limits,
            at=at,
            cost=step["peek"] if "peek" in step else step["take"],
            patience_ticks=ticks(step.get("patience", 0)),
            dry="peek" in step,
        )
        self.taken[number] = decision
        assert decision.allowed == step["allowed"], f"step {number}: {step}"
        for question in ANSWERS:
            if question in step:
                assert answer(decision, question) == expected(step, question), f"step {number}, {question}: {step}"


@both_twins
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_both_answer_as_the_vectors_say(case, twin):
    life = Life(case, twin())
    for number, step in enumerate(case["steps"]):
        life.play(number, step)


def test_the_vectors_cover_every_algorithm_and_every_kind_of_step_and_answer():
    used = {values["algorithm"] for case in CASES for values in case["limits"]}
    assert used == set(ALGORITHMS)
    steps = [step for case in CASES for step in case["steps"]]
    known = {"take", "peek", "refund", "edit", "reset", "at", "allowed", "patience", *ANSWERS}
    numbers = {"algorithm", "requests", "period_seconds", "burst"}
    assert {name for step in steps for name in step} == known | numbers


def test_times_in_the_vectors_never_step_back():
    for case in CASES:
        moments = [step["at"] for step in case["steps"]]
        assert moments == sorted(moments), case["name"]
