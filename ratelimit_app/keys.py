"""What is an API key made of? Generate, parse and digest its text; nothing here knows a database.

    rl_live_7Kq2mB0xTn4e_<43 characters of secret><6 of checksum>
    prefix  public id    256 random bits           CRC-32 of all that stands before it

The public id is looked up and shown everywhere. Of the text only a SHA-256 digest is kept: 256
random bits need no slow hash, and a slow hash on every request would be a gift to whoever sends
junk. The checksum lets junk be refused without a look-up and lets secret scanners verify a find.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass, field

_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
PUBLIC_ID_LENGTH = 12
_SECRET_LENGTH = 43  # 62^43 > 2^256
_CHECKSUM_LENGTH = 6  # 62^6 > 2^32
_SHAPE = re.compile(
    rf"[0-9A-Za-z_-]{{1,32}}_([0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})_[0-9A-Za-z]{{{_SECRET_LENGTH + _CHECKSUM_LENGTH}}}"
)


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A key as the caller sends it, taken apart."""

    #: Whom the key claims to be; safe to show and to log.
    public_id: str
    #: SHA-256 of the whole text: what is stored and compared.
    digest: bytes = field(repr=False)


def generate(prefix: str) -> tuple[str, KeyMaterial]:
    """A new key's text, which exists nowhere else, and what may be stored of it."""
    public_id = _random_text(PUBLIC_ID_LENGTH)
    body = f"{prefix}_{public_id}_{_random_text(_SECRET_LENGTH)}"
    text = body + _checksum(body)
    return text, KeyMaterial(public_id, _digest(text))


def parse(text: str) -> KeyMaterial | None:
    """Take a key's text apart, or None when it cannot be a key. Costs about two microseconds."""
    match = _SHAPE.fullmatch(text)
    if match is None or _checksum(text[:-_CHECKSUM_LENGTH]) != text[-_CHECKSUM_LENGTH:]:
        return None
    return KeyMaterial(match[1], _digest(text))


def new_bucket_identity() -> str:
    """What a new key's buckets and usage hang on: 96 random bits."""
    return secrets.token_urlsafe(12)


def _random_text(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode("ascii")), ""
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("ascii")).digest()
