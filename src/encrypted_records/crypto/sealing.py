"""Seal and open fields, the rows of a group, pages and headers (docs/SPEC.md, section 4).

No key and nonce ever seal two plaintexts: a field's key belongs to one group and its nonce is the
ordinal there; a page's key belongs to one segment and its nonce is kind and number; a header's key
seals once. Groups and segments are immutable, and their uids commit to their content
(:meth:`encrypted_records.crypto.keys.UidKey.uid`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import add

import msgspec
from cryptography.hazmat.primitives import hashes

from encrypted_records import runtime
from encrypted_records.crypto import values
from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.crypto.keys import GROUPS_KEPT, IndexKey, MetaKey, SchemaKey, SealKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.ciphertext_lengths import SEAL_VERSION, least_class
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value, length_prefixed
from encrypted_records.model.digests import DIGEST, HOLE, group_digest, packed_digests, run_digests
from encrypted_records.model.records import (
    Group,
    GroupSalt,
    PackedRow,
    PackedRowBatch,
    PlainRecord,
    SealedRow,
    pack_bodies,
)

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
    """:func:`seal_field` of one field of several records.

    Args:
        nonces: :func:`nonces_of` their ordinals.
    """
    return [_VERSION + body for body in seal_bodies(key, records, field, plain, nonces)]


def seal_bodies(
    key: SealKey,
    records: Sequence[bytes],
    field: bytes,
    plain: Sequence[bytes],
    nonces: Sequence[bytes],
) -> list[bytes]:
    """Sealed values without their leading format version; see :func:`seal_column`."""
    return key.encrypt_all(nonces, plain, map(add, records, repeat(field)))


def open_field(key: SealKey, ordinal: int, record: bytes, field: bytes, sealed: bytes) -> bytes:
    """Undo :func:`seal_field`.

    Raises:
        DoesNotOpen: altered, or sealed for another record, field, version, schema or key.
    """
    return key.decrypt(row_nonce(ordinal), body_of(sealed), record + field)


def row_nonce(ordinal: int) -> bytes:
    """The nonce for all fields of the row at this ordinal; each field has its own key."""
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
    """Seal a segment's header. The key belongs to the segment and seals only this message."""
    return _VERSION + key.encrypt(_HEADER_NONCE, plain, schema_context + segment)


def open_header(key: MetaKey, sealed: bytes, *, schema_context: bytes, segment: bytes) -> bytes:
    """Undo :func:`seal_header`.

    Raises:
        DoesNotOpen: altered, or of another segment, schema or key.
    """
    return key.decrypt(_HEADER_NONCE, body_of(sealed), schema_context + segment)


def body_of(sealed: bytes) -> bytes:
    """A ciphertext without its format version.

    Raises:
        DoesNotOpen: its format is unknown.
    """
    if sealed[:1] != _VERSION:
        raise DoesNotOpen("a ciphertext is of a format this version does not know")
    return sealed[1:]


_RUN = struct.Struct(">II")
#: Rows whose columns are sealed one after another, so that shared data stays in the processor's
#: cache.
_AT_ONCE = 4096

#: For a field: its spec in the record, its spec when sealed, its id, its key, its decoder.
_FieldOpener = tuple[FieldSpec, FieldSpec, bytes, SealKey, Callable[[bytes], Value]]


def seal_group(
    key: SchemaKey,
    definition: SchemaDefinition,
    identities: Sequence[tuple[bytes, int]],
    columns: Mapping[str, Sequence[Value]],
    before: Group | None = None,
    holes: Sequence[tuple[int, int]] = (),
) -> tuple[Group, PackedRowBatch, GroupSalt]:
    """Seal up to 2**20 records as one group; they get the ordinals from 0 on that are not holes.

    Every field of the definition is sealed in every row, including absent ones, which hides
    absence.

    Args:
        identities: id and version of each record.
        columns: the values of every field of the definition, by record; None if absent.
        before: the group that these records come from, if they are sealed again.
        holes: ordinals without a row, as ascending (first, count) runs.
    """
    where = context_of(key)
    contexts = record_contexts(where, identities)
    specs = list(definition.fields.values())
    had = dict(zip(before.fields, before.classes, strict=True)) if before else {}
    classes = [least_class(spec, had[spec.id].length if spec.id in had else 0) for spec in specs]
    plain = [
        values.encode_column(spec, columns[spec.name], stated)
        for spec, stated in zip(specs, classes, strict=True)
    ]
    count = len(identities) + sum(length for _, length in holes)
    ordinals = list(chain.from_iterable(_between(holes, count)))
    uid = key.uids.uid(_content_digest(contexts, specs, plain, holes))
    nonces = nonces_of(ordinals)
    keys = [key.field(spec).seal(uid) for spec in specs]
    salt = runtime.random_bytes(DIGEST)
    living: list[PackedRow] = []
    digests: list[bytes] = []
    # All work on a chunk of rows is done while the rows are in the processor's cache.
    for batch in (slice(at, at + _AT_ONCE) for at in range(0, len(identities), _AT_ONCE)):
        sealed = [
            seal_bodies(column_key, contexts[batch], spec.id_bytes, column[batch], nonces[batch])
            for column_key, spec, column in zip(keys, specs, plain, strict=True)
        ]
        packed = [
            (record, version, fields)
            for (record, version), fields in zip(
                identities[batch], pack_bodies(sealed), strict=True
            )
        ]
        digests.append(packed_digests(salt, packed))
        living += [PackedRow(row[0], row[1], msgspec.Raw(row[2])) for row in packed]
    rows, all_digests = _by_ordinal(living, b"".join(digests), ordinals, count)
    group = Group(
        uid,
        key.version,
        count,
        definition.ids,
        classes,
        definition.digest,
        group_digest(run_digests(all_digests)),
    )
    return group, PackedRowBatch(uid, 0, rows), GroupSalt(uid, salt)


def _by_ordinal(
    living: Sequence[PackedRow], digests: bytes, ordinals: Sequence[int], count: int
) -> tuple[list[PackedRow | None], bytes]:
    """Rows, and their concatenated digests, with the holes in between."""
    if len(living) == count:
        return [*living], digests
    rows: list[PackedRow | None] = [None] * count
    all_digests = bytearray(HOLE * count)
    for at, (ordinal, row) in enumerate(zip(ordinals, living, strict=True)):
        rows[ordinal] = row
        all_digests[DIGEST * ordinal : DIGEST * (ordinal + 1)] = digests[
            DIGEST * at : DIGEST * (at + 1)
        ]
    return rows, bytes(all_digests)


def _between(holes: Sequence[tuple[int, int]], count: int) -> Iterator[range]:
    """The ordinals below ``count`` that are not holes, run by run."""
    begin = 0
    for first, length in [*holes, (count, 0)]:
        yield range(begin, first)
        begin = first + length


def _content_digest(
    contexts: Sequence[bytes],
    specs: Sequence[FieldSpec],
    plain: Sequence[Sequence[bytes]],
    holes: Sequence[tuple[int, int]],
) -> bytes:
    """SHA-256 over all that the group's keys will seal, each part after its length."""
    state = hashes.Hash(hashes.SHA256())
    state.update(_length_prefixed(contexts))
    for spec, column in zip(specs, plain, strict=True):
        state.update(length_prefixed(spec.id_bytes))
        state.update(_length_prefixed(column))
    if holes:
        state.update(length_prefixed(b"".join(_RUN.pack(*run) for run in holes)))
    return state.finalize()


def _length_prefixed(parts: Sequence[bytes]) -> bytes:
    """Many length-prefixed parts with few distinct lengths; see
    ``model.definition.length_prefixed``.
    """
    lengths = list(map(len, parts))
    heads = {length: length.to_bytes(4, "big") for length in set(lengths)}
    if len(heads) == 1:
        (head,) = heads.values()
        return head + head.join(parts)
    pieces = [b""] * (2 * len(parts))
    pieces[::2] = [heads[length] for length in lengths]
    pieces[1::2] = parts
    return b"".join(pieces)


def sort_fields(
    definition: SchemaDefinition, group: Group, fields: Mapping[str, bytes]
) -> list[bytes]:
    """A row's ciphertexts, given by name, in the order of its group.

    Raises:
        DoesNotOpen: the fields differ from the group's; an omitted field would look absent.
    """
    if not has_fields(definition, group, fields):
        raise DoesNotOpen("the record has not the fields of its group")
    return [fields[definition.by_id[number].name] for number in group.fields]


def has_fields(definition: SchemaDefinition, group: Group, fields: Collection[str]) -> bool:
    """Whether these are exactly the names of a group's fields."""
    specs = [definition.by_id.get(number) for number in group.fields]
    names = {spec.name for spec in specs if spec is not None}
    return None not in specs and names == set(fields)


def open_columns(
    key: SchemaKey,
    made: SchemaDefinition,
    group: Group,
    rows: Sequence[tuple[int, SealedRow]],
) -> dict[int, list[Value]]:
    """The values of rows of ``group``, by field id; None if absent.

    Args:
        made: the definition under which the group was sealed; it gives the decimals of the values.
        rows: with their ordinals.

    Raises:
        DoesNotOpen: as :func:`open_row`, for any of them.
    """
    width = len(group.fields)
    if width != len(group.classes) or any(len(row.fields) != width for _, row in rows):
        raise _wrong_width()
    where = context_of(key)
    contexts = [record_context(where, row.record_id, row.version) for _, row in rows]
    ordinals = [ordinal for ordinal, _ in rows]
    opened: dict[int, list[Value]] = {}
    for at, (number, stated) in enumerate(zip(group.fields, group.classes, strict=True)):
        spec = made.by_id.get(number)
        if spec is None:
            raise DoesNotOpen("a row contains a field that the definition lacks")
        sealed = [row.fields[at] for _, row in rows]
        field_key = key.field(spec).seal(group.uid)
        plain = open_column(field_key, contexts, spec.id_bytes, sealed, ordinals)
        opened[number] = list(map(values.decoder(spec, stated), plain))
    return opened


def open_row(
    key: SchemaKey,
    definition: SchemaDefinition,
    group: Group,
    ordinal: int,
    row: SealedRow,
    made: SchemaDefinition | None = None,
) -> PlainRecord:
    """Open a row of ``group``; absent fields are left out of the record.

    Args:
        definition: gives the names of fields, and the decimals of values.
        made: the definition under which the group was sealed, if different.

    Raises:
        DoesNotOpen: a field altered, or of another row, version or key, or of a length that its
            group does not state; or the row has other fields than its group.
    """
    return opener_of(key, definition, group, made or definition).open(ordinal, row)


def opener_of(
    key: SchemaKey, definition: SchemaDefinition, group: Group, made: SchemaDefinition
) -> RowOpener:
    """The opener of rows of ``group``. It is cached with its key, because the rows of one answer
    belong to few groups.

    Raises:
        DoesNotOpen: the group has a field that the definition lacks.
    """
    opener = key.openers.get(group.uid)
    if opener is None or not opener.is_for(definition, group, made):
        if len(key.openers) >= GROUPS_KEPT:
            key.openers.clear()
        opener = key.openers[group.uid] = RowOpener(key, definition, group, made)
    return opener


class RowOpener:
    """Opens rows of one group; everything that the rows share is computed once."""

    def __init__(
        self, key: SchemaKey, definition: SchemaDefinition, group: Group, made: SchemaDefinition
    ) -> None:
        """
        Raises:
            DoesNotOpen: as :func:`opener_of`.
        """
        self._made_for = definition, group, made
        self._where = context_of(key)
        self._fields: list[_FieldOpener] = []
        if len(group.fields) != len(group.classes):
            raise _wrong_width()
        for number, stated in zip(group.fields, group.classes, strict=True):
            spec, stored_spec = definition.by_id.get(number), made.by_id.get(number)
            if spec is None or stored_spec is None:
                raise DoesNotOpen("a row contains a field that the definition lacks")
            seal, decode = (
                key.field(stored_spec).seal(group.uid),
                values.decoder(stored_spec, stated),
            )
            self._fields.append((spec, stored_spec, spec.id_bytes, seal, decode))

    def is_for(self, definition: SchemaDefinition, group: Group, made: SchemaDefinition) -> bool:
        """Whether it opens rows of exactly this group, under exactly these definitions."""
        known = self._made_for
        return known[0] is definition and known[1] is group and known[2] is made

    def open(self, ordinal: int, row: SealedRow) -> PlainRecord:
        """
        Raises:
            DoesNotOpen: as :func:`open_row`.
        """
        record, nonce = self._place(ordinal, row)
        data: dict[str, Value] = {}
        for (spec, stored_spec, field, seal, decode), sealed in zip(
            self._fields, row.fields, strict=True
        ):
            value = decode(seal.decrypt(nonce, body_of(sealed), record + field))
            if value is not None:
                data[spec.name] = (
                    value if stored_spec is spec else values.shown(stored_spec, spec, value)
                )
        return PlainRecord(row.record_id, row.version, data)

    def authenticate(self, ordinal: int, row: SealedRow) -> None:
        """Verify that a row is the sealed row, without returning its values.

        Raises:
            DoesNotOpen: a field altered, or of another row, version or key; or the row has other
                fields than its group.
        """
        record, nonce = self._place(ordinal, row)
        for (_, _, field, seal, _), sealed in zip(self._fields, row.fields, strict=True):
            seal.decrypt(nonce, body_of(sealed), record + field)

    def _place(self, ordinal: int, row: SealedRow) -> tuple[bytes, bytes]:
        """A row's part of the associated data, and its nonce."""
        if len(row.fields) != len(self._fields):
            raise _wrong_width()
        record = record_context(self._where, row.record_id, row.version)
        return record, row_nonce(ordinal)


def _wrong_width() -> DoesNotOpen:
    return DoesNotOpen("a row has another number of fields than its group")
