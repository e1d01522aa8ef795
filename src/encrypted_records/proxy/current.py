"""One record as it is now: read from the API by its id, opened, and held against the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.client.api import Api, SealedRecord
from encrypted_records.errors import ApiFailed, BadInput, DoesNotOpen, InvalidRecords, LogBroken
from encrypted_records.index.rows import open_row
from encrypted_records.model.ids import from_reference, from_text, to_text
from encrypted_records.model.records import PlainRecord, RowRef, SealedRow
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.schemas import Schemas, SchemaState

#: A record may be changed while it is read; each time it is read again.
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Current:
    """A live record and where its row lies."""

    state: SchemaState
    record: PlainRecord
    row: RowRef


async def current(
    api: Api, schemas: Schemas, caller: Caller, ids: Sequence[bytes]
) -> list[Current]:
    """The records, in the order asked for.

    Raises:
        NotFound: the API has not all of them, or not for this caller.
        DoesNotOpen: one was altered, or is another than it claims to be.
        LogBroken: the API hands out a row that the log does not hold.
    """
    stale: set[RowRef] = set()
    for _ in range(_ATTEMPTS):
        sealed = await api.sealed_records(ids, caller.auth)
        if [one.id for one in sealed] != [to_text(identifier) for identifier in ids]:
            raise LogBroken("the API returned another record than it was asked for")
        states: dict[bytes, SchemaState] = {}
        for one in sealed:
            schema = _schema_of(one)
            if schema not in states:
                states[schema] = await schemas.fresh(caller, schema)
        found = [_opened(states[_schema_of(one)], one) for one in sealed]
        dead = {one.row for one in found if not _is_live(one)}
        if not dead:
            return found
        if dead & stale:
            break
        # Ended between the two answers of the API: the record has a newer row by now, or none.
        stale |= dead
    raise LogBroken("the API returned a record that the log does not hold")


def _is_live(one: Current) -> bool:
    return one.state.ledger.view().is_live(one.row.group, one.row.ordinal)


def _schema_of(sealed: SealedRecord) -> bytes:
    try:
        return from_reference(sealed.schema, "schemas", pointer="/schema")
    except BadInput:
        raise ApiFailed("the API's answer names no schema") from None


def _opened(state: SchemaState, sealed: SealedRecord) -> Current:
    record = open_sealed(state, sealed)
    return Current(state, record, RowRef(bytes.fromhex(sealed.group), sealed.ordinal))


def open_sealed(state: SchemaState, sealed: SealedRecord) -> PlainRecord:
    """Open a sealed record as a row of its group, which the log describes.

    Raises:
        InvalidRecords: it is no sealed record.
        KeyMissing: it is sealed with another key than one of the schema's.
        DoesNotOpen: altered, incomplete, or put together from several.
    """
    try:
        uid, key_id = bytes.fromhex(sealed.group), bytes.fromhex(sealed.key_id)
    except ValueError:
        raise InvalidRecords("group and key_id are hexadecimal") from None
    key = state.ledger.keys.named(sealed.key_version, key_id)
    known = state.ledger.view().groups.get(uid)
    if known is None or known.group.key_version != sealed.key_version:
        raise DoesNotOpen("the record is of a group that the log does not hold")
    # A field that was left out would look like an absent one.
    if set(sealed.fields) != set(known.group.fields):
        raise DoesNotOpen("the record has not the fields of its group")
    fields = [sealed.fields[name] for name in known.group.fields]
    row = SealedRow(from_text(sealed.id), sealed.version, fields)
    return open_row(key, state.definition, known.group, sealed.ordinal, row)
