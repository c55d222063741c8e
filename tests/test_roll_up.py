"""Do hours and days hold what their minutes held, each count once, whatever arrives when?"""

from __future__ import annotations

import random
import threading
import uuid

import pytest
from django.db import connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratelimit_app import recording, resolutions
from ratelimit_app.models import (
    DecisionDay,
    Frontier,
    LimitDay,
    LimitHour,
    PlanDay,
    PlanHour,
    RefusalHour,
    Stale,
    UsageDay,
    UsageHour,
    UsageMinute,
)
from ratelimit_app.recording import rolling
from ratelimit_app.resolutions import FACTS, PLANS, USAGE
from tests.statistics import NIGHT, record, total

HOUR, DAY = 3600, 86_400


# --- Rolling up --------------------------------------------------------------------------------


@pytest.mark.django_db
def test_an_hour_holds_the_sum_of_its_minutes_and_a_day_that_of_its_hours():
    for at in (NIGHT, NIGHT + 3540, NIGHT + HOUR, NIGHT + 23 * HOUR):
        record(at)
        record(at, "b", allowed=10)

    recording.roll_up(now_seconds=NIGHT + DAY + HOUR)

    hours = UsageHour.objects.order_by("hour", "identity").values_list("hour", "identity", "plan_id", "allowed")
    assert list(hours)[:3] == [
        (resolutions.moment(NIGHT), "a", 1, 2),
        (resolutions.moment(NIGHT), "b", 1, 20),
        (resolutions.moment(NIGHT + HOUR), "a", 1, 1),
    ]
    assert list(UsageDay.objects.order_by("identity").values_list("day", "identity", "allowed", "refused")) == [
        (resolutions.moment(NIGHT), "a", 4, 8),
        (resolutions.moment(NIGHT), "b", 40, 8),
    ]
    assert list(PlanHour.objects.order_by("hour").values_list("allowed", flat=True)) == [22, 11, 11]
    assert PlanDay.objects.get().allowed == 44
    assert RefusalHour.objects.count() == 6
    assert LimitHour.objects.count() == 3
    assert LimitDay.objects.get().refused == 16
    assert DecisionDay.objects.get().decisions == 60
    assert not Stale.objects.exists()


@pytest.mark.django_db
def test_rolling_up_again_changes_nothing():
    record(NIGHT)
    for _ in range(3):
        recording.roll_up(now_seconds=NIGHT + 2 * DAY)
    assert UsageHour.objects.get().allowed == UsageDay.objects.get().allowed == 1


@pytest.mark.django_db
def test_an_hour_is_left_alone_until_it_is_over_and_late_rows_had_their_time():
    record(NIGHT)
    recording.roll_up(now_seconds=NIGHT + HOUR + rolling.GRACE_SECONDS - 1)
    assert not UsageHour.objects.exists()
    recording.roll_up(now_seconds=NIGHT + HOUR + rolling.GRACE_SECONDS)
    assert UsageHour.objects.exists()
    assert not UsageDay.objects.exists()


@pytest.mark.django_db
def test_many_rows_are_summed_up_in_several_transactions(monkeypatch):
    monkeypatch.setattr(rolling, "_ROWS_AT_ONCE", 1)
    identities = ["", "*", "-dash", "_line", "0", "9z", "A", "Zz", "a", "zA", "é"]
    for identity in identities:
        record(NIGHT, identity)
        record(NIGHT + 60, identity)
    recording.roll_up(now_seconds=NIGHT + 2 * DAY)
    assert dict(UsageHour.objects.values_list("identity", "allowed")) == dict.fromkeys(identities, 2)
    assert dict(UsageDay.objects.values_list("identity", "allowed")) == dict.fromkeys(identities, 2)


@pytest.mark.django_db
def test_a_beat_that_stood_still_for_long_is_caught_up():
    record(NIGHT)
    record(NIGHT + 40 * DAY)
    recording.roll_up(now_seconds=NIGHT + 60 * DAY)
    assert UsageHour.objects.count() == UsageDay.objects.count() == 2


# --- What arrives late -------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_minute_that_arrives_after_its_hour_is_summed_up_again_counts_once():
    record(NIGHT)
    recording.roll_up(now_seconds=NIGHT + 2 * DAY)
    late = record(NIGHT + 60, allowed=5)
    assert not recording.record(late)
    assert Stale.objects.get().start == NIGHT
    recording.roll_up(now_seconds=NIGHT + 2 * DAY)
    assert UsageHour.objects.get().allowed == UsageDay.objects.get().allowed == 6
    assert total(USAGE, "allowed") == total(PLANS, "allowed") == 6


@pytest.mark.django_db
def test_a_minute_whose_minutes_are_deleted_is_added_to_its_hour_once():
    record(NIGHT)
    recording.prune(now_seconds=NIGHT + 5 * DAY)
    assert not UsageMinute.objects.exists()
    late = record(NIGHT + 60, allowed=5)
    assert not recording.record(late)
    assert UsageHour.objects.get().allowed == 6
    recording.prune(now_seconds=NIGHT + 5 * DAY)
    assert UsageHour.objects.get().allowed == UsageDay.objects.get().allowed == 6


@pytest.mark.django_db
def test_a_minute_whose_hours_are_deleted_is_added_to_its_day_once():
    record(NIGHT)
    recording.prune(now_seconds=NIGHT + 50 * DAY)
    assert not UsageHour.objects.exists()
    late = record(NIGHT + HOUR, allowed=5)
    assert not recording.record(late)
    recording.prune(now_seconds=NIGHT + 50 * DAY)
    assert UsageDay.objects.get().allowed == 6
    assert not UsageHour.objects.exists()


@pytest.mark.django_db
def test_a_batch_may_span_what_is_kept_in_minutes_hours_and_days():
    record(NIGHT)
    record(NIGHT + 47 * DAY)
    recording.prune(now_seconds=NIGHT + 50 * DAY)
    moments = (NIGHT, NIGHT + 60, NIGHT + 40 * DAY, NIGHT + 40 * DAY + 60, NIGHT + 50 * DAY)
    recording.record({"id": str(uuid.uuid4()), "usage": [[at, "a", 1, 1] for at in moments]})
    recording.roll_up(now_seconds=NIGHT + 50 * DAY + 60)
    assert total(USAGE, "allowed") == total(PLANS, "allowed") == 7
    assert UsageDay.objects.get(day=resolutions.moment(NIGHT + 40 * DAY)).allowed == 2


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 60 * DAY), st.sampled_from(["a", "b", ""])),
        st.tuples(st.sampled_from(["roll_up", "prune"]), st.integers(0, 20 * DAY), st.just("")),
    ),
    max_size=10,
)


@pytest.mark.django_db
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_nothing_is_lost_or_counted_twice_whatever_comes_in_which_order(steps: list[tuple[str, int, str]]):
    for fact in FACTS:
        for table in fact.tables.values():
            table._base_manager.all().delete()
    Stale.objects.all().delete()
    Frontier.objects.all().delete()
    now, counted = NIGHT + 10 * DAY, 0
    for step, seconds, identity in steps:
        if step == "record":
            record((now - seconds) // 60 * 60, identity, allowed=3)
            counted += 3
        else:
            now += seconds
            getattr(recording, step)(now_seconds=now)
    recording.prune(now_seconds=now)  # what was late and is listed
    assert total(USAGE, "allowed") == total(PLANS, "allowed") == counted


@pytest.mark.django_db(transaction=True)
def test_workers_that_record_roll_up_and_delete_at_once_lose_nothing():
    """On PostgreSQL they really run at once; on SQLite they queue."""
    now, counted, failures = NIGHT + 10 * DAY, [], []

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            for turn in range(12):
                if number < 2:
                    record(now - rng.randrange(0, 5 * DAY) // 60 * 60, rng.choice("abc"), allowed=3)
                    counted.append(3)
                elif (turn + number) % 2:
                    recording.roll_up(now_seconds=now + turn * 600)
                else:
                    recording.prune(now_seconds=now + turn * 600)
        except Exception as failure:
            failures.append(failure)
        finally:
            connections.close_all()

    record(now - 4 * DAY, allowed=3)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert failures == []
    recording.prune(now_seconds=now + 2 * HOUR)
    assert total(USAGE, "allowed") == total(PLANS, "allowed") == sum(counted) + 3
