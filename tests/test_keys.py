"""Is a key's text sound? Its shape, its checksum, and what junk becomes."""

from __future__ import annotations

import hashlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app import keys


def test_a_new_key_is_what_it_says_it_is():
    text, material = keys.generate("rl_live")
    assert re.fullmatch(r"rl_live_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}", text)
    assert keys.parse(text) == material
    assert material.public_id == text.split("_")[2]
    assert material.digest == hashlib.sha256(text.encode()).digest()


def test_no_two_keys_are_alike():
    made = [keys.generate("k") for _ in range(500)]
    assert len({material.public_id for _, material in made}) == 500
    assert len({text[-49:] for text, _ in made}) == 500


def test_every_single_wrong_character_is_noticed_without_a_look_up():
    text, _ = keys.generate("rl_live")
    for place, right in enumerate(text):
        for wrong in "aZ0_":
            if wrong != right:
                changed = text[:place] + wrong + text[place + 1 :]
                assert keys.parse(changed) is None


@pytest.mark.parametrize(
    "junk",
    ["", " ", "_", "rl_live", "abc\xff", "привет", "\0", "\ud800", "a" * 10_000, "rl_live_" + "a" * 62, "_" * 70],
)
def test_junk_is_no_key(junk):
    assert keys.parse(junk) is None


@given(st.text(max_size=120) | st.text(alphabet=string.ascii_letters + string.digits + "_", max_size=90))
def test_no_text_breaks_the_parser(text):
    assert keys.parse(text) is None


def test_blanks_and_line_ends_are_not_part_of_a_key():
    text, _ = keys.generate("rl_live")
    for changed in (f" {text}", f"{text} ", f"{text}\n", text.replace("_", "_ ", 1), text + text):
        assert keys.parse(changed) is None


@pytest.mark.parametrize("prefix", ["a", "acme", "acme_live", "a-b_c", "x" * 32])
def test_any_prefix_that_the_checks_allow_makes_keys_that_parse(prefix):
    text, material = keys.generate(prefix)
    assert keys.parse(text) == material


def test_the_digest_is_not_shown_by_accident():
    _, material = keys.generate("rl_live")
    assert material.digest.hex()[:8] not in repr(material)
    assert repr(material.digest)[2:10] not in repr(material)
