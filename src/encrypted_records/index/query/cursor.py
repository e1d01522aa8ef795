"""Cursors: the end of a page of results. A cursor names a row and its query, and contains no
value.
"""

from __future__ import annotations

import base64
import binascii
import hmac

import msgspec

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.index.log.snapshot import Snapshot


class Cursor(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The last row returned, and how many rows were stored when the first page was: in the schema
    itself, and for each semi-join in the schema that it asks. ``question`` is what
    :meth:`UidKey.of_question` says of the search."""

    position: int
    stored: int
    joined: tuple[int, ...] = ()
    question: bytes = b""


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode()


def decode_cursor(text: str, snapshot: Snapshot, question: bytes, joins: int = 0) -> Cursor:
    """
    Args:
        question: as :class:`Cursor` has it.
        joins: how many semi-joins the question has.

    Raises:
        InvalidQuery: no answer to this question had it.
    """
    cursor = _decode(text)
    if cursor is None or not hmac.compare_digest(cursor.question, question):
        detail = "expected the next_cursor of an earlier answer to this question"
    elif not snapshot.has(cursor.position) or len(cursor.joined) != joins:
        detail = "expected the next_cursor of an earlier answer"
    else:
        return cursor
    raise InvalidQuery(
        detail,
        hint=(
            "keep schema, where, filters and order_by the same for all pages, or begin"
            " without a cursor"
        ),
        flaws=(Flaw("cursor", detail, "/cursor"),),
    )


def joined_of(text: object) -> tuple[int, ...]:
    """The number of rows that each semi-join of a query considers; empty if its cursor does not
    say.

    Whether it is a cursor at all, :func:`decode_cursor` says.
    """
    cursor = _decode(text) if isinstance(text, str) else None
    return () if cursor is None else cursor.joined


def _decode(text: str) -> Cursor | None:
    try:
        cursor = msgspec.msgpack.decode(base64.urlsafe_b64decode(text.encode()), type=Cursor)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None
    return cursor if min(cursor.stored, *cursor.joined, 0) >= 0 else None
