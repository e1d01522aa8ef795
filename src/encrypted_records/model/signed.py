"""Messages that an identity signs, as bytes: no key, no primitive, and so for both sides.

Each message begins with the kind of what is signed, so that a signature of one kind never stands
for one of another (docs/SPEC.md, section 15.2).
"""

from __future__ import annotations

import struct
from typing import Literal

PREFIX = b"ERS1"

#: Everything that a key of an identity, or the answer key of an invitation, ever signs.
SignedKind = Literal["roster", "commit", "checkpoint", "grant", "keys", "answer", "request"]


def info(*parts: bytes) -> bytes:
    """``ERS1`` and the parts, each after its 16-bit length (docs/SPEC.md, section 2).

    The lengths make it injective: no two lists of parts give the same string.
    """
    return b"".join(struct.pack(">H", len(part)) + part for part in (PREFIX, *parts))


def message(kind: SignedKind, *parts: bytes) -> bytes:
    """The bytes that a signature of ``kind`` over the joined ``parts`` is over."""
    return info(b"signed", kind.encode("ascii")) + b"".join(parts)
