"""Single header values of TUS 1.0.0: text in, typed value out, and back.

Every value that is not exactly of its form is refused. No error repeats a value: metadata contains
file names, which are private.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum

from encrypted_records.errors import ChecksumMismatch, Malformed, TooLarge

VERSION = "1.0.0"
CONTENT_TYPE = "application/offset+octet-stream"
#: The largest upload that is accepted, in bytes: 1 TiB.
MAX_SIZE = 1 << 40
#: The longest Upload-Metadata that is accepted, in characters as sent.
MAX_METADATA = 61_000
#: Parts of one concatenation, at most.
MAX_PARTS = 1000

_DIGEST_BYTES = {"md5": 16, "sha1": 20, "sha256": 32}
ALGORITHMS = ("sha256", "sha1", "md5")


class Kind(Enum):
    """The purpose of an upload: itself, a part of others, or the concatenation of such parts."""

    WHOLE = "whole"
    PARTIAL = "partial"
    FINAL = "final"


def malformed(header: str, what: str) -> Malformed:
    return Malformed(
        f"{header} {what}",
        code="invalid_header",
        hint="docs/http-api.md describes the headers of uploads",
    )


def size(text: str, header: str) -> int:
    """A non-negative integer, in decimal digits and nothing else.

    Raises:
        Malformed: it is not one.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 19:
        raise malformed(header, "is not a non-negative integer")
    return int(text)


def upload_length(text: str) -> int:
    """The length of an upload.

    Raises:
        Malformed: it is no length.
        TooLarge: it is more than is accepted.
    """
    length = size(text, "Upload-Length")
    if length > MAX_SIZE:
        raise too_large()
    return length


def too_large() -> TooLarge:
    return TooLarge(
        f"an upload has at most {MAX_SIZE} bytes",
        code="upload_too_large",
        hint="divide the file, or send it as several uploads",
    )


def metadata(text: str) -> Mapping[str, bytes]:
    """Upload-Metadata: values by key; a key without a value has an empty one.

    Raises:
        Malformed: not pairs of a key and Base64, or a key twice.
        TooLarge: longer than what is kept.
    """
    if len(text) > MAX_METADATA:
        raise TooLarge(
            f"Upload-Metadata has at most {MAX_METADATA} characters", code="metadata_too_large"
        )
    values: dict[str, bytes] = {}
    for pair in text.split(",") if text.strip() else ():
        key, _, value = pair.strip(" ").partition(" ")
        if not key:
            raise malformed("Upload-Metadata", "has a pair without a key")
        if key in values:
            raise malformed("Upload-Metadata", "has a key twice")
        values[key] = _base64(value, "Upload-Metadata")
    return values


@dataclass(frozen=True, slots=True)
class Checksum:
    """The hash that the body of one request must have."""

    algorithm: str
    digest: bytes = field(repr=False)

    def hasher(self) -> hashlib._Hash:
        return hashlib.new(self.algorithm, usedforsecurity=False)


def checksum(text: str) -> Checksum:
    """Upload-Checksum: the name of an algorithm, and a digest in Base64.

    Raises:
        Malformed: an algorithm that is not spoken here, or no digest.
        ChecksumMismatch: a digest that no body can have, for its length.
    """
    algorithm, _, encoded = text.partition(" ")
    if algorithm not in ALGORITHMS:
        raise malformed("Upload-Checksum", f"does not name one of {', '.join(ALGORITHMS)}")
    digest = _base64(encoded, "Upload-Checksum")
    if not digest:
        raise malformed("Upload-Checksum", "has no digest")
    if len(digest) != _DIGEST_BYTES[algorithm]:
        raise ChecksumMismatch(
            "the checksum cannot match any body: its digest has another length than its algorithm's"
        )
    return Checksum(algorithm, digest)


def concat(text: str) -> tuple[Kind, tuple[str, ...]]:
    """Upload-Concat: partial or final, and of a final upload the URLs of its parts.

    Raises:
        Malformed: neither ``partial`` nor ``final;`` with URLs.
        TooLarge: more parts than are accepted.
    """
    if text == "partial":
        return Kind.PARTIAL, ()
    kind, separator, urls = text.partition(";")
    parts = tuple(urls.split())
    if kind != "final" or not separator or not parts:
        raise malformed("Upload-Concat", "is neither 'partial' nor 'final;' with a list of URLs")
    if len(parts) > MAX_PARTS:
        raise TooLarge(f"at most {MAX_PARTS} uploads are concatenated", code="too_many_parts")
    return Kind.FINAL, parts


def http_date(seconds: float) -> str:
    """A moment, in seconds since 1970, as RFC 7231 (section 7.1.1.1) writes it."""
    return format_datetime(datetime.fromtimestamp(int(seconds), UTC), usegmt=True)


def _base64(text: str, header: str) -> bytes:
    try:
        return base64.b64decode(text.strip(" "), validate=True)
    except (binascii.Error, ValueError):
        raise malformed(header, "contains something that is not Base64") from None
