"""Section 2: the derivation tree and uids, with keys as bare bytes."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from tests.reference.definitions import Field, binding, field_id, u32


def info(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(2, "big") + part for part in (b"ERS1", *parts))


def expand(key: bytes, *parts: bytes, length: int = 32) -> bytes:
    """HKDF-Expand of RFC 5869, section 2.3; up to 32 bytes it is its first block."""
    assert length <= 32
    return hmac.new(key, info(*parts) + b"\x01", hashlib.sha256).digest()[:length]


def mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


@dataclass(frozen=True)
class Schema:
    """A schema's place and its key."""

    organization: bytes
    schema: bytes
    kv: int
    key: bytes

    @property
    def place(self) -> bytes:
        return b"\x01" + self.organization + self.schema

    @property
    def key_id(self) -> bytes:
        return expand(self.key, b"id", length=8)

    @property
    def log(self) -> bytes:
        return expand(self.key, b"log")

    @property
    def checkpoint(self) -> bytes:
        """K_checkpoint."""
        return expand(self.key, b"checkpoint")

    @property
    def cover(self) -> bytes:
        """K_cover."""
        return expand(self.key, b"cover")

    @property
    def ledger(self) -> bytes:
        """Section 14: what a proxy keeps of a log."""
        return expand(self.key, b"ledger")

    @property
    def uids(self) -> bytes:
        return expand(self.key, b"uid")

    def meta(self, segment: bytes) -> bytes:
        return expand(expand(self.key, b"metas"), b"meta", segment)

    def field(self, field: Field) -> bytes:
        return expand(self.key, b"field", u32(field_id(field)), binding(field))


def draw(schema: Schema, question: bytes, kind: bytes, rest: bytes) -> int:
    """Section 17: what is asked for beside what is needed."""
    return int.from_bytes(mac(schema.cover, question + kind + rest)[:8], "big")


def fingerprint(root: bytes) -> bytes:
    return expand(root, b"fingerprint", length=8)


def verifier(root: bytes) -> bytes:
    return expand(root, b"verifier")


def schema(root: bytes, organization: bytes, schema_id: bytes, kv: int) -> Schema:
    key = expand(root, b"schema", organization, schema_id, u32(kv))
    return Schema(organization, schema_id, kv, key)


def seal_key(field: bytes, group: bytes) -> bytes:
    return expand(field, b"seal", group)


def index_key(field: bytes, segment: bytes) -> bytes:
    return expand(field, b"index", segment)


def tail_key(field: bytes) -> bytes:
    return expand(field, b"tail")


def request_id(uids: bytes, key: bytes, body: bytes, number: int) -> bytes:
    h = mac(uids, b"request" + key + hashlib.sha256(body).digest() + number.to_bytes(4, "big"))
    bits = f"{int.from_bytes(h, 'big'):0256b}"
    rest = "0111" + bits[4:8] + bits[8:16] + "10" + bits[18:24] + bits[24:80]
    return key[:6] + int(rest, 2).to_bytes(10, "big")


def question(uids: bytes, text: bytes) -> bytes:
    return mac(uids, b"question" + hashlib.sha256(text).digest())[:16]


def uid(key: bytes, r: bytes, content: bytes) -> bytes:
    assert len(r) == 32
    return mac(key, r + hashlib.sha256(content).digest())[:16]
