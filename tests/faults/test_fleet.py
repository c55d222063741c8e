"""What does a fleet that is cut off from Redis let through? About the limit, however many its processes are."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.faults.fleet import fleet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

PROCESSES = 20
SECONDS = 3.0


@pytest.fixture
def server(redis_server):
    return redis_server()


@pytest.fixture
def environment(process_environment, server):
    return {**process_environment, "REDIS_URL": server.url}


@pytest.fixture
def as_caller(make_plan, make_key):
    def make(**limit):
        return asdict(make_key(make_plan("Api", **limit))[0].as_caller())

    return make


def assert_admits_the_limit(outcome, *, per_second, burst):
    """Between 80 % and 105 % of what one limit lets through, by the time that really passed."""
    assert outcome.admitted <= 1.05 * (burst + per_second * outcome.seconds)
    shares = [burst / PROCESSES + per_second / PROCESSES * seconds for seconds in outcome.seconds_each]
    assert outcome.admitted >= 0.8 * sum(shares)


def test_twenty_processes_that_counted_each_other_admit_the_limit_together(server, environment, as_caller):
    caller = as_caller(requests=2_400, period_seconds=60, burst=10 * PROCESSES)
    with fleet(environment, processes=PROCESSES, caller=caller, POLL_SECONDS=0.2) as cut_off:
        server.kill()
        assert_admits_the_limit(cut_off.send(seconds=SECONDS), per_second=40, burst=10 * PROCESSES)


def test_twenty_processes_that_were_told_their_number_admit_the_limit_though_redis_was_never_there(
    server, environment, as_caller
):
    caller = as_caller(requests=2_400, period_seconds=60, burst=10 * PROCESSES)
    server.kill()
    with fleet(environment, processes=PROCESSES, caller=caller, FLEET_SIZE=PROCESSES) as cut_off:
        assert_admits_the_limit(cut_off.send(seconds=SECONDS), per_second=40, burst=10 * PROCESSES)


@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window"])
def test_of_a_limit_smaller_than_the_fleet_each_process_grants_one(server, environment, as_caller, algorithm):
    caller = as_caller(requests=5, period_seconds=100_000_000, burst=5, algorithm=algorithm)
    server.kill()
    with fleet(environment, processes=PROCESSES, caller=caller, FLEET_SIZE=PROCESSES) as cut_off:
        assert cut_off.send(seconds=0.5).admitted == PROCESSES
