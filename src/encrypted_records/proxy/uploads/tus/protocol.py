"""Requests of TUS 1.0.0 as a table, and the headers of the answers.

A request is checked in two steps, both before the first byte of its body: :func:`read` checks its
own headers, :func:`admit` checks them against the upload. After both, the body may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from encrypted_records.errors import (
    BadInput,
    Conflict,
    NotAllowed,
    TooLarge,
    Unsupported,
    VersionRefused,
)
from encrypted_records.proxy.uploads.tus import headers as header
from encrypted_records.proxy.uploads.tus.headers import Checksum, Kind

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
ALWAYS = {"Tus-Resumable": header.VERSION, "Cache-Control": "no-store"}
#: Headers of a refused version, and of OPTIONS.
VERSIONS = {"Tus-Version": header.VERSION}

Headers = Mapping[str, str]


class OffsetMismatch(Conflict):
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
    """The state of an upload, as :func:`admit` and the answers need it.

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
    """PATCH: put the body at ``offset``. ``length`` is that of the upload, named only now."""

    offset: int
    length: int | None
    body: Body


@dataclass(frozen=True, slots=True)
class TerminateUpload:
    """DELETE: forget an upload."""


Request = DescribeServer | Create | Show | Append | TerminateUpload


def method_of(method: str, headers: Headers) -> str:
    """The method that counts: X-HTTP-Method-Override, where it is given, instead of the real."""
    return headers.get("x-http-method-override", method).upper()


def list_methods(*, on_upload: bool) -> tuple[str, ...]:
    """The methods of the creation URL, or of an upload's."""
    return tuple(method for method, where in _TABLE if where is on_upload)


def read(method: str, headers: Headers, *, on_upload: bool) -> Request | None:
    """The request that these headers make; None where its URL does not have the method.

    Args:
        method: as :func:`method_of` gives it.
        headers: by name in lower case.
        on_upload: whether it is sent to an upload, not to the creation URL.

    Raises:
        VersionRefused: it does not speak version 1.0.0.
        Malformed, TooLarge, Unsupported, NotAllowed: by its headers, it cannot be done.
    """
    reader = _TABLE.get((method, on_upload))
    if reader is None:
        return None
    if method != "OPTIONS" and headers.get("tus-resumable") != header.VERSION:
        raise VersionRefused(
            f"Tus-Resumable is not {header.VERSION}",
            hint=f"send Tus-Resumable: {header.VERSION} with every request",
        )
    return reader(headers)


def _describe(_headers: Headers) -> DescribeServer:
    return DescribeServer()


def _create(headers: Headers) -> Create:
    concat, text = headers.get("upload-concat"), headers.get("upload-metadata", "")
    kind, parts = (Kind.WHOLE, ()) if concat is None else header.concat(concat)
    length = _length_of_new(headers, kind)
    metadata = header.metadata(text)
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
            raise header.malformed("Upload-Length", "of a final upload is the sum of its parts")
        return None
    if deferred is not None and deferred != "1":
        raise header.malformed("Upload-Defer-Length", "can only be 1")
    if sent is not None and deferred is not None:
        raise header.malformed("Upload-Length", "is both given and deferred")
    if sent is None and deferred is None:
        raise header.malformed("Upload-Length", "is missing, and so is Upload-Defer-Length")
    return None if sent is None else header.upload_length(sent)


def _show(_headers: Headers) -> Show:
    return Show()


def _append(headers: Headers) -> Append:
    if "upload-offset" not in headers:
        raise header.malformed("Upload-Offset", "is missing")
    offset = header.size(headers["upload-offset"], "Upload-Offset")
    length = headers.get("upload-length")
    return Append(offset, None if length is None else header.upload_length(length), _body(headers))


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
    if headers.get("content-type", "").partition(";")[0].strip().lower() != header.CONTENT_TYPE:
        raise Unsupported(
            "the bytes of an upload need their own media type",
            code="unsupported_media_type",
            hint=f"send Content-Type: {header.CONTENT_TYPE}",
        )
    sent = headers.get("upload-checksum")
    checksum = None if sent is None else header.checksum(sent)
    if "transfer-encoding" in headers:
        return Body(None, checksum)
    return Body(header.size(headers.get("content-length", "0"), "Content-Length"), checksum)


def admit(append: Append, upload: UploadStatus) -> int | None:
    """Whether the body may be appended to ``upload``.

    Returns:
        The upload's length from now on, None if still deferred.

    Raises:
        NotAllowed: ``upload_final``: it is the concatenation of others.
        OffsetMismatch: the upload is not where the request believes.
        BadInput: ``length_fixed``: the request names another length than is known, or one that
            is exceeded already.
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
            raise BadInput(
                "Upload-Length contradicts the known length of the upload", code="length_fixed"
            )
        length = append.length
    _within(append.offset, length, append.body)
    return length


def _within(offset: int, length: int | None, body: Body) -> None:
    if offset + (body.size or 0) > (header.MAX_SIZE if length is None else length):
        raise beyond_length()


def beyond_length() -> TooLarge:
    return TooLarge(
        "the body extends beyond the length of the upload",
        code="beyond_length",
        hint="nothing was kept; ask for the offset with HEAD",
    )


def _final() -> NotAllowed:
    return NotAllowed(
        "a final upload consists of its parts and accepts no bytes of its own",
        code="upload_final",
        hint="send the bytes to a partial upload before they are concatenated",
    )


def describe() -> dict[str, str]:
    """The headers that answer OPTIONS."""
    return VERSIONS | {
        "Tus-Extension": ",".join(EXTENSIONS),
        "Tus-Max-Size": str(header.MAX_SIZE),
        "Tus-Checksum-Algorithm": ",".join(header.ALGORITHMS),
    }


def progress(offset: int, expires: float | None) -> dict[str, str]:
    """The position of an upload and its expiry: the headers that answer PATCH and POST."""
    headers = {"Upload-Offset": str(offset)}
    if expires is not None:
        headers["Upload-Expires"] = header.http_date(expires)
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
