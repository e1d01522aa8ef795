"""Sealed rows, as they are kept, opened: on the event loop where they are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from encrypted_records import runtime
from encrypted_records.crypto.sealing import RowOpener, opener_of
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.records import PlainRecord, RowRef, SealedRow
from encrypted_records.proxy.process.offload import Run, aside
from encrypted_records.proxy.schemas.state import SchemaState

#: Up to so many fields, and bytes, rows are opened here: a thread would take longer to start. More
#: than the other two take long.
FEW_FIELDS, FEW_BYTES = 512, 256 << 10
MANY_FIELDS, MANY_BYTES = 20_000, 4 << 20
#: To authenticate a field takes a third of the time that it takes to open it.
FEW_AUTHENTICATED = 4 * FEW_FIELDS

_decoder = msgspec.msgpack.Decoder(SealedRow)

#: Each as the MessagePack of its SealedRow.
Sealed = Mapping[RowRef, bytes]
Records = dict[RowRef, PlainRecord]
_Openers = dict[bytes, RowOpener]
T = TypeVar("T")


async def open_rows(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> Records:
    """
    Raises:
        DoesNotOpen: a row was altered or belongs elsewhere.
    """
    return await _run(_open_all, state, snapshot, sealed, FEW_FIELDS)


async def authenticate(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> None:
    """Prove that these are the rows that were sealed; no value of them is read.

    Raises:
        DoesNotOpen: a row was altered or belongs elsewhere.
    """
    await _run(_authenticate_all, state, snapshot, sealed, FEW_AUTHENTICATED)


async def _run(
    work: Callable[[SchemaState, Snapshot, Sealed], T],
    state: SchemaState,
    snapshot: Snapshot,
    sealed: Sealed,
    few: int,
) -> T:
    fields = len(sealed) * len(state.definition.fields)
    size = sum(map(len, sealed.values()))
    if fields <= few and size <= FEW_BYTES:
        return work(state, snapshot, sealed)
    run: Run = aside if fields > MANY_FIELDS or size > MANY_BYTES else runtime.in_thread
    return await run(work, state, snapshot, sealed)


async def prove_rows(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> dict[RowRef, bytes]:
    """The bytes of these rows, each verified to be the row that was sealed.

    Raises:
        DoesNotOpen: as :func:`authenticate`.
    """
    await authenticate(state, snapshot, sealed)
    return dict(sealed)


def open_row(state: SchemaState, snapshot: Snapshot, ref: RowRef, row: bytes) -> PlainRecord:
    """
    Raises:
        DoesNotOpen: as :func:`open_rows`.
    """
    return _opener(state, snapshot, ref.group).open(ref.ordinal, decode_row(row))


def decode_row(row: bytes) -> SealedRow:
    """
    Raises:
        DoesNotOpen: it is no row.
    """
    try:
        return _decoder.decode(row)
    except msgspec.DecodeError:
        raise DoesNotOpen("a cached row does not have the format of a row") from None


def _open_all(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> Records:
    openers = _openers(state, snapshot, sealed)
    return {
        ref: openers[ref.group].open(ref.ordinal, decode_row(row)) for ref, row in sealed.items()
    }


def _authenticate_all(state: SchemaState, snapshot: Snapshot, sealed: Sealed) -> None:
    openers = _openers(state, snapshot, sealed)
    for ref, row in sealed.items():
        openers[ref.group].authenticate(ref.ordinal, decode_row(row))


def _openers(state: SchemaState, snapshot: Snapshot, rows: Iterable[RowRef]) -> _Openers:
    """By group."""
    return {uid: _opener(state, snapshot, uid) for uid in {ref.group for ref in rows}}


def _opener(state: SchemaState, snapshot: Snapshot, uid: bytes) -> RowOpener:
    group = snapshot.groups[uid].group
    key = state.ledger.keys.of(group.key_version)
    return opener_of(key, snapshot.definition, group, snapshot.made_under(group))
