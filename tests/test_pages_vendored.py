"""Is what others made, and we ship, as they made it?"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import ratelimit_app

VENDOR = Path(ratelimit_app.__file__).parent / "static/ratelimit_app/vendor"
CHECKSUMS = {
    name: checksum
    for checksum, name in (
        line.split("  ") for line in (VENDOR / "checksums.txt").read_text().splitlines() if not line.startswith("#")
    )
}


@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_vendored_file_has_its_checksum(name):
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == CHECKSUMS[name]


def test_every_vendored_file_is_on_the_list_its_licence_included():
    found = {str(path.relative_to(VENDOR)) for path in VENDOR.rglob("*") if path.is_file()}

    assert found - {"checksums.txt"} == CHECKSUMS.keys()
    assert {name.split("/")[0] + "/LICENSE" for name in CHECKSUMS} <= CHECKSUMS.keys()
