"""Resumable uploads, TUS 1.0.0: headers in, decisions out. This module does no I/O.

Header values are parsed from text to typed values, and written back. A malformed value is refused.
No error repeats a value: metadata contains file names, which are private.

Requests are a table. Each is checked in two steps, both before the first byte of its body:
:func:`read` checks its own headers, :func:`admit` checks them against the upload. After both, the
body may be read. docs/tus.md lists every MUST and SHOULD of the protocol with its test.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum

from encrypted_records import errors

VERSION = "1.0.0"
CONTENT_TYPE = "application/offset+octet-stream"
#: The largest upload that is accepted, in bytes: 1 TiB.
MAX_SIZE = 1 << 40
#: The longest Upload-Metadata that is accepted, in characters as sent.
MAX_METADATA = 61_000
#: Maximum number of parts of a concatenation.
MAX_PARTS = 1000

_DIGEST_BYTES = {"md5": 16, "sha1": 20, "sha256": 32}
ALGORITHMS = ("sha256", "sha1", "md5")


class Kind(Enum):
    """The purpose of an upload: a whole file, a part of others, or the concatenation of such
    parts.
    """

    WHOLE = "whole"
    PARTIAL = "partial"
    FINAL = "final"


def malformed(header: str, flaw: str) -> errors.Malformed:
    return errors.Malformed(
        f"{header} {flaw}",
        code="invalid_header",
        hint="docs/http-api.md describes the headers of uploads",
    )


def read_size(text: str, header: str) -> int:
    """A non-negative integer, in decimal digits and nothing else.

    Raises:
        Malformed: not a non-negative integer.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 19:
        raise malformed(header, "is not a non-negative integer")
    return int(text)


def read_upload_length(text: str) -> int:
    """The length of an upload.

    Raises:
        Malformed: it is not a length.
        TooLarge: it is more than is accepted.
    """
    length = read_size(text, "Upload-Length")
    if length > MAX_SIZE:
        raise too_large()
    return length


def too_large() -> errors.TooLarge:
    return errors.TooLarge(
        f"an upload has at most {MAX_SIZE} bytes",
        code="upload_too_large",
        hint="divide the file, or send it as several uploads",
    )


def read_metadata(text: str) -> Mapping[str, bytes]:
    """Upload-Metadata: values by key; a key without a value has an empty one.

    Raises:
        Malformed: not pairs of a key and Base64, or a key twice.
        TooLarge: longer than the limit.
    """
    if len(text) > MAX_METADATA:
        raise errors.TooLarge(
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


def read_checksum(text: str) -> Checksum:
    """Upload-Checksum: the name of an algorithm, and a digest in Base64.

    Raises:
        Malformed: an unsupported algorithm, or not a digest.
        ChecksumMismatch: the digest has the wrong length.
    """
    algorithm, _, encoded = text.partition(" ")
    if algorithm not in ALGORITHMS:
        raise malformed("Upload-Checksum", f"does not name one of {', '.join(ALGORITHMS)}")
    digest = _base64(encoded, "Upload-Checksum")
    if not digest:
        raise malformed("Upload-Checksum", "has no digest")
    if len(digest) != _DIGEST_BYTES[algorithm]:
        raise errors.ChecksumMismatch(
            "the checksum cannot match any body: its digest has another length than its algorithm's"
        )
    return Checksum(algorithm, digest)


def read_concat(text: str) -> tuple[Kind, tuple[str, ...]]:
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
        raise errors.TooLarge(
            f"at most {MAX_PARTS} uploads are concatenated", code="too_many_parts"
        )
    return Kind.FINAL, parts


def http_date(seconds: float) -> str:
    """A moment, in seconds since 1970, as RFC 7231 (section 7.1.1.1) writes it."""
    return format_datetime(datetime.fromtimestamp(int(seconds), UTC), usegmt=True)


def _base64(text: str, header: str) -> bytes:
    try:
        return base64.b64decode(text.strip(" "), validate=True)
    except (binascii.Error, ValueError):
        raise malformed(header, "contains something that is not Base64") from None


EXTENSIONS = (
    "creation",
    "creation-with-upload",
    "creation-defer-length",
    "checksum",
    "termination",
    "expiration",
    "concatenation",
)

#: Headers of every answer.
ALWAYS = {"Tus-Resumable": VERSION, "Cache-Control": "no-store"}
#: Headers of a refused version, and of OPTIONS.
VERSIONS = {"Tus-Version": VERSION}

Headers = Mapping[str, str]


class OffsetMismatch(errors.Conflict):
    """The upload is at ``offset``, and the request begins elsewhere."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"the upload is at offset {offset}",
            code="offset_mismatch",
            hint="continue at the Upload-Offset of this answer",
        )
        self.offset = offset


@dataclass(frozen=True, slots=True)
class UploadStatus:
    """The state of an upload, for :func:`admit` and the answers.

    ``length`` is None while it is deferred, ``expires`` (seconds since 1970) once it is complete.
    ``metadata`` and ``concat`` are the headers as they were sent.
    """

    kind: Kind
    offset: int
    length: int | None
    expires: float | None = None
    metadata: str | None = field(default=None, repr=False)
    concat: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.offset == self.length


@dataclass(frozen=True, slots=True)
class Body:
    """A body that may be read; ``size`` is None if only its end shows it."""

    size: int | None
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class DescribeServer:
    """OPTIONS: report version, extensions and limits."""


@dataclass(frozen=True, slots=True)
class Create:
    """POST: make an upload, which begins as ``status``. ``metadata`` describes it.

    The length of a final upload is that of its ``parts``, which are URLs as they were sent.
    """

    status: UploadStatus
    parts: tuple[str, ...]
    metadata: Mapping[str, bytes] = field(repr=False)
    body: Body | None


@dataclass(frozen=True, slots=True)
class Show:
    """HEAD: report the offset of an upload."""


@dataclass(frozen=True, slots=True)
class Append:
    """PATCH: append the body at ``offset``. ``length`` is the upload's length if it was deferred
    until now.
    """

    offset: int
    length: int | None
    body: Body


@dataclass(frozen=True, slots=True)
class TerminateUpload:
    """DELETE: forget an upload."""


Request = DescribeServer | Create | Show | Append | TerminateUpload


def method_of(method: str, headers: Headers) -> str:
    """The effective method: X-HTTP-Method-Override if it is given, otherwise the real method."""
    return headers.get("x-http-method-override", method).upper()


def list_methods(*, on_upload: bool) -> tuple[str, ...]:
    """The methods of the creation URL, or of an upload's."""
    return tuple(method for method, where in _TABLE if where is on_upload)


def read(method: str, headers: Headers, *, on_upload: bool) -> Request | None:
    """The request that these headers make; None if its URL does not have the method.

    Args:
        method: as :func:`method_of` gives it.
        headers: by name in lower case.
        on_upload: whether it is sent to an upload, not to the creation URL.

    Raises:
        VersionRefused: it does not speak version 1.0.0.
        Malformed, TooLarge, Unsupported, NotAllowed: its headers are invalid.
    """
    reader = _TABLE.get((method, on_upload))
    if reader is None:
        return None
    if method != "OPTIONS" and headers.get("tus-resumable") != VERSION:
        raise errors.VersionRefused(
            f"Tus-Resumable is not {VERSION}",
            hint=f"send Tus-Resumable: {VERSION} with every request",
        )
    return reader(headers)


def _describe(_headers: Headers) -> DescribeServer:
    return DescribeServer()


def _create(headers: Headers) -> Create:
    concat, text = headers.get("upload-concat"), headers.get("upload-metadata", "")
    kind, parts = (Kind.WHOLE, ()) if concat is None else read_concat(concat)
    length = _length_of_new(headers, kind)
    metadata = read_metadata(text)
    body = _body(headers) if _has_body(headers) else None
    if body is not None:
        if kind is Kind.FINAL:
            raise _final()
        _within(0, length, body)
    status = UploadStatus(kind, 0, length, metadata=text or None, concat=concat)
    return Create(status, parts, metadata, body)


def _length_of_new(headers: Headers, kind: Kind) -> int | None:
    sent, deferred = headers.get("upload-length"), headers.get("upload-defer-length")
    if kind is Kind.FINAL:
        if sent is not None or deferred is not None:
            raise malformed("Upload-Length", "of a final upload is the sum of its parts")
        return None
    if deferred is not None and deferred != "1":
        raise malformed("Upload-Defer-Length", "can only be 1")
    if sent is not None and deferred is not None:
        raise malformed("Upload-Length", "is both given and deferred")
    if sent is None and deferred is None:
        raise malformed("Upload-Length", "is missing, and so is Upload-Defer-Length")
    return None if sent is None else read_upload_length(sent)


def _show(_headers: Headers) -> Show:
    return Show()


def _append(headers: Headers) -> Append:
    if "upload-offset" not in headers:
        raise malformed("Upload-Offset", "is missing")
    offset = read_size(headers["upload-offset"], "Upload-Offset")
    length = headers.get("upload-length")
    return Append(offset, None if length is None else read_upload_length(length), _body(headers))


def _terminate(_headers: Headers) -> TerminateUpload:
    return TerminateUpload()


_TABLE: Mapping[tuple[str, bool], Callable[[Headers], Request]] = {
    ("OPTIONS", False): _describe,
    ("POST", False): _create,
    ("OPTIONS", True): _describe,
    ("HEAD", True): _show,
    ("PATCH", True): _append,
    ("DELETE", True): _terminate,
}


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _body(headers: Headers) -> Body:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        raise errors.Unsupported(
            "the bytes of an upload need their own media type",
            code="unsupported_media_type",
            hint=f"send Content-Type: {CONTENT_TYPE}",
        )
    sent = headers.get("upload-checksum")
    checksum = None if sent is None else read_checksum(sent)
    if "transfer-encoding" in headers:
        return Body(None, checksum)
    return Body(read_size(headers.get("content-length", "0"), "Content-Length"), checksum)


def admit(append: Append, upload: UploadStatus) -> int | None:
    """Whether the body may be appended to ``upload``.

    Returns:
        The upload's length from now on, None if still deferred.

    Raises:
        NotAllowed: ``upload_final``: it is the concatenation of others.
        OffsetMismatch: the upload has another offset.
        BadInput: ``length_fixed``: the request names a length other than the known length, or a
            length that is exceeded already.
        TooLarge: ``beyond_length``: the body would not fit.
    """
    if upload.kind is Kind.FINAL:
        raise _final()
    if append.offset != upload.offset:
        raise OffsetMismatch(upload.offset)
    length = upload.length
    if append.length is not None:
        known = (None, append.length)
        if length not in known or append.length < upload.offset:
            raise errors.BadInput(
                "Upload-Length contradicts the known length of the upload", code="length_fixed"
            )
        length = append.length
    _within(append.offset, length, append.body)
    return length


def _within(offset: int, length: int | None, body: Body) -> None:
    if offset + (body.size or 0) > (MAX_SIZE if length is None else length):
        raise beyond_length()


def beyond_length() -> errors.TooLarge:
    return errors.TooLarge(
        "the body extends beyond the length of the upload",
        code="beyond_length",
        hint="nothing was kept; ask for the offset with HEAD",
    )


def _final() -> errors.NotAllowed:
    return errors.NotAllowed(
        "a final upload consists of its parts and accepts no bytes of its own",
        code="upload_final",
        hint="send the bytes to a partial upload before they are concatenated",
    )


def describe() -> dict[str, str]:
    """The headers that answer OPTIONS."""
    return VERSIONS | {
        "Tus-Extension": ",".join(EXTENSIONS),
        "Tus-Max-Size": str(MAX_SIZE),
        "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
    }


def progress(offset: int, expires: float | None) -> dict[str, str]:
    """The position of an upload and its expiry: the headers that answer PATCH and POST."""
    headers = {"Upload-Offset": str(offset)}
    if expires is not None:
        headers["Upload-Expires"] = http_date(expires)
    return headers


def show(upload: UploadStatus) -> dict[str, str]:
    """The headers that answer HEAD."""
    headers = progress(upload.offset, upload.expires)
    if upload.length is None:
        headers["Upload-Defer-Length"] = "1"
    else:
        headers["Upload-Length"] = str(upload.length)
    if upload.metadata:
        headers["Upload-Metadata"] = upload.metadata
    if upload.concat:
        headers["Upload-Concat"] = upload.concat
    return headers
