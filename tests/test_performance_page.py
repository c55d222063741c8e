"""Does docs/performance.md say what was measured? Its tables are those of bench/results.json."""

from __future__ import annotations

import pytest

from bench import page, results


def test_the_tables_of_the_page_are_made_from_the_results():
    assert page.rendered(page.PATH.read_text(), results.read()) == page.PATH.read_text(), "run python -m bench.page"


def test_a_table_that_nobody_measures_is_an_error_and_not_an_empty_place():
    with pytest.raises(KeyError):
        page.rendered("<!-- table decisions.mood -->\n<!-- end -->", results.read())


def test_what_stands_around_the_tables_is_left_alone():
    text = "# Words\n\nmore words\n"
    assert page.rendered(text, results.read()) == text
