"""The worker's tasks that make segments: merge, pack chunks, reseal rows, rebuild an index.

Memory does not grow with the segments: sealed pages of one input column, sorted columns and the
content of new pages are in anonymous files, and a few MiB of rows are in memory at a time. Sealed
pages are received and sent in groups. They are requested in the order of their numbers, all pages
of a column together: requests in key order would reveal that order to the API.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import msgspec
import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.crypto.sealing import open_columns, seal_group
from encrypted_records.crypto.spooling import ScratchKey
from encrypted_records.crypto.values import shown
from encrypted_records.errors import Conflict, DoesNotOpen
from encrypted_records.index.segments.merge import SegmentMerger
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.paged import MergeInput, PagedSegment
from encrypted_records.index.segments.sorted_runs import Blocks, RunMerger, cut_columns
from encrypted_records.ingest.check import RecordColumns
from encrypted_records.ingest.seal import build_columns, seal_columns
from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.definition_changes import DefinitionHistory, convert
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.digests import check_page, check_rows
from encrypted_records.model.field_types.base import ValueRefused
from encrypted_records.model.predicates import greatest_classes
from encrypted_records.model.records import (
    PAGE_BYTES,
    Group,
    KilledRows,
    Page,
    PageRef,
    Part,
    PartUpload,
    RowDigests,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
    StoredRow,
)
from encrypted_records.proxy.disk import NamelessFile
from encrypted_records.proxy.spool import damaged
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.uploads import gather_chunk

_MERGE = "a merge"


class SpooledContents:
    """The contents of a new segment's pages until its uid is known, one after the other, each
    sealed; before that, the data that they are made of.

    Implements :class:`encrypted_records.index.segments.cuts.Contents`.
    """

    def __init__(self, folder: Path, keep_free: int, work: str = _MERGE) -> None:
        self._file = NamelessFile(folder, keep_free, work)
        self._key = ScratchKey()
        #: the start of each content, and the end of the last
        self._starts = array("Q", [0])

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, content: bytes) -> None:
        sealed = self._key.seal(len(self), content)
        self._starts.append(self._file.append(sealed) + len(sealed))

    def read(self, number: int) -> bytes:
        start, end = self._starts[number], self._starts[number + 1]
        return self._key.open(number, self._file.read(start, end - start))


class FetchedPages:
    """Sealed pages of one column of the inputs, as the API has them."""

    def __init__(self, folder: Path, keep_free: int) -> None:
        self._file = NamelessFile(folder, keep_free, _MERGE)
        self._places: dict[tuple[bytes, int], int] = {}

    def replace(self, pages: Iterable[Page]) -> None:
        """Store these pages; those of the previous column are dropped."""
        self._places.clear()
        self._file.empty()
        for page in pages:
            self._places[page.segment, page.number] = self._file.append(page.data)

    def read(self, segment: bytes, number: int) -> bytes:
        return self._file.read(self._places[segment, number], PAGE_BYTES)


def merge(task: messages.MergeTask) -> messages.MergedSegment:
    """Build one segment for the live rows of the inputs; its pages are sent before this returns.

    Raises:
        DoesNotOpen: a page of an input does not open.
        Altered: a page is not the page that was stored.
        OutOfSpace, Unavailable: the disk has no room for the merge, or fails.
    """
    definition = parse_canonical(task.definition)
    every = [parse_canonical(text) for text in task.earlier]
    by_digest = {definition.digest: definition for definition in every}
    history = DefinitionHistory(definition, by_digest, frozenset())
    scope = {"organization": task.organization, "schema": task.schema}
    keys = {version: SchemaKey(key, version=version, **scope) for version, key in task.keys}
    digests = {
        segment.uid: page_digests
        for segment, page_digests in zip(task.inputs, task.digests, strict=True)
    }
    minis = _mini_pages(task, digests)
    inputs: list[MergeInput] = [
        _open(keys[segment.key_version], history, segment, header, minis)
        for segment, header in zip(task.inputs, task.headers, strict=True)
    ]
    dead = [BitMap.deserialize(bitmap) for bitmap in task.dead]
    folder = Path(task.folder)
    fetched = FetchedPages(folder, task.keep_free)
    merging = SegmentMerger(
        keys[task.version],
        definition,
        inputs,
        task.groups,
        dead,
        SpooledContents(folder, task.keep_free),
        compared=history.compared,
    )
    paged = {source.segment.uid: source for source in inputs if isinstance(source, PagedSegment)}
    for name in merging.fields:
        directories = _refs(paged, lambda each: each.missing_directories([name]))  # noqa: B023
        for page in _fetch(directories, task.most, digests):
            paged[page.segment].open_page(page.number, page.data)
        data = _refs(paged, lambda each: each.column_pages(name) if each.has_column(name) else ())  # noqa: B023
        fetched.replace(_fetch(data, task.most, digests))
        merging.take(name, fetched.read)
    sealed = merging.seal()
    while some := list(islice(sealed.pages, task.most)):
        messages.write_message(messages.MergedPages(sealed.segment, sealed.header, some))
    return messages.MergedSegment(sealed.segment, sealed.header)


def _refs(
    segments: Mapping[bytes, PagedSegment], missing: Callable[[PagedSegment], Collection[int]]
) -> list[PageRef]:
    return [
        PageRef(uid, at) for uid, segment in segments.items() for at in sorted(missing(segment))
    ]


def _open(
    key: SchemaKey,
    history: DefinitionHistory,
    segment: Segment,
    header: SegmentHeader,
    minis: Iterator[Page],
) -> MergeInput:
    made = history.of(segment.definition)
    if segment.form == "paged":
        return PagedSegment(OpenedHeader(key, history.compared, segment, header, made))
    return MiniSegment(key, history.compared, segment, header, next(minis), made)


def _mini_pages(task: messages.MergeTask, digests: Mapping[bytes, bytes]) -> Iterator[Page]:
    refs = [PageRef(segment.uid, 0) for segment in task.inputs if segment.form == "mini"]
    return _fetch(refs, task.most, digests)


def _fetch(refs: Sequence[PageRef], most: int, digests: Mapping[bytes, bytes]) -> Iterator[Page]:
    """
    Raises:
        Altered: a page is not the page that was stored, and must not be sealed again.
    """
    for begin in range(0, len(refs), most):
        some = list(refs[begin : begin + most])
        reply = messages.ask_proxy(messages.PagesRequest(some))
        assert isinstance(reply, messages.PagesReply)
        for ref, data in zip(some, reply.data, strict=True):
            check_page(ref.segment, ref.number, data, digests[ref.segment])
            yield Page(ref.segment, ref.number, data)


def pack(task: messages.PackTask) -> messages.PackedChunks:
    """Build one segment for each schema that has groups; its pages are sent before this returns.

    Raises:
        DoesNotOpen: ``spool_damaged``; the upload cannot be decrypted, or its rows have changed.
        OutOfSpace, Unavailable: the disk has no room for it, or fails.
    """
    contents = SpooledContents(Path(task.folder), task.keep_free, "packing a job's index")
    packers = {schema.schema: _SegmentPacker(task, schema, contents) for schema in task.schemas}
    for chunk, fates in zip(task.chunks, task.fates, strict=True):
        reply = messages.ask_proxy(messages.GroupsRequest(chunk.number))
        assert isinstance(reply, messages.GroupsReply)
        groups = {group.schema: group.group for group in reply.groups if not group.runs}
        for named in reply.groups:
            if named.runs:
                packers[named.schema].add(named.group, named.runs)
        if not groups:
            continue
        left_out = {fate.schema: frozenset(fate.left_out) for fate in fates}
        for schema, records in gather_chunk(task.source, chunk, task.schemas).items():
            group = groups.pop(schema, None)
            if group is not None:
                packers[schema].read(group, records.without(left_out.get(schema, frozenset())))
        if groups:
            raise damaged("it has fewer rows than were encrypted")
    return messages.PackedChunks(
        [(schema, packer.send()) for schema, packer in packers.items() if packer.count]
    )


class _SegmentPacker:
    """The segment of one schema under construction."""

    def __init__(
        self, task: messages.PackTask, keys: messages.SchemaKeyBytes, contents: SpooledContents
    ) -> None:
        scope = {"organization": keys.organization, "schema": keys.schema}
        self._task = task
        self._schema = keys.schema
        self._definition: SchemaDefinition = parse_canonical(keys.definition)
        self._tails = SchemaKey(keys.tails, version=keys.tails_version, **scope)
        key = SchemaKey(keys.key, version=keys.key_version, **scope)
        origin = task.staging + task.sequence.to_bytes(4, "big")
        self._merger = RunMerger(key, self._definition, origin, contents)
        #: rows so far
        self.count = 0

    def add(self, group: Group, runs: Iterable[Blocks]) -> None:
        self._merger.add(group, runs)
        self.count += group.count

    def read(self, group: Group, records: RecordColumns) -> None:
        """Add a group by its records.

        Raises:
            DoesNotOpen: ``spool_damaged``; the number of records is not that of the group.
        """
        if records.count != group.count:
            raise damaged("it has other rows than were encrypted")
        columns = build_columns(self._tails, self._definition, group, records.values)
        self.add(group, cut_columns(self._definition, columns))

    def send(self) -> Segment:
        """The segment; its pages have been sent to the proxy."""
        task, sealed = self._task, self._merger.seal()
        pages = iter(lambda: tuple(islice(sealed.pages, task.most)), ())
        for number, some in enumerate(pages, task.sequence):
            named = (task.staging, number, self._definition.digest)
            upload = PartUpload(
                Part(*named, [], [sealed.segment], 0), pages=some, headers=(sealed.header,)
            )
            body = b"".join(wire.encode_part(upload))
            messages.write_message(messages.PackedPages(self._schema, body))
        return sealed.segment


#: Values of the fields of the new definition, by name.
_Columns = dict[str, list[Value]]


def reseal(task: messages.ResealTask) -> messages.SealedChunk:
    """The live rows of the task's sources as one group with its segment.

    Raises:
        Altered: a row is not the row that was stored.
        DoesNotOpen: a row was altered or belongs elsewhere, or the API returned other rows than
            requested.
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
    """The live rows of a source, each with its ordinal, and the ordinals of dead rows; ``made`` is
    the definition under which they were sealed, ``values`` are by the field's id."""

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
    """Compare rows with their signed digests, and open them.

    Args:
        keys: the schema's keys by version; ``every`` definition of its log, by digest.
        sources, rows, digests: as in :class:`messages.ResealTask`.

    Raises:
        Altered, DoesNotOpen: as :func:`reseal`.
    """
    by_group = _digests_by_group(digests)
    stored = (row for body in rows for row in wire.decode_all(body, StoredRow))
    for source in sources:
        group = source.group
        living, gone = _take(source, stored)
        made = every.get(group.definition)
        if made is None:
            raise DoesNotOpen("a group is of a definition that the log does not contain")
        opened: Mapping[int, list[Value]] = {}
        if living:
            check_rows(group, dict(living), by_group.get(group.uid, []))
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
    """The source's live rows, each with its ordinal, and the ordinals of dead rows."""
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
    by_group: dict[bytes, list[RowDigests]] = {}
    for digests in chain.from_iterable(wire.decode_all(body, RowDigests) for body in bodies):
        by_group.setdefault(digests.group, []).append(digests)
    return by_group


class ValueConversion:
    """Values of the current definition, converted to values of the new definition."""

    def __init__(
        self, present: SchemaDefinition, new: SchemaDefinition, origins: Sequence[tuple[int, int]]
    ) -> None:
        """
        Args:
            origins: as in :class:`messages.ResealTask`; used if ``new`` is another definition.
        """
        self._present = present
        self._new = new
        self._origins = {new: old for new, old in origins if new != messages.LOST}
        self._moved = {old for _, old in origins}
        #: number of records that do not fit
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
            opened: values by the field's id.
        """
        wrong: set[int] = set()
        if not self._same:
            for number in (opened.keys() & self._present.by_id.keys()) - self._moved:
                wrong.update(at for at, value in enumerate(opened[number]) if value is not None)
        for name, spec in self._new.fields.items():
            before = self._before(spec)
            stored_spec = None if before is None else made.by_id.get(before.id)
            column: list[Value] = [None] * count
            if before is not None and stored_spec is not None:
                column = _with_decimals(stored_spec, before, opened[before.id])
                if not self._same and not _is_same_rule(before, spec):
                    column = _convert_all(before, spec, column, wrong)
            if not self._same and name in self._new.required:
                wrong.update(at for at, value in enumerate(column) if value is None)
            values[name] += column
        self.refused += len(wrong)

    def _before(self, spec: FieldSpec) -> FieldSpec | None:
        """The current field that becomes ``spec``; a field of another type has another id."""
        number = spec.id if self._same else self._origins.get(spec.id)
        return None if number is None else self._present.by_id.get(number)


def _with_decimals(stored_spec: FieldSpec, before: FieldSpec, column: list[Value]) -> list[Value]:
    if stored_spec.number is None or stored_spec.number == before.number:
        return column
    return [None if value is None else shown(stored_spec, before, value) for value in column]


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
            key,  # from this commit on, tails use the sealing key
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
    sealed_part = messages.SealedPart(task.schema, memoryview(body), [group], segments, runs)
    return messages.SealedChunk([sealed_part])


def rebuild(task: messages.RebuildTask) -> messages.MergedSegment:
    """Build one segment for the live rows of the task's groups; its pages are sent before this
    returns.

    Raises:
        Altered: a row is not the row that was stored.
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
            reply = messages.ask_proxy(messages.RowsRequest(number, at))
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
        messages.write_message(messages.MergedPages(sealed.segment, sealed.header, some))
    return messages.MergedSegment(sealed.segment, sealed.header)


def _stating(group: Group, definition: SchemaDefinition) -> Group:
    """The group, with the length classes of the definition's fields in their order; a field that
    the group lacks has the class with which it would be sealed now."""
    had = dict(zip(group.fields, group.classes, strict=True))
    specs = definition.fields.values()
    classes = [had[spec.id] if spec.id in had else least_class(spec) for spec in specs]
    return msgspec.structs.replace(group, fields=definition.ids, classes=classes)
