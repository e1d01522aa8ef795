"""Seal and open one field, one page, one header (docs/SPEC.md, section 4).

Why no key and nonce ever seal two plaintexts: a field's key belongs to one group and its nonce
is the ordinal there; a page's key belongs to one segment and its nonce is kind and number; a
header's key seals once. Groups and segments are immutable, and their uids commit to what they
hold (:meth:`encrypted_records.crypto.keys.UidKey.uid`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import add

from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.crypto.keys import IndexKey, MetaKey, SchemaKey, SealKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.ciphertext_lengths import SEAL_VERSION

_VERSION = bytes((SEAL_VERSION,))
_ORDINAL_NONCE = struct.Struct(">8xI")
_PAGE_NONCE = struct.Struct(">B7xI")
_RECORD_VERSION = struct.Struct(">I")
_HEADER_NONCE = bytes(NONCE_BYTES)


def context_of(key: SchemaKey) -> bytes:
    """The beginning of all associated data of a schema: format version, organization, schema."""
    return _VERSION + key.organization + key.schema


def record_context(schema_context: bytes, record_id: bytes, version: int) -> bytes:
    """A record's part of the associated data; the field's id follows it."""
    return schema_context + record_id + _RECORD_VERSION.pack(version)


def record_contexts(schema_context: bytes, identities: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """:func:`record_context` of each record, by its id and version."""
    pack = _RECORD_VERSION.pack
    return [schema_context + record + pack(version) for record, version in identities]


def seal_field(key: SealKey, ordinal: int, record: bytes, field: bytes, plain: bytes) -> bytes:
    """Encrypt one field of one record.

    Args:
        ordinal: the record's index in its group, 0 to 2**20 - 1; it is the nonce.
        record: the result of :func:`record_context` for the record.
        field: the field's id as 4 bytes.
    """
    return _VERSION + key.encrypt(_ORDINAL_NONCE.pack(ordinal), plain, record + field)


def nonces_of(ordinals: Iterable[int]) -> list[bytes]:
    """The nonces under which the fields of rows at these ordinals are sealed."""
    return list(map(_ORDINAL_NONCE.pack, ordinals))


def seal_column(
    key: SealKey,
    records: Sequence[bytes],
    field: bytes,
    plain: Sequence[bytes],
    nonces: Sequence[bytes],
) -> list[bytes]:
    """:func:`seal_field` of one field of some records.

    Args:
        nonces: of their ordinals, by :func:`nonces_of`.
    """
    return [_VERSION + body for body in seal_bodies(key, records, field, plain, nonces)]


def seal_bodies(
    key: SealKey,
    records: Sequence[bytes],
    field: bytes,
    plain: Sequence[bytes],
    nonces: Sequence[bytes],
) -> list[bytes]:
    """Sealed values without the version of the format that begins each of them; see
    :func:`seal_column`.
    """
    return key.encrypt_all(nonces, plain, map(add, records, repeat(field)))


def open_field(key: SealKey, ordinal: int, record: bytes, field: bytes, sealed: bytes) -> bytes:
    """Undo :func:`seal_field`.

    Raises:
        DoesNotOpen: altered, or sealed for another record, field, version, schema or key.
    """
    return key.decrypt(row_nonce(ordinal), body_of(sealed), record + field)


def row_nonce(ordinal: int) -> bytes:
    """The nonce of all fields of the row at this place of its group, each under its own key."""
    return _ORDINAL_NONCE.pack(ordinal)


def open_column(
    key: SealKey,
    records: Sequence[bytes],
    field: bytes,
    sealed: Sequence[bytes],
    ordinals: Sequence[int],
) -> list[bytes]:
    """:func:`open_field` of one field of the records at these ordinals.

    Raises:
        DoesNotOpen: as :func:`open_field`, of any of them.
    """
    nonces = map(_ORDINAL_NONCE.pack, ordinals)
    return key.decrypt_all(nonces, map(body_of, sealed), [record + field for record in records])


def _page_context(
    schema_context: bytes, segment: bytes, kind: int, number: int, field: bytes
) -> bytes:
    return schema_context + segment + _PAGE_NONCE.pack(kind, number) + field


def seal_page(
    key: IndexKey,
    kind: int,
    number: int,
    plain: bytes,
    *,
    schema_context: bytes,
    segment: bytes,
    field: bytes,
) -> bytes:
    """Encrypt one page of one field's column, or the whole column, as ``kind`` says."""
    context = _page_context(schema_context, segment, kind, number, field)
    return _VERSION + key.encrypt(_PAGE_NONCE.pack(kind, number), plain, context)


def open_page(
    key: IndexKey,
    kind: int,
    number: int,
    sealed: bytes,
    *,
    schema_context: bytes,
    segment: bytes,
    field: bytes,
) -> bytes:
    """Undo :func:`seal_page`.

    Raises:
        DoesNotOpen: altered, or a page of another field, place, segment, schema or key.
    """
    context = _page_context(schema_context, segment, kind, number, field)
    return key.decrypt(_PAGE_NONCE.pack(kind, number), body_of(sealed), context)


def seal_header(key: MetaKey, plain: bytes, *, schema_context: bytes, segment: bytes) -> bytes:
    """A segment's header. The key belongs to the segment and seals this one message."""
    return _VERSION + key.encrypt(_HEADER_NONCE, plain, schema_context + segment)


def open_header(key: MetaKey, sealed: bytes, *, schema_context: bytes, segment: bytes) -> bytes:
    """Undo :func:`seal_header`.

    Raises:
        DoesNotOpen: altered, or of another segment, schema or key.
    """
    return key.decrypt(_HEADER_NONCE, body_of(sealed), schema_context + segment)


def body_of(sealed: bytes) -> bytes:
    """A ciphertext without the version of its format.

    Raises:
        DoesNotOpen: it is of another format than ours.
    """
    if sealed[:1] != _VERSION:
        raise DoesNotOpen("a ciphertext is of a format this version does not know")
    return sealed[1:]
