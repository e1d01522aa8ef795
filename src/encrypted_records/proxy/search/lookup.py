"""Look up one record in its current state: decrypted, and checked against the log.

A record is read from the API by its id, so the API learns which record is of interest. A record
that was opened here recently is read by its row, as in a search, and reveals no more than a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api
from encrypted_records.crypto.keys import LogKeys
from encrypted_records.crypto.sealing import has_fields, open_row, sort_fields
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.digests import check_row
from encrypted_records.model.ids import from_reference, from_text, reference, to_text
from encrypted_records.model.records import PlainRecord, RowRef, SealedRow
from encrypted_records.model.resources import SealedRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Run, aside, by_size
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.row_checks import decode_row
from encrypted_records.proxy.search.row_fetcher import RowFetcher

#: A record may change while it is read; it is then read again, up to this many times.
_ATTEMPTS = 10
#: Opening more fields than this takes long.
LONG_FIELDS = 1000
#: A row, and the digest of the current definition when the row was compared with the log.
_Seen = tuple[RowRef, bytes]


@dataclass(frozen=True, slots=True)
class _SchemaView:
    """A fixed view of a schema during a lookup: its state changes meanwhile, the view does not."""

    state: SchemaState
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """A live record and its row; ``sealed`` is the API's copy, if the API was asked for it."""

    state: SchemaState
    record: PlainRecord
    row: RowRef
    #: the definition of its names and values
    definition: SchemaDefinition
    sealed: SealedRow | None = None


async def look_up_recent(
    runner: QueryRunner, schemas: Schemas, rows: RowFetcher, caller: Holder, record_id: bytes
) -> CurrentRecord | None:
    """A record that was opened here recently, unless it was changed or deleted since.

    Raises:
        ErsError: as :meth:`QueryRunner.ask`.
    """
    known = rows.row_of(record_id)
    if known is None or schemas.get_cached(caller, known[0]) is None:
        return None
    schema, row = known

    async def question(context: QueryContext) -> CurrentRecord | None:
        if not context.snapshot.is_live(row.group, row.ordinal):
            return None
        (record,) = await context.rows([row])
        if record.record_id != record_id:
            return None
        return CurrentRecord(context.state, record, row, context.snapshot.definition)

    try:
        return await runner.ask(caller, schema, question)
    except errors.NotFound:
        return None  # reading the record by its id raises the same error


async def look_up(
    api: Api, schemas: Schemas, caller: Holder, ids: Sequence[bytes]
) -> list[CurrentRecord]:
    """The records, in the order of ``ids``.

    Raises:
        NotFound: the API lacks some of them, or the caller may not read them.
        DoesNotOpen: a record was altered, or is not the record that it claims to be.
        LogBroken: the API returned a row that the log does not contain.
    """
    doubts = _Doubts()
    for _ in range(_ATTEMPTS):
        # For a missing id there is only the API's word: the index has no ids (docs/LEAKAGE.md).
        sealed = await api.sealed_records(ids, caller.auth)
        _require_requested(ids, sealed)
        states: dict[bytes, SchemaState] = {}
        for record in sealed:
            schema = _schema_of(record)
            if schema not in states:
                states[schema] = await schemas.refresh(caller, schema)
        # One view of each schema is used throughout: commits come in while records are opened.
        views = {uid: _SchemaView(state, state.ledger.snapshot()) for uid, state in states.items()}
        if doubts.of_groups(views, sealed):
            continue
        records = await _run_for(sealed)(_open_all, views, sealed)
        if not doubts.of_rows(views, records):
            return records
    raise _unknown_record()


class _Doubts:
    """Records that differ between the API and the log. A commit between two answers of the API
    explains a difference once, but not a second time."""

    def __init__(self) -> None:
        self._ended: set[RowRef] = set()
        self._unlike: set[_Seen] = set()

    def of_groups(self, views: Mapping[bytes, _SchemaView], sealed: Sequence[SealedRecord]) -> bool:
        """Whether to ask again, because groups may have ended or their fields been renamed."""
        moved = {_seen(views, record) for record in sealed if not _fits_log(views, record)}
        if not moved or moved & self._unlike:
            return False  # opening a record reports what is wrong with it
        self._unlike |= moved
        return True

    def of_rows(self, views: Mapping[bytes, _SchemaView], records: Sequence[CurrentRecord]) -> bool:
        """Whether to ask again, because rows have ended: a record was replaced or deleted.

        Raises:
            LogBroken: the API returned such a row before.
        """
        dead = {
            record.row
            for record in records
            if not views[record.state.id].snapshot.is_live(record.row.group, record.row.ordinal)
        }
        if dead & self._ended:
            raise _unknown_record()
        self._ended |= dead
        return bool(dead)


def _unknown_record() -> errors.LogBroken:
    return errors.LogBroken("the API returned a record that the log does not contain")


def _require_requested(ids: Sequence[bytes], sealed: Sequence[SealedRecord]) -> None:
    if [record.id for record in sealed] != [to_text(record_id) for record_id in ids]:
        raise errors.LogBroken("the API returned a record that was not requested")


async def read_sealed(
    runner: QueryRunner,
    schemas: Schemas,
    rows: RowFetcher,
    api: Api,
    caller: Holder,
    ids: Sequence[bytes],
) -> list[SealedRecord]:
    """The records as the API has them, in the order of ``ids``.

    Records that were opened here recently are read by their rows, as a search would; the API is
    asked for the others by their ids, and learns which.

    Raises:
        NotFound: the API has not all of them, or not for this caller.
        ErsError: as :meth:`QueryRunner.ask`.
    """
    found: dict[bytes, SealedRecord] = {}
    by_schema: dict[bytes, list[RowRef]] = {}
    for known in filter(None, (rows.row_of(record_id) for record_id in dict.fromkeys(ids))):
        by_schema.setdefault(known[0], []).append(known[1])
    for schema, refs in by_schema.items():
        if schemas.get_cached(caller, schema) is not None:
            found |= await runner.ask(caller, schema, partial(_read_rows, refs=refs))
    left = [record_id for record_id in dict.fromkeys(ids) if record_id not in found]
    if left:
        sealed = await api.sealed_records(left, caller.auth)
        _require_requested(left, sealed)
        found |= dict(zip(left, sealed, strict=True))
    return [found[record_id] for record_id in ids]


async def _read_rows(context: QueryContext, refs: Sequence[RowRef]) -> dict[bytes, SealedRecord]:
    """By id, the rows that are still live."""
    snapshot = context.snapshot
    live = [ref for ref in refs if snapshot.is_live(ref.group, ref.ordinal)]
    schema = reference("schemas", context.state.id)
    found = {}
    proven = await context.prove_rows(live)
    for ref in live:
        row = decode_row(proven[ref])
        group = snapshot.groups[ref.group].group
        names = [context.definition.by_id[number].name for number in group.fields]
        found[row.record_id] = SealedRecord(
            id=to_text(row.record_id),
            url=reference("records", row.record_id),
            schema=schema,
            version=row.version,
            group=ref.group.hex(),
            ordinal=ref.ordinal,
            key_id=context.state.ledger.keys.of(group.key_version).id.hex(),
            key_version=group.key_version,
            fields=dict(zip(names, row.fields, strict=True)),
        )
    return found


def _fits_log(views: Mapping[bytes, _SchemaView], sealed: SealedRecord) -> bool:
    """Whether the log has the record's stated group, with the same field names."""
    snapshot = views[_schema_of(sealed)].snapshot
    known = snapshot.groups.get(_row_of(sealed).group)
    return known is not None and has_fields(snapshot.definition, known.group, sealed.fields)


def _seen(views: Mapping[bytes, _SchemaView], sealed: SealedRecord) -> _Seen:
    history = views[_schema_of(sealed)].snapshot.history
    return _row_of(sealed), b"" if history is None else history.present.digest


def _row_of(sealed: SealedRecord) -> RowRef:
    """
    Raises:
        InvalidRecords: it is not a sealed record.
    """
    try:
        return RowRef(bytes.fromhex(sealed.group), sealed.ordinal)
    except ValueError:
        raise errors.InvalidRecords("group and key_id are hexadecimal") from None


def _schema_of(sealed: SealedRecord) -> bytes:
    try:
        return from_reference(sealed.schema, "schemas", pointer="/schema")
    except errors.BadInput:
        raise errors.ApiFailed("the API's answer names no schema") from None


def _run_for(sealed: Sequence[SealedRecord]) -> Run:
    fields = sum(len(record.fields) for record in sealed)
    if fields > LONG_FIELDS:
        return aside
    return by_size(sum(len(field) for record in sealed for field in record.fields.values()))


def _open_all(
    views: Mapping[bytes, _SchemaView], sealed: Sequence[SealedRecord]
) -> list[CurrentRecord]:
    return [_open(views[_schema_of(record)], record) for record in sealed]


def _open(view: _SchemaView, sealed: SealedRecord) -> CurrentRecord:
    record, row = _open_row(view.state.ledger.keys, view.snapshot, sealed)
    return CurrentRecord(view.state, record, _row_of(sealed), view.snapshot.definition, row)


async def require_unaltered(
    api: Api, schemas: Schemas, caller: Holder, current: CurrentRecord
) -> None:
    """Check that a record's row is the row that its group's commit names, before its content is
    sealed again: a holder of the key could have altered the stored row.

    Raises:
        Altered: it is not, or the API does not prove that it is.
        Conflict: ``row_not_live``; the row, or its group, has ended since the record was read.
        LogBroken: the API lacks a row that its log contains.
        ErsError: as :meth:`Schemas.refresh`.
    """
    state, ref = current.state, current.row
    assert current.sealed is not None
    present = state.ledger.snapshot().groups.get(ref.group)
    if present is None:
        raise errors.Conflict("the record is in another group now", code="row_not_live")
    rows = present.group.rows
    try:
        (proof,) = await api.row_digests(state.id, [ref], caller.auth)
    except errors.NotFound as error:
        if error.reason != "row_gone":
            raise
        # Believed only if the log itself says that the row has ended.
        newer = await schemas.refresh(caller, state.id)
        if newer.ledger.snapshot().is_live(ref.group, ref.ordinal):
            raise errors.LogBroken("the API lacks a row that its log contains") from None
        raise errors.Conflict("the record is in another row now", code="row_not_live") from None
    await runtime.in_thread(check_row, ref, current.sealed, rows, proof)


def open_sealed(keys: LogKeys, snapshot: Snapshot, sealed: SealedRecord) -> PlainRecord:
    """Open a sealed record as a row of its group, which the log describes.

    Raises:
        ErsError: as :func:`_open_row`.
    """
    record, _ = _open_row(keys, snapshot, sealed)
    return record


def _open_row(
    keys: LogKeys, snapshot: Snapshot, sealed: SealedRecord
) -> tuple[PlainRecord, SealedRow]:
    """
    Raises:
        InvalidRecords: it is not a sealed record.
        KeyMissing: it is sealed with a key that is not one of the schema's keys.
        DoesNotOpen: altered, incomplete, or put together from several.
    """
    uid = _row_of(sealed).group
    try:
        key_id = bytes.fromhex(sealed.key_id)
    except ValueError:
        raise errors.InvalidRecords("group and key_id are hexadecimal") from None
    key = keys.find(sealed.key_version, key_id)
    known = snapshot.groups.get(uid)
    if known is None or known.group.key_version != sealed.key_version:
        raise errors.DoesNotOpen("the record is of a group that the log does not contain")
    definition = snapshot.definition
    fields = sort_fields(definition, known.group, sealed.fields)
    row = SealedRow(from_text(sealed.id), sealed.version, fields)
    made = snapshot.made_under(known.group)
    return open_row(key, definition, known.group, sealed.ordinal, row, made), row
