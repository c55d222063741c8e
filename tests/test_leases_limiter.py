"""What does the limiter say and count while it spends leased tokens?"""

from __future__ import annotations

import pytest

from ratelimit_app import leases, limiter, plan_cache
from tests import asking, brokers, decisions, leasing, outages

still = pytest.fixture(leasing.still)
broker = pytest.fixture(brokers.chosen)
counted = pytest.fixture(asking.counted)


@pytest.fixture
def leased(transactional_db, make_plan):
    """1,000 at once, one more each minute, leased."""
    return make_plan("Leased", 1, 60, 1_002, lease=True)


check = pytest.fixture(asking.check, params=asking.BOTH)


def test_every_request_is_counted_once(check, leased, still, counted) -> None:
    caller = asking.caller(leased)
    answers = [check(caller) for _ in range(1_010)]
    assert sum(answer.allowed for answer in answers) == 1_000
    assert "lease" in {answer.source for answer in answers}
    found = counted()
    assert (found["allowed"], found["refused"], decisions.decided(found)) == (1_000, 10, 1_010)
    assert all(answer.receipt for answer in answers[1_000:])


def test_a_refund_of_a_leased_answer_reaches_the_shared_bucket(leased, still) -> None:
    caller = asking.caller(leased)
    while (answer := limiter.check(caller)).source != "lease":
        pass
    (before,) = [weighed.remaining for weighed in limiter.peek(caller).weighed]
    limiter.refund(answer)
    assert limiter.peek(caller).remaining == before + 1


def test_peek_takes_no_token_and_sees_the_shared_bucket_only(leased, still) -> None:
    caller = asking.caller(leased)
    answers = [limiter.check(caller) for _ in range(100)]
    assert limiter.peek(caller).remaining in range(901)
    leases.give_back()
    assert limiter.peek(caller).remaining == answers[-1].remaining == 900


def test_a_reset_fills_the_bucket_and_ends_what_this_process_knows(leased, still) -> None:
    caller = asking.caller(leased)
    while limiter.check(caller).allowed:
        pass
    limiter.reset(caller)
    assert limiter.check(caller).allowed
    assert limiter.peek(caller).remaining == 999


def test_an_edit_ends_the_leases_of_before(leased, still) -> None:
    caller = asking.caller(leased)
    for _ in range(500):
        assert limiter.check(caller).allowed
    leased.limits.update(burst=502)
    answer = limiter.check(caller)
    assert answer.source == "redis"
    assert answer.remaining in range(200, 250)  # half of it was used, held tokens included
    leased.limits.update(lease=False)
    assert limiter.check(caller).source == "redis"
    assert not leases.cover(plan_cache.table().limits[leased.pk])


def test_the_switch_to_shadow_ends_leasing(leased, configure) -> None:
    caller = asking.caller(leased)
    for _ in range(50):
        limiter.check(caller)
    configure(MODE="shadow")
    assert {limiter.check(caller).source for _ in range(20)} == {"redis"}


@pytest.mark.parametrize("on_failure", ["local", "open", "closed"])
def test_without_redis_a_lease_is_used_up_and_then_the_limit_s_choice_holds(
    redis_server, transactional_db, make_plan, on_failure, still, wait_until
) -> None:
    caller = asking.caller(make_plan("Leased", 1, 60, 1_002, lease=True, on_failure=on_failure))
    server = redis_server()
    with outages.redis_at(server.url):
        while not any(lease._batch and lease._batch.tokens >= 5 for lease in leases._keeper().leases.values()):
            assert limiter.check(caller).allowed
        held = next(lease._batch.tokens for lease in leases._keeper().leases.values() if lease._batch)
        server.kill()
        answers = [limiter.check(caller) for _ in range(held + 3)]
        undecided = "local" if on_failure == "local" else "unchecked"
        assert [answer.source for answer in answers] == ["lease"] * held + [undecided] * 3
        assert [answer.allowed for answer in answers[held:]] == [on_failure != "closed"] * 3
        server.start()
        wait_until(outages.redis_is_asked)
        assert limiter.check(caller).source == "redis"


def test_a_revoked_key_is_turned_away_whatever_is_held_for_it(client, leased, make_key, still) -> None:
    row, text = make_key(leased)
    headers = {"Authorization": f"Bearer {text}"}
    assert {client.get("/plain/ping/", headers=headers).status_code for _ in range(30)} == {200}
    type(row).objects.filter(pk=row.pk).revoke()
    assert client.get("/plain/ping/", headers=headers).status_code == 401
