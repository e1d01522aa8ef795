"""Section 16.1: links to questions, written from the specification alone."""

from __future__ import annotations

import base64
import re

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import does_not_open, msgpack
from tests.reference.definitions import u32
from tests.reference.keys import expand


def text(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def key(secret: bytes, schema: bytes, link: bytes) -> bytes:
    """K_link."""
    return expand(secret, b"link", schema, link)


def write(k_link: bytes, nonce: bytes, form: list[tuple[str, str]]) -> bytes:
    content = msgpack.pack([list(pair) for pair in form])
    framed = u32(len(content)) + content
    padded = framed + bytes(-len(framed) % 512)
    return b"\x01" + nonce + AESGCM(k_link).encrypt(nonce, padded, b"\x01")


def read(secret: str, schema: bytes, link: bytes, sealed: bytes) -> bytes:
    """The MessagePack of the form."""
    if not re.fullmatch("[A-Za-z0-9_-]{43}", secret) or sealed[:1] != b"\x01":
        raise does_not_open()
    k_link = key(base64.urlsafe_b64decode(secret + "="), schema, link)
    try:
        padded = AESGCM(k_link).decrypt(sealed[1:13], sealed[13:], b"\x01")
    except (InvalidTag, ValueError):
        raise does_not_open() from None
    return padded[4 : 4 + int.from_bytes(padded[:4], "big")]
