"""Seal the rows of a group, and open any of them (docs/SPEC.md, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives import hashes

from encrypted_records.crypto import sealing, values
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.definition import SchemaDefinition, Value, length_prefixed
from encrypted_records.model.records import Group, PlainRecord, RowBatch, SealedRow


def seal_group(
    key: SchemaKey,
    definition: SchemaDefinition,
    identities: Sequence[tuple[bytes, int]],
    columns: Mapping[str, Sequence[Value]],
) -> tuple[Group, RowBatch]:
    """Seal up to 2**20 records as one group; a record's ordinal is its place in ``identities``.

    Every field of the definition is sealed in every row, absent ones too, so that absence does
    not show.

    Args:
        identities: id and version of each record.
        columns: of every field of the definition, as each record has it; None where absent.
    """
    where = sealing.place(key)
    contexts = [sealing.record_context(where, *identity) for identity in identities]
    names = list(definition.fields)
    plain = [values.encode_column(definition.fields[name], columns[name]) for name in names]
    uid = key.uids.uid(_content_digest(contexts, names, plain))
    sealed = [
        sealing.seal_column(
            key.field(definition.fields[name]).seal(uid), contexts, name.encode(), column
        )
        for name, column in zip(names, plain, strict=True)
    ]
    rows = [
        SealedRow(record_id, version, list(fields))
        for (record_id, version), fields in zip(identities, zip(*sealed, strict=True), strict=True)
    ]
    return Group(uid, key.version, len(rows), names), RowBatch(uid, 0, rows)


def _content_digest(
    contexts: Sequence[bytes], names: Sequence[str], plain: Sequence[Sequence[bytes]]
) -> bytes:
    """SHA-256 over all that the group's keys will seal, each part after its length."""
    state = hashes.Hash(hashes.SHA256())
    state.update(_length_prefixed(contexts))
    for name, column in zip(names, plain, strict=True):
        state.update(length_prefixed(name.encode()))
        state.update(_length_prefixed(column))
    return state.finalize()


def _length_prefixed(parts: Sequence[bytes]) -> bytes:
    """As :func:`.definition.length_prefixed`, for many parts of few lengths."""
    lengths = list(map(len, parts))
    heads = {length: length.to_bytes(4, "big") for length in set(lengths)}
    pieces = [b""] * (2 * len(parts))
    pieces[::2] = [heads[length] for length in lengths]
    pieces[1::2] = parts
    return b"".join(pieces)


def open_row(
    key: SchemaKey, definition: SchemaDefinition, group: Group, ordinal: int, row: SealedRow
) -> PlainRecord:
    """Open a row of ``group``; absent fields are left out of the record.

    Raises:
        DoesNotOpen: a field altered, or of another place, version or key; or the row has other
            fields than its group.
    """
    if len(row.fields) != len(group.fields):
        raise DoesNotOpen("a row has another number of fields than its group")
    record = sealing.record_context(sealing.place(key), row.record_id, row.version)
    data: dict[str, Value] = {}
    for name, sealed in zip(group.fields, row.fields, strict=True):
        spec = definition.fields.get(name)
        if spec is None:
            raise DoesNotOpen("a row holds a field that the definition lacks")
        field_key = key.field(spec).seal(group.uid)
        plain = sealing.open_field(field_key, ordinal, record, name.encode(), sealed)
        value = values.decode(spec, plain)
        if value is not None:
            data[name] = value
    return PlainRecord(row.record_id, row.version, data)
