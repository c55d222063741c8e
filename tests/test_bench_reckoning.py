"""Does the bench reckon right? What its tables say of a fleet follows from the moments that it is given."""

from __future__ import annotations

from bench import fleet
from bench.results import figure, table

SECOND = fleet.TICKS_PER_SECOND


def test_an_exact_bucket_admits_its_burst_and_then_the_rate():
    every_tenth = [tenth * SECOND // 10 for tenth in range(51)]
    assert fleet._exact(every_tenth, rate=2, burst=5) == 5 + 2 * 5


def test_no_interval_is_over_the_bound_when_just_the_burst_and_the_rate_were_admitted():
    assert fleet._most_over([0] * 5 + [SECOND // 2, SECOND], rate=2, burst=5) == 0


def test_one_request_too_many_shows_though_the_whole_run_is_below_the_bound():
    assert fleet._most_over([0] * 6 + [60 * SECOND], rate=2, burst=5) == 1


def test_a_figure_is_the_median_and_the_quartiles():
    assert figure([1, 2, 3, 4, 5]) == [3, 1.5, 4.5]


def test_a_table_stands_in_line_with_numbers_to_the_right():
    assert table(["what", "us"], [("a", "7"), ("longer", "123")]).splitlines() == [
        "| what   |  us |",
        "|--------|----:|",
        "| a      |   7 |",
        "| longer | 123 |",
    ]
