"""Identifiers: 128 bits, time-ordered underneath (UUIDv7, RFC 9562), 22 characters outside.

The alphabet (shortuuid's, base 57) has no look-alikes and sorts as the bytes do, so a listing
ordered by id is ordered by creation.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from functools import lru_cache

import shortuuid

from encrypted_records import runtime
from encrypted_records.errors import BadInput, Flaw, Malformed, NotFound

ID_BYTES = 16
ID_LENGTH = 22

#: Length of the time in an identifier, and the results for its version and variant bytes.
_TIME_BYTES = 6
_VERSION = bytes(0x70 | byte & 0x0F for byte in range(256))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))
#: Cached identifiers: users, logins and schemas recur often.
_KEPT = 4096
_codec = shortuuid.ShortUUID()
#: A regular expression for the text of an identifier; it checks length and letters only.
PATTERN = rf"[{re.escape(_codec.get_alphabet())}]{{{ID_LENGTH}}}"
_LEGAL = re.compile(PATTERN)
#: A regular expression for a slug, as generated and accepted.
SLUG = "[A-Za-z0-9_-]{1,120}"
_SLUG = re.compile(SLUG)
_REFERENCE = re.compile(r"/api/([a-z]+)/([^/]+)/")


def new_id() -> bytes:
    """A fresh 16-byte identifier, later ones sorting after earlier ones."""
    return runtime.uuid7().bytes


def new_record_ids(count: int) -> list[bytes]:
    """Fresh identifiers of records, each with 74 independent random bits.

    Identifiers from :func:`new_id` count up within a millisecond, so that an identifier reveals
    most of the next. The neighbours of an erased record would then reveal its id, which must stay
    unknown: without the id, the remains of the record are useless.
    """
    joined = bytearray(runtime.random_bytes(ID_BYTES * count))
    now = new_id()
    for place in range(_TIME_BYTES):
        joined[place::ID_BYTES] = now[place : place + 1] * count
    joined[6::ID_BYTES] = joined[6::ID_BYTES].translate(_VERSION)
    joined[8::ID_BYTES] = joined[8::ID_BYTES].translate(_VARIANT)
    data = bytes(joined)
    return [data[at : at + ID_BYTES] for at in range(0, len(data), ID_BYTES)]


def milliseconds(identifier: bytes) -> int:
    """The time at which an identifier was made, in milliseconds since 1970."""
    return int.from_bytes(identifier[:6], "big")


def at(like: bytes, entropy: bytes) -> bytes:
    """An identifier of the same millisecond as ``like``, with its other bits from ``entropy`` (10
    bytes).
    """
    high = 0x70 | entropy[0] & 0x0F
    variant = 0x80 | entropy[2] & 0x3F
    return like[:6] + bytes([high, entropy[1], variant]) + entropy[3:10]


@lru_cache(_KEPT)
def to_text(identifier: bytes) -> str:
    return _codec.encode(uuid.UUID(bytes=identifier), pad_length=ID_LENGTH)


@lru_cache(_KEPT)
def from_text(text: str) -> bytes:
    """The 16 bytes that ``text`` encodes.

    Raises:
        Malformed: ``text`` is not an identifier of ours.
    """
    if not _LEGAL.fullmatch(text):
        raise Malformed("this is not an identifier of this service", code="malformed_id")
    try:
        return _codec.decode(text).bytes
    except ValueError as error:  # 57**22 exceeds 2**128
        raise Malformed("this is not an identifier of this service", code="malformed_id") from error


def from_path(text: str) -> bytes:
    """Parse an identifier in a path. Text that is not an identifier is treated like an id that does
    not exist.

    Raises:
        NotFound: ``text`` is not an identifier of this service.
    """
    try:
        return from_text(text)
    except Malformed:
        raise no_identifier() from None


def no_identifier() -> NotFound:
    """The error for a path with other text in place of an identifier."""
    return NotFound(
        "there is nothing at this path: it contains something that is not an identifier",
        hint="identifiers have 22 characters; copy them whole",
    )


def reference(collection: str, identifier: bytes | str) -> str:
    """The path that names a resource: ``/api/<collection>/<id>/``."""
    text = identifier if isinstance(identifier, str) else to_text(identifier)
    return f"/api/{collection}/{text}/"


def from_reference(
    path: object, collection: str, *, pointer: str, own_hosts: tuple[str, ...] = ()
) -> bytes:
    """The identifier inside a reference to ``collection``.

    Args:
        path: ``/api/<collection>/<id>/``, an absolute URL on one of ``own_hosts``, or the bare id.
        collection: the collection the reference must lead to, such as ``schemas``.
        pointer: of the reference in the request, for the error.
        own_hosts: origins (``http://127.0.0.1:8080``) that count as ours.

    Raises:
        BadInput: it is a reference to something else.
    """
    if isinstance(path, str):
        with suppress(Malformed):
            return from_text(_named_in(path, collection, own_hosts))
    detail = f"expected a path of the form /api/{collection}/<id>/, or the id"
    raise BadInput(detail, flaws=(Flaw("invalid_reference", detail, pointer=pointer),))


def slug_in(path: object, collection: str, *, own_hosts: tuple[str, ...] = ()) -> str | None:
    """The slug inside a reference to ``collection`` that has a slug in place of the id; None
    otherwise. An id is never a slug.
    """
    if not isinstance(path, str):
        return None
    named = _named_in(path, collection, own_hosts)
    return named if _SLUG.fullmatch(named) and not _LEGAL.fullmatch(named) else None


def _named_in(path: str, collection: str, own_hosts: tuple[str, ...]) -> str:
    """The id or slug in a reference; the reference itself if it has neither."""
    for host in own_hosts:
        if path.startswith(host + "/"):
            path = path[len(host) :]
            break
    match = _REFERENCE.fullmatch(path)
    return match.group(2) if match and match.group(1) == collection else path
