"""Errors as RFC 9457 problem documents: the format and the status numbers of both sides."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from encrypted_records import errors
from encrypted_records.errors import ErsError, Flaw

MEDIA_TYPE = "application/problem+json"
#: Maximum flaws listed in one answer; ``detail`` counts the rest.
MAX_FLAWS = 1000

#: The nearest class in an error's ancestry decides.
STATUS: dict[type[ErsError], int] = {
    errors.BadInput: 400,
    errors.ChecksumMismatch: 460,
    errors.TooLarge: 413,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Gone: 410,
    errors.Conflict: 409,
    errors.MergeFirst: 429,
    errors.Locked: 423,
    errors.Throttled: 429,
    errors.PreconditionFailed: 412,
    errors.Unsupported: 415,
    errors.Misdirected: 421,
    errors.NotInstalled: 501,
    errors.VersionRefused: 412,
    errors.Refused: 403,
    errors.Closed: 422,
    errors.Unavailable: 502,
    errors.ApiTimeout: 504,
    errors.TooSlow: 408,
    errors.Overloaded: 503,
    errors.Stopping: 503,
    errors.OutOfSpace: 507,
    errors.DatabaseFull: 507,
    errors.DatabaseDiskFailed: 500,
    errors.DatabaseDamaged: 500,
    errors.StoreFull: 507,
    errors.StoreUnavailable: 503,
    errors.ObjectLost: 500,
    errors.ObjectAltered: 500,
    ErsError: 500,
}

_TITLES = {
    **dict.fromkeys((301, 302, 303, 307, 308), "Redirected to another address"),
    400: "The request is not valid",
    401: "Credentials are needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "The request took too long to arrive",
    409: "In conflict with the current state",
    410: "Gone",
    412: "Precondition failed",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Refused: its correctness cannot be proven",
    423: "Locked",
    429: "Too many requests",
    431: "The head is too large",
    460: "Checksum mismatch",
    500: "Internal error",
    501: "Not implemented",
    502: "The API cannot be reached",
    503: "Not available at the moment",
    504: "The API did not answer in time",
    507: "No space on the disk",
}
#: Codes for which the title of their status would be misleading.
_TITLES_OF_CODES = {
    "access_store_failed": "The proxy's disk fails",
    "proxy_store_failed": "The proxy's disk fails",
    "job_store_failed": "The proxy's disk fails",
    "spool_failed": "The proxy's disk fails",
    "keyring_disk": "The proxy's disk fails",
    "worker_lost": "The proxy's work was interrupted",
    "api_failed": "The API failed",
    "database_disk_failed": "The API's disk fails",
}


def status_of(error: ErsError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def title_of(status: int) -> str:
    return _TITLES.get(status, "Error")


def _flaw(flaw: Flaw) -> dict[str, Any]:
    parts = {
        "pointer": flaw.pointer,
        "parameter": flaw.parameter,
        "header": flaw.header,
        "row": flaw.row,
        "field": flaw.field,
    }
    members: dict[str, Any] = {name: value for name, value in parts.items() if value is not None}
    return members | {"code": flaw.code, "detail": flaw.detail}


def type_of(code: str) -> str:
    """The ``type`` of an error: a path of the proxy that leads to the paragraph about its code."""
    return f"/help/errors/{code}/"


def document(
    status: int,
    code: str,
    detail: str,
    *,
    hint: str = "",
    flaws: tuple[Flaw, ...] = (),
) -> dict[str, Any]:
    """The members of a problem document; ``code`` is stable, ``errors`` is present for
    bad input.
    """
    body: dict[str, Any] = {
        "type": type_of(code),
        "title": _TITLES_OF_CODES.get(code) or title_of(status),
        "status": status,
        "detail": detail,
        "code": code,
    }
    if hint:
        body["hint"] = hint
    if flaws:
        body["errors"] = [_flaw(flaw) for flaw in flaws[:MAX_FLAWS]]
        if len(flaws) > MAX_FLAWS:
            body["errors_total"] = len(flaws)
    return body


def of_error(error: ErsError) -> dict[str, Any]:
    body = document(
        status_of(error), error.reason, error.message, hint=error.hint, flaws=error.flaws
    )
    if error.from_api:
        body["from_api"] = True
    return body | ({"job_id": error.job_id} if isinstance(error, errors.UploadedBefore) else {})


class _ReceivedFlaw(msgspec.Struct):
    code: str = ""
    detail: str = ""
    pointer: str | None = None
    row: int | None = None
    field: str | None = None
    parameter: str | None = None
    header: str | None = None


#: Form of the codes of errors, which become headers and parts of addresses.
_CODE = r"^([a-z][a-z0-9_]{0,99})?\Z"
_UUID = r"^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?\Z"


class _Received(msgspec.Struct):
    """A problem document as a client reads it; unknown members are skipped."""

    code: Annotated[str, Meta(pattern=_CODE)] = ""
    detail: str = ""
    hint: str = ""
    errors: list[_ReceivedFlaw] = []
    from_api: bool = False
    job_id: Annotated[str, Meta(pattern=_UUID)] = ""


#: Codes with a more specific class than their status has.
_BY_CODE: dict[str, type[ErsError]] = {
    kind.code: kind
    for kind in (
        errors.InvalidDefinition,
        errors.InvalidRecords,
        errors.ReadingRefused,
        errors.InvalidQuery,
        errors.StaleDefinition,
        errors.MergeFirst,
        errors.UploadedBefore,
        errors.PreconditionFailed,
        errors.NoProxy,
        errors.NotThisProxy,
        errors.TooSlow,
        errors.KeyMissing,
        errors.DoesNotOpen,
        errors.LogBroken,
        errors.ApiUnreachable,
        errors.ProxyUnreachable,
        errors.ApiTimeout,
        errors.Overloaded,
        errors.Stopping,
        errors.OutOfSpace,
        errors.DatabaseFull,
        errors.DatabaseDiskFailed,
        errors.DatabaseDamaged,
        errors.StoreFull,
        errors.StoreUnavailable,
        errors.ObjectLost,
        errors.ObjectAltered,
    )
}
_BY_STATUS: dict[int, type[ErsError]] = {
    400: errors.BadInput,
    401: errors.NotAuthenticated,
    403: errors.NotAllowed,
    404: errors.NotFound,
    408: errors.ApiTimeout,
    409: errors.Conflict,
    410: errors.Gone,
    412: errors.VersionRefused,
    413: errors.TooLarge,
    415: errors.Unsupported,
    421: errors.Misdirected,
    422: errors.Closed,
    423: errors.Locked,
    429: errors.Throttled,
    460: errors.ChecksumMismatch,
    504: errors.ApiTimeout,
}


#: Maximum characters of a text of the API.
_MOST_TOLD = 2_000


def _received(body: bytes) -> _Received:
    """A body as a problem document; an empty document for any other body."""
    try:
        return msgspec.json.decode(body, type=_Received)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Received()


def is_named(body: bytes) -> bool:
    """Whether a body is a problem document with a code."""
    return bool(_received(body).code)


def of_api(status: int, body: bytes) -> dict[str, Any]:
    """The problem document for clients of an error that the API has answered."""
    error = to_error(status, body, from_api=True)
    named = document(status, error.reason, error.message, hint=error.hint, flaws=error.flaws)
    return named | {"from_api": True}


def _untrusted(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:_MOST_TOLD])


def to_error(
    status: int, body: bytes, retry_after: int | None = None, *, from_api: bool = False
) -> ErsError:
    """The error for an answer of ``status``; the inverse of :func:`of_error`.

    A body that is not a problem document (for example, of a load balancer) still gives the right
    class, and its hint.

    Args:
        from_api: whether the API itself has answered, which is not trusted: its texts are marked,
            bounded, and cannot control a terminal.
    """
    received = _received(body)
    for part in (received, *received.errors) if from_api else ():
        for name, text in msgspec.structs.asdict(part).items():
            if isinstance(text, str):
                setattr(part, name, _untrusted(text))
    kind = _BY_CODE.get(received.code)
    # That something cannot be proven, or that a key is missing, is for this side alone to find.
    if kind is None or (from_api and issubclass(kind, errors.Closed)):
        kind = _BY_STATUS.get(status, errors.ApiFailed)
    error = kind(
        received.detail or f"the answer was {status} {title_of(status).lower()}",
        code=received.code or ("api_answer" if 300 <= status < 400 else None),
        hint=received.hint if received.code else None,
        flaws=tuple(Flaw(**msgspec.structs.asdict(flaw)) for flaw in received.errors),
        retry_after=retry_after,
    )
    error.from_api = from_api or received.from_api
    if isinstance(error, errors.UploadedBefore):
        error.job_id = received.job_id
    return error
