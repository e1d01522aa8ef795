"""A ledger at one version, encoded and decoded, and the groups that replace ended groups.

With this state, a log need not be verified from its beginning again. The bytes are trusted: nothing
in them is checked against the log. They contain the data of commits (uids, counts, digests; no key)
and the sealed headers of live segments.

A record keeps its position among all rows when a commit ends groups (docs/SPEC.md, section 7.7):
the rows of the new groups have the numbers of the old groups' rows. So code that names a row by its
number is not affected by such a commit.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, TypeVar

import msgspec
import numpy as np
from pyroaring import BitMap

from encrypted_records.errors import LogBroken, Malformed
from encrypted_records.index.log.history import Past, Resealed
from encrypted_records.index.log.order import Begun, OrderState, require
from encrypted_records.index.log.snapshot import GroupState, Laid, Snapshot
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.definition_changes import DefinitionHistory
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import CommitBody, Group, KilledRows, Segment, SegmentHeader
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import EndedGroup

UID, DIGEST = 16, 32
_COUNTER = 8
_U32 = np.dtype(">u4")

Deaths = tuple[tuple[int, int], ...]


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The encoded form. Entries per commit or per group are concatenated: nested lists would take
    ten times as long to read.
    """

    format: Literal[7]
    first: tuple[int, bytes] | None
    present: tuple[int, bytes] | None
    since: int
    #: canonical texts in log order, and the digests of the usable definitions
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
    #: the number of each group's shape: its fields, their classes and its definition
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
    #: the current groups of segments that a compaction changed
    laid: list[tuple[bytes, list[tuple[bytes, int]]]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The contents of a ledger. They do not change when the ledger is extended.

    ``first`` and ``present`` are each a key's version and id.
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
                laid=[(uid, list(of_segment)) for uid, of_segment in snapshot.laid.items()],
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
        return {group: segment for segment, groups in laid for group, _ in groups}


def decode(data: bytes) -> RestoredState:
    """Undo :meth:`LedgerState.encode`.

    Raises:
        Malformed: the bytes are of another version, or invalid.
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
    definitions = [parse_canonical(text) for text in packed.definitions]
    if not definitions:
        return None
    by_digest = {definition.digest: definition for definition in definitions}
    return DefinitionHistory(definitions[-1], by_digest, frozenset(packed.usable))


def _groups(packed: _Packed) -> Iterator[Group]:
    columns = (packed.key_versions, packed.counts, packed.shapes)
    key_versions, counts, shapes = (np.frombuffer(column, _U32).tolist() for column in columns)
    uids, rows = _cut(packed.uids, UID), _cut(packed.rows, DIGEST)
    for uid, key_version, count, shape, digest in zip(
        uids, key_versions, counts, shapes, rows, strict=True
    ):
        fields, classes, definition = packed.fields[shape]
        yield Group(uid, key_version, count, fields, classes, definition, digest)


def _numbers(values: Sequence[int]) -> bytes:
    return np.array(values, _U32).tobytes()


def _cut(joined: bytes, size: int) -> list[bytes]:
    return [joined[at : at + size] for at in range(0, len(joined), size)]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveGroups:
    """The groups of a log at one version: by uid, in order, and how many rows come before each."""

    by_uid: Mapping[bytes, GroupState]
    in_order: Sequence[Group]
    starts: Sequence[int]
    dead: Mapping[bytes, BitMap]
    deaths: Mapping[bytes, Deaths]


@dataclass(frozen=True, slots=True)
class GroupEndings:
    """The effect of a commit that ends groups on the log's groups; empty if it ends none.

    ``dead`` and ``deaths`` refer to the added groups, ``numbers`` to the rows that moved.
    """

    in_order: list[Group] = field(default_factory=list)
    dead: dict[bytes, BitMap] = field(default_factory=dict)
    deaths: dict[bytes, Deaths] = field(default_factory=dict)
    numbers: list[range] = field(default_factory=list)


def without(groups: Mapping[bytes, T], uids: Container[bytes]) -> dict[bytes, T]:
    """All groups except these."""
    return {uid: entry for uid, entry in groups.items() if uid not in uids}


def bitmap_of(killed: KilledRows) -> BitMap:
    rows = BitMap()
    for first, count in killed.runs:
        rows.add_range(first, first + count)
    return rows


def check_standing(body: CommitBody, live: LiveGroups) -> GroupEndings:
    """Check that the groups that a commit adds can replace the groups that it ends.

    Raises:
        LogBroken: they do not.
    """
    if not body.ended:
        return GroupEndings()
    if any(uid not in live.by_uid for uid in body.ended):
        raise LogBroken("a commit ends a group that is not live")
    old = [live.by_uid[uid] for uid in body.ended]
    ended = [
        EndedGroup(
            live.starts[state.sequence],
            state.group.count,
            dict(zip(state.group.fields, state.group.classes, strict=True)),
        )
        for state in old
    ]
    require(commit_judging.judge_replacement(ended, body.groups))
    holes, killed = _by_group(body.holes), _by_group(body.killed)
    standing = GroupEndings()
    starts: dict[bytes, int] = {}
    pieces = groupby(commit_judging.pieces_of(ended, body.groups), lambda piece: piece.new)
    for group, (_, group_pieces) in zip(body.groups, pieces, strict=True):
        pieces_of_group = list(group_pieces)
        uids = [body.ended[piece.old] for piece in pieces_of_group]
        starts[group.uid] = ended[pieces_of_group[0].old].start + pieces_of_group[0].first
        dead = BitMap()
        for uid, piece in zip(uids, pieces_of_group, strict=True):
            rows = live.dead.get(uid, BitMap()) & BitMap(range(piece.first, piece.end))
            dead |= rows.shift(piece.to - piece.first)
        gone = holes.get(group.uid, BitMap()), killed.get(group.uid, BitMap())
        if gone[0] | gone[1] != dead or not gone[0].isdisjoint(gone[1]):
            raise LogBroken("other rows are dead than in the groups that a commit ends")
        if dead:
            standing.dead[group.uid] = dead
            standing.deaths[group.uid] = _newest(uids, live.deaths, len(dead))
    gone_uids = set(body.ended)
    left = [
        (start, group)
        for group, start in zip(live.in_order, live.starts, strict=False)
        if group.uid not in gone_uids
    ]
    added = [(starts[group.uid], group) for group in body.groups]
    standing.in_order.extend(row for _, row in sorted([*left, *added], key=lambda pair: pair[0]))
    standing.numbers.extend(range(group.start, group.start + group.rows) for group in ended)
    return standing


def _by_group(kills: Sequence[KilledRows]) -> dict[bytes, BitMap]:
    return {rows.group: bitmap_of(rows) for rows in kills}


def _newest(uids: Sequence[bytes], deaths: Mapping[bytes, Deaths], count: int) -> Deaths:
    """The newest deaths of these groups, up to ``count`` rows: a split group does not know each
    row's time of death.
    """
    newest: list[tuple[int, int]] = []
    deaths_of_groups = (death for uid in uids for death in deaths.get(uid, ()))
    for moment, rows in sorted(deaths_of_groups, reverse=True):
        if count <= 0:
            break
        newest.append((moment, min(rows, count)))
        count -= rows
    return tuple(reversed(newest))
