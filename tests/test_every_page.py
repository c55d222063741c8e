"""What holds for every page of the app in the admin, whichever it is?"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from tests import every_page
from tests.admin_pages import staff
from tests.overview_page import Page

pytestmark = pytest.mark.django_db

HOSTILE = "<img src=x onerror=alert(1)>\"'</script>\u202e{{ 7 }}"
DRAWN = ("rect", "line", "text", "svg", "data", "pattern")
NUMERIC = {"x", "y", "x1", "x2", "y1", "y2", "dx", "dy", "width", "height", "value"}


def test_there_are_pages() -> None:
    found = list(every_page.addresses())
    assert len(found) == len(set(found)) > 30


def test_nobody_in_particular_is_sent_to_the_login_whatever_the_page() -> None:
    every_page.fill()
    for address in every_page.addresses():
        for answer in (Client().get(address), Client().post(address)):
            assert answer.status_code == 302, address
            assert answer["Location"].startswith("/admin/login/?next="), address


def test_staff_without_a_permission_are_refused_whatever_the_page() -> None:
    every_page.fill()
    nobody = staff()
    for address in every_page.addresses():
        assert nobody.get(address).status_code == 403, address
        sent = nobody.post(address, {"note": "x", "reason": "x", "typed": "Acme"})
        assert sent.status_code in (403, 405), address  # 405 from a page that nobody can send anything to
    assert not LogEntry.objects.exists()


def test_no_page_changes_anything_without_the_token_against_forgery(admin_user: Any) -> None:
    every_page.fill()
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    for address in every_page.addresses():
        assert client.post(address, {"reason": "x", "typed": "Acme"}).status_code in (403, 405), address
    assert not LogEntry.objects.exists()


def test_hostile_names_are_only_ever_text(admin_client: Client) -> None:
    every_page.fill(HOSTILE)
    shown = 0
    for address in every_page.addresses():
        answer = admin_client.get(address)
        page = Page(answer.content.decode())
        shown += HOSTILE in page.text
        assert [image for image in page.all("img") if image["src"] == "x"] == [], address
        assert [name for _tag, found in page.elements for name in found if name.startswith("on")] == [], address
    assert shown > 15


@pytest.mark.parametrize("language", ["de", "fr"])
def test_c29_what_machines_read_is_not_localised_on_any_page(
    language: str, settings: Any, admin_client: Client
) -> None:
    settings.LANGUAGE_CODE = language
    settings.USE_THOUSAND_SEPARATOR = True
    every_page.fill()
    localised = re.compile(r"1[.\s\u202f]234|12,5")
    pages = 0
    for address in every_page.addresses():
        answer = admin_client.get(address)
        if answer.status_code != 200:
            assert answer.status_code in (302, 403), address  # what cannot be done here, or not now
            continue
        pages += 1
        html = answer.content.decode()
        for tag, found in Page(html).elements:
            links = [found.get(name) or "" for name in ("href", "action", "src", "data-popup-opener")]
            assert not [link for link in links if localised.search(link)], (address, tag)
            if tag == "input" and found.get("type") in ("hidden", "number", "checkbox"):
                assert not localised.search(found.get("value") or ""), (address, found)
            if tag in DRAWN:
                for name in NUMERIC & found.keys():
                    assert re.fullmatch(r"-?\d+(\.\d+)?", found[name] or ""), (address, tag, name, found[name])
        for data in re.findall(r'<script id="[^"]*" type="application/json">(.*?)</script>', html, re.DOTALL):
            json.loads(data)
    assert pages > 20
