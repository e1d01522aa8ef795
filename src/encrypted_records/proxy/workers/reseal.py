"""The worker's part of re-encryption: rows are opened, compared with their signed digests,
converted, and sealed as a group that stands for theirs (docs/SPEC.md, section 7.7).

The worker's part of rebuilding an index: rows are opened, compared with their signed digests, and
indexed in place (docs/SPEC.md, section 6.4).

As in packing, memory does not grow with the segment: a few MiB of rows are in memory at a time, and
sorted columns are in an unnamed file (:mod:`.page_spool`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import msgspec
import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.crypto.sealing import open_columns, seal_group
from encrypted_records.crypto.values import shown
from encrypted_records.errors import Conflict, DoesNotOpen
from encrypted_records.index.segments.sorted_runs import RunMerger
from encrypted_records.ingest.seal import build_columns, seal_columns
from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.definition_changes import convert
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.digests import check_rows
from encrypted_records.model.field_types.base import ValueRefused
from encrypted_records.model.predicates import greatest_classes
from encrypted_records.model.records import (
    Group,
    KilledRows,
    Page,
    Part,
    PartUpload,
    RowDigests,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
    StoredRow,
)
from encrypted_records.proxy.workers import messages, pipe
from encrypted_records.proxy.workers.page_spool import SpooledContents

#: Values of the fields of the new definition, by name.
_Columns = dict[str, list[Value]]


def reseal(task: messages.ResealTask) -> messages.SealedChunk:
    """The live rows of the task's sources as one group with its segment.

    Raises:
        Altered: a row is not the one that was stored.
        DoesNotOpen: a row was altered or belongs elsewhere, or the API gave others than those that
            it was asked for.
        Conflict: ``not_convertible``; values do not fit the new definition.
    """
    scope = {"organization": task.organization, "schema": task.schema}
    keys = {version: SchemaKey(key, version=version, **scope) for version, key in task.keys}
    every = {definition.digest: definition for definition in map(parse_canonical, task.earlier)}
    present = list(every.values())[-1]
    definition = parse_canonical(task.definition)
    change = ValueConversion(present, definition, task.origins)
    identities: list[tuple[bytes, int]] = []
    values: _Columns = {name: [] for name in definition.fields}
    holes: list[RowRef] = []
    base = 0
    for opened in open_sources(keys, every, task.sources, task.rows, task.digests):
        source = opened.source
        holes += [RowRef(bytes(16), base + at - source.first) for at in opened.gone]
        base += source.end - source.first
        if opened.rows:
            identities += [(row.record_id, row.version) for _, row in opened.rows]
            change.take(opened.made, opened.values, len(opened.rows), values)
    if change.refused:
        raise not_convertible(change.refused)
    return _seal(task, keys[task.version], definition, identities, values, holes)


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """The live rows of a source, each with its ordinal, and the ordinals of the others; ``made`` is
    the definition under which they were sealed, ``values`` are by field's id."""

    source: messages.SourceRows
    rows: list[tuple[int, SealedRow]]
    gone: list[int]
    made: SchemaDefinition
    values: Mapping[int, list[Value]]


def open_sources(
    keys: Mapping[int, SchemaKey],
    every: Mapping[bytes, SchemaDefinition],
    sources: Sequence[messages.SourceRows],
    rows: Sequence[bytes],
    digests: Sequence[bytes],
) -> Iterator[OpenedSource]:
    """Compare rows with what was signed, and open them.

    Args:
        keys: of the schema, by version; ``every`` definition of its log, by digest.
        sources, rows, digests: as of :class:`messages.ResealTask`.

    Raises:
        Altered, DoesNotOpen: as :func:`reseal`.
    """
    told = _digests_by_group(digests)
    stored = (row for body in rows for row in wire.decode_all(body, StoredRow))
    for source in sources:
        group = source.group
        living, gone = _take(source, stored)
        made = every.get(group.definition)
        if made is None:
            raise DoesNotOpen("a group is of a definition that the log does not contain")
        opened: Mapping[int, list[Value]] = {}
        if living:
            check_rows(group, dict(living), told.get(group.uid, []))
            opened = open_columns(keys[group.key_version], made, group, living)
        yield OpenedSource(source, living, gone, made, opened)
    if next(stored, None) is not None:
        raise DoesNotOpen("the API returned more rows than were requested")


def not_convertible(records: int) -> Conflict:
    """The refusal of a definition that stored records do not fit."""
    what = "record does" if records == 1 else "records do"
    return Conflict(
        f"{records} {what} not match the new definition, or would lose data by it",
        code="not_convertible",
        hint="nothing was changed; ers schema change shows a search that finds them: correct or"
        " delete them, and try again",
    )


def _take(
    source: messages.SourceRows, stored: Iterator[StoredRow]
) -> tuple[list[tuple[int, SealedRow]], list[int]]:
    """The source's live rows, each with its ordinal, and the ordinals of the others."""
    dead = BitMap.deserialize(source.dead)
    rows: list[tuple[int, SealedRow]] = []
    gone: list[int] = []
    for ordinal in range(source.first, source.end):
        if ordinal in dead:
            gone.append(ordinal)
            continue
        row = next(stored, None)
        if row is None or (row.group, row.ordinal) != (source.group.uid, ordinal):
            raise DoesNotOpen("the API returned a row that was not requested")
        rows.append((ordinal, row.row))
    return rows, gone


def _digests_by_group(bodies: Sequence[bytes]) -> Mapping[bytes, list[RowDigests]]:
    told: dict[bytes, list[RowDigests]] = {}
    for digests in chain.from_iterable(wire.decode_all(body, RowDigests) for body in bodies):
        told.setdefault(digests.group, []).append(digests)
    return told


class ValueConversion:
    """Values of the present definition, changed into those of the new one."""

    def __init__(
        self, present: SchemaDefinition, new: SchemaDefinition, origins: Sequence[tuple[int, int]]
    ) -> None:
        """
        Args:
            origins: as of :class:`messages.ResealTask`; where ``new`` is another.
        """
        self._present = present
        self._new = new
        self._origins = {new: old for new, old in origins if new != messages.LOST}
        self._moved = {old for _, old in origins}
        #: of how many records something does not fit
        self.refused = 0
        self._same = present.digest == new.digest

    def take(
        self,
        made: SchemaDefinition,
        opened: Mapping[int, list[Value]],
        count: int,
        values: _Columns,
    ) -> None:
        """Add the values of ``count`` rows to ``values``.

        Args:
            made: the definition under which they were sealed.
            opened: by field's id.
        """
        wrong: set[int] = set()
        if not self._same:
            for number in (opened.keys() & self._present.by_id.keys()) - self._moved:
                wrong.update(at for at, value in enumerate(opened[number]) if value is not None)
        for name, spec in self._new.fields.items():
            before = self._before(spec)
            own = None if before is None else made.by_id.get(before.id)
            column: list[Value] = [None] * count
            if before is not None and own is not None:
                column = _with_decimals(own, before, opened[before.id])
                if not self._same and not _is_same_rule(before, spec):
                    column = _convert_all(before, spec, column, wrong)
            if not self._same and name in self._new.required:
                wrong.update(at for at, value in enumerate(column) if value is None)
            values[name] += column
        self.refused += len(wrong)

    def _before(self, spec: FieldSpec) -> FieldSpec | None:
        """The present field that a new one was; one of another type has an id of its own."""
        number = spec.id if self._same else self._origins.get(spec.id)
        return None if number is None else self._present.by_id.get(number)


def _with_decimals(own: FieldSpec, before: FieldSpec, column: list[Value]) -> list[Value]:
    if own.number is None or own.number == before.number:
        return column
    return [None if value is None else shown(own, before, value) for value in column]


def _is_same_rule(before: FieldSpec, after: FieldSpec) -> bool:
    return replace(before, name="", id=0) == replace(after, name="", id=0)


def _convert_all(
    before: FieldSpec, after: FieldSpec, column: Sequence[Value], wrong: set[int]
) -> list[Value]:
    converted: list[Value] = []
    for at, value in enumerate(column):
        try:
            converted.append(convert(before, after, value))
        except ValueRefused:
            wrong.add(at)
            converted.append(None)
    return converted


def _seal(
    task: messages.ResealTask,
    key: SchemaKey,
    definition: SchemaDefinition,
    identities: Sequence[tuple[bytes, int]],
    values: _Columns,
    holes: Sequence[RowRef],
) -> messages.SealedChunk:
    gathered = KilledRows.gather(holes)
    runs = gathered[0].runs if gathered else []
    before = greatest_classes(source.group for source in task.sources)
    segments: list[Segment] = []
    pages: tuple[Page, ...] = ()
    headers: tuple[SegmentHeader, ...] = ()
    if task.indexed:
        sealed = seal_columns(
            key,
            key,  # from this commit on, tails are of the key that seals
            definition,
            identities,
            values,
            origin=task.staging + task.number.to_bytes(4, "big"),
            before=before,
            holes=runs,
        )
        group, batch, salt = sealed.group, sealed.batch, sealed.salt
        segments, headers = [sealed.built.segment], (sealed.built.header,)
        pages = sealed.built.pages
    else:
        group, batch, salt = seal_group(key, definition, identities, values, before, runs)
    part = Part(task.staging, task.number, definition.digest, [group], segments, 1)
    body = b"".join(wire.encode_part(PartUpload(part, (batch,), pages, (salt,), headers)))
    own = messages.SealedPart(task.schema, memoryview(body), [group], segments, runs)
    return messages.SealedChunk([own])


def rebuild(task: messages.RebuildTask) -> messages.MergedSegment:
    """Build one segment for the live rows of the task's groups; its pages are sent before this
    returns.

    Raises:
        Altered: a row is not the one that was stored.
        DoesNotOpen: a row was altered or belongs elsewhere, or the API returned other rows than
            requested.
        OutOfSpace, Unavailable: the disk has no room for it, or fails.
    """
    scope = {"organization": task.organization, "schema": task.schema}
    keys = {version: SchemaKey(key, version=version, **scope) for version, key in task.keys}
    definition = parse_canonical(task.definition)
    every = {definition.digest: definition for definition in map(parse_canonical, task.earlier)}
    change = ValueConversion(definition, definition, ())
    contents = SpooledContents(Path(task.folder), task.keep_free, "rebuilding an index")
    merger = RunMerger(keys[task.version], definition, b"", contents, inputs=[task.lost])
    tails = keys[task.tails]
    for number, group in enumerate(task.groups):
        merger.begin(group)
        stated = _stating(group, definition)
        at = 0
        while at < group.count:
            reply = pipe.ask(messages.RowsRequest(number, at))
            assert isinstance(reply, messages.RowsReply)
            for source in open_sources(keys, every, reply.sources, reply.rows, reply.digests):
                values: dict[str, list[Value]] = {name: [] for name in definition.fields}
                if source.rows:
                    change.take(source.made, source.values, len(source.rows), values)
                    ordinals = np.array([ordinal for ordinal, _ in source.rows], np.uint32)
                    merger.add_rows(ordinals, build_columns(tails, definition, stated, values))
            at = reply.end
    sealed = merger.seal()
    while some := list(islice(sealed.pages, task.most)):
        pipe.write(messages.MergedPages(sealed.segment, sealed.header, some))
    return messages.MergedSegment(sealed.segment, sealed.header)


def _stating(group: Group, definition: SchemaDefinition) -> Group:
    """The group, with the classes of the definition's fields in their order; of a field that it
    lacks, as if it were sealed now."""
    had = dict(zip(group.fields, group.classes, strict=True))
    specs = definition.fields.values()
    classes = [had[spec.id] if spec.id in had else least_class(spec) for spec in specs]
    return msgspec.structs.replace(group, fields=definition.ids, classes=classes)
