"""Would these tests notice? Each complaint that they rely on is provoked once."""

from __future__ import annotations

from typing import Any

from tests.overview_page import URL


def test_an_inline_script_and_an_inline_style_are_complained_about(visit: Any) -> None:
    visitor = visit(URL)

    visitor.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
            const part = document.createElement("div");
            part.innerHTML = '<b style="color: red">red</b>';
            document.body.append(part);
        }"""
    )

    assert visitor.page.evaluate("() => window.ran") is None
    said = "\n".join(visitor.complaints)
    assert "CSP script-src-elem: inline" in said
    assert "CSP style-src-attr: inline" in said
    visitor.complaints.clear()


def test_what_axe_finds_is_a_barrier(visit: Any) -> None:
    visitor = visit(URL)

    visitor.page.evaluate("() => document.querySelector('main').append(document.createElement('button'))")

    assert any(barrier.startswith("button-name") for barrier in visitor.barriers())


def test_a_script_that_fails_is_complained_about(visit: Any) -> None:
    visitor = visit(URL)

    with visitor.page.expect_event("pageerror"):
        visitor.page.evaluate("() => { setTimeout(() => { throw new Error('of this test'); }); }")

    assert any("of this test" in complaint for complaint in visitor.complaints)
    visitor.complaints.clear()
