"""Can a project translate what the app says? What `makemessages` finds is all there is to translate."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import translation

from ratelimit_app import responses
from ratelimit_app.limits import Limit
from tests.followed_pages import ROOT

APP = ROOT / "ratelimit_app"
MODULES = [path for path in APP.rglob("*.py") if "django.utils.translation" in path.read_text()]
TEMPLATES = [*APP.rglob("templates/**/*.html"), *(ROOT / "templates").rglob("*.html")]


def texts(path: Path) -> Iterator[tuple[int, ast.expr]]:
    """Where a module asks for a translation, and of what."""
    tree = ast.parse(path.read_text())
    asking = {
        (alias.asname or alias.name): 2 if alias.name.startswith("ngettext") else 1
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
        if "gettext" in alias.name
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in asking:
            yield from ((node.lineno, text) for text in node.args[: asking[node.func.id]])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(APP).as_posix())
def test_every_text_that_code_says_is_a_constant_and_its_gaps_have_names(path: Path) -> None:
    found = list(texts(path))
    assert found, "it imports what it does not use"
    for line, text in found:
        assert isinstance(text, ast.Constant), f"line {line}: makemessages does not find it"
        assert not re.search(r"%[sd]|\{\}", str(text.value)), f"line {line}: a translator cannot change the order"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_template_says_no_word_that_cannot_be_translated(path: Path) -> None:
    html = path.read_text()
    for gone in (
        r"\{% comment %\}.*?\{% endcomment %\}",
        r"\{% block bodyclass %\}.*?\{% endblock %\}",
        r"\{% blocktranslate.*?endblocktranslate %\}",
        r"\{%.*?%\}|\{\{.*?\}\}",
        r"&\w+;",
    ):
        html = re.sub(gone, "", html, flags=re.DOTALL)
    words = re.findall(r">([^<]*)<", html) + re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]*)"', html)
    assert [word for word in words if re.search("[A-Za-z]{3}", word)] == []


def test_a_problem_body_says_numbers_and_plurals_as_its_language_does() -> None:
    one = Limit(id=1, name="free", requests=1, period_seconds=7200, burst=1)
    assert responses._allowance(one) == "The limit free allows 1 request per 7200 seconds."
    with translation.override("de"):  # there is no catalogue of it: what is said stays whole
        assert json.loads(responses.unauthorized().content)["detail"] == "A valid API key is required."
