"""A ledger at one version, as bytes and back: a log need not be verified from its beginning again.

These bytes are trusted as they are: nothing in them is checked against the log.
They hold what commits hold, and no key (uids, counts, digests), and the sealed headers
of the segments that live.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from pyroaring import BitMap

from encrypted_records.errors import Malformed
from encrypted_records.index.log.layout import Laid
from encrypted_records.index.log.order import Begun, OrderState
from encrypted_records.index.log.past import Past, Resealed
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.definition_changes import DefinitionHistory
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import Group, Segment, SegmentHeader

UID, DIGEST = 16, 32
_COUNTER = 8
_U32 = np.dtype(">u4")

Deaths = tuple[tuple[int, int], ...]


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The encoded form. Entries per commit or per group are concatenated: a list of each would take
    ten times as long to read.
    """

    format: Literal[7]
    first: tuple[int, bytes] | None
    present: tuple[int, bytes] | None
    since: int
    #: canonical texts in the order of the log, and the digests of those that may be used
    definitions: list[bytes]
    usable: list[bytes]
    #: of the log from version ``base`` on, and of some versions before it
    digests: bytes
    base: int
    apart: list[tuple[int, bytes]]
    #: id, counter and digest of each
    writers: bytes
    requests: bytes
    requests_since: int
    begun: tuple[int, bytes, bytes] | None
    added_at: int
    #: of the groups in the order of their sequences
    uids: bytes
    counts: bytes
    key_versions: bytes
    #: the number of each one's shape: its fields, their classes and its definition
    shapes: bytes
    fields: list[tuple[list[int], list[LeastClass], bytes]]
    segments: list[Segment]
    dead: list[tuple[bytes, bytes]]
    deaths: list[tuple[bytes, Deaths]]
    stored: dict[int, int]
    last: int
    headers: list[SegmentHeader]
    #: of the groups in the order of their sequences
    rows: bytes
    roster: int
    epochs: list[tuple[int, int]]
    resealed: tuple[int, int, tuple[tuple[int, bytes], ...]]
    defined_at: int
    #: of segments that a compaction changed, their groups by now
    laid: list[tuple[bytes, list[tuple[bytes, int]]]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The contents of a ledger. They do not change when the ledger is extended.

    ``first`` and ``present`` are each the version and id of a key.
    """

    snapshot: Snapshot
    first: tuple[int, bytes] | None
    present: tuple[int, bytes] | None
    since: int
    history: DefinitionHistory | None
    order: OrderState
    past: Past
    resealed: Resealed
    defined_at: int

    def encode(self) -> bytes:
        snapshot, history, order = self.snapshot, self.history, self.order
        groups = snapshot.in_order[: len(snapshot.groups)]
        shapes: dict[tuple[tuple[int, ...], tuple[LeastClass, ...], bytes], int] = {}
        numbers = [
            shapes.setdefault(
                (tuple(group.fields), tuple(group.classes), group.definition), len(shapes)
            )
            for group in groups
        ]
        return _encoder.encode(
            _Packed(
                format=7,
                first=self.first,
                present=self.present,
                since=self.since,
                definitions=[definition.canonical for definition in history.every.values()]
                if history
                else [],
                usable=sorted(history.usable) if history else [],
                digests=b"".join(order.digests),
                base=order.base,
                apart=list(order.apart.items()),
                writers=b"".join(
                    uid + counter.to_bytes(_COUNTER, "big") + digest
                    for uid, (counter, digest) in order.writers.items()
                ),
                requests=b"".join(order.requests),
                requests_since=order.requests_since,
                begun=None
                if order.begun is None
                else (order.begun.version, order.begun.member, order.begun.digest),
                added_at=order.added_at,
                uids=b"".join([group.uid for group in groups]),
                counts=_numbers([group.count for group in groups]),
                key_versions=_numbers([group.key_version for group in groups]),
                shapes=_numbers(numbers),
                fields=[(list(fields), list(classes), named) for fields, classes, named in shapes],
                segments=list(snapshot.segments),
                dead=[(uid, rows.serialize()) for uid, rows in snapshot.dead.items()],
                deaths=list(snapshot.deaths.items()),
                stored=self.past.stored,
                last=self.past.last,
                headers=list(snapshot.headers.values()),
                rows=b"".join([group.rows for group in groups]),
                roster=order.roster,
                epochs=order.epochs,
                resealed=(self.resealed.version, self.resealed.moment, self.resealed.former),
                defined_at=self.defined_at,
                laid=[(uid, list(own)) for uid, own in snapshot.laid.items()],
            )
        )


@dataclass(frozen=True, slots=True)
class RestoredState:
    """The state that :meth:`LedgerState.encode` was given, with the groups in their order."""

    first: tuple[int, bytes] | None
    present: tuple[int, bytes] | None
    since: int
    history: DefinitionHistory | None
    order: OrderState
    groups: list[Group]
    segments: list[Segment]
    dead: dict[bytes, BitMap]
    deaths: dict[bytes, Deaths]
    past: Past
    headers: list[SegmentHeader]
    resealed: Resealed
    defined_at: int
    laid: Mapping[bytes, Laid]

    @property
    def home(self) -> dict[bytes, bytes]:
        """The segment of each group."""
        laid = (
            (segment.uid, self.laid.get(segment.uid, segment.groups)) for segment in self.segments
        )
        return {group: segment for segment, own in laid for group, _ in own}


def decode(data: bytes) -> RestoredState:
    """Undo :meth:`LedgerState.encode`.

    Raises:
        Malformed: of another version, or no such bytes.
    """
    try:
        packed = _decoder.decode(data)
        groups = list(_groups(packed))
        dead = {uid: BitMap.deserialize(rows) for uid, rows in packed.dead}
        history = _history(packed)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, IndexError):
        raise Malformed("these bytes are no ledger of this version") from None
    writers = {
        packed_writer[:UID]: (
            int.from_bytes(packed_writer[UID:-DIGEST], "big"),
            packed_writer[-DIGEST:],
        )
        for packed_writer in _cut(packed.writers, UID + _COUNTER + DIGEST)
    }
    return RestoredState(
        first=packed.first,
        present=packed.present,
        since=packed.since,
        history=history,
        order=OrderState(
            digests=_cut(packed.digests, DIGEST),
            base=packed.base,
            apart=dict(packed.apart),
            writers=writers,
            requests=set(_cut(packed.requests, UID)),
            requests_since=packed.requests_since,
            begun=None if packed.begun is None else Begun(*packed.begun),
            added_at=packed.added_at,
            roster=packed.roster,
            epochs=packed.epochs,
        ),
        groups=groups,
        segments=packed.segments,
        dead=dead,
        deaths=dict(packed.deaths),
        past=Past(packed.stored, packed.last),
        headers=packed.headers,
        resealed=Resealed(*packed.resealed),
        defined_at=packed.defined_at,
        laid=dict(packed.laid),
    )


def _history(packed: _Packed) -> DefinitionHistory | None:
    every = [parse_canonical(text) for text in packed.definitions]
    if not every:
        return None
    by_digest = {definition.digest: definition for definition in every}
    return DefinitionHistory(every[-1], by_digest, frozenset(packed.usable))


def _groups(packed: _Packed) -> Iterator[Group]:
    columns = (packed.key_versions, packed.counts, packed.shapes)
    key_versions, counts, shapes = (np.frombuffer(column, _U32).tolist() for column in columns)
    uids, rows = _cut(packed.uids, UID), _cut(packed.rows, DIGEST)
    for uid, key_version, count, shape, own in zip(
        uids, key_versions, counts, shapes, rows, strict=True
    ):
        fields, classes, definition = packed.fields[shape]
        yield Group(uid, key_version, count, fields, classes, definition, own)


def _numbers(values: Sequence[int]) -> bytes:
    return np.array(values, _U32).tobytes()


def _cut(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]
