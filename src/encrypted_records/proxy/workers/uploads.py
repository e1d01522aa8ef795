"""Reading an upload in a worker: its rows, their index keys, and results from a sample of it.

A task names an upload in the spool, or one chunk of it. From a sample, a worker proposes a
definition, reports which rows fit a definition, and estimates its cost, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from encrypted_records.crypto.keys import SchemaKey, SpoolKey
from encrypted_records.errors import KeyMissing
from encrypted_records.index.columns.column import keys_of
from encrypted_records.ingest.blocks import CellBlock, RecordBlock, RecordStart
from encrypted_records.ingest.check import RecordColumns, SchemaLookup, gather
from encrypted_records.ingest.estimate import estimate, look_at
from encrypted_records.ingest.infer import infer
from encrypted_records.ingest.layouts import Layout, parser_for, recognize, settle
from encrypted_records.ingest.preview import preview
from encrypted_records.ingest.reading.choices import (
    NOTHING,
    detect_as,
    notes_on_unused,
    read_again,
    read_said,
)
from encrypted_records.ingest.reading.detect import propose
from encrypted_records.ingest.reading.parser import CellCounts, ReadingParser, check_fields
from encrypted_records.ingest.reading.recipe import read_recipe, require_short
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical, parse_definition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.record_formats import Format
from encrypted_records.model.samples import (
    CostEstimate,
    FileReading,
    Preview,
    ProposedSchema,
    ReadingDifference,
)
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.workers import messages


class _TaskSpoolKeys:
    """The keys of one upload, from its task."""

    def __init__(self, source: messages.UploadSource) -> None:
        self._keys = {
            (upload, version): SpoolKey(key, upload=upload, version=version)
            for upload, version, key in source.keys
        }

    def spool(self, upload: bytes, version: int) -> SpoolKey:
        key = self._keys.get((upload, version))
        if key is None:
            raise KeyMissing("a worker did not receive the key of this upload")
        return key


def _pieces(source: messages.UploadSource, offset: int) -> Iterator[bytes]:
    spool = Spool(Path(source.folder))
    return spool.read(source.upload, _TaskSpoolKeys(source), start=offset, size=source.size)


class UploadReader:
    """An upload whose layout is known from its first bytes."""

    def __init__(self, source: messages.UploadSource) -> None:
        self._source = source
        self.reading = None if source.reading is None else read_recipe(source.reading)
        beginning = b""
        for piece in _pieces(source, 0):
            beginning += piece
            if self._recognize(beginning, final=False) is not None:
                break
        recognized = self._recognize(beginning, final=True)
        assert recognized is not None
        self.layout, self._first = recognized
        self._charset = settle(source.charset, beginning, final=True) if source.charset else None

    def _recognize(self, start: bytes, *, final: bool) -> tuple[Layout, RecordStart] | None:
        source = self._source
        return recognize(
            start, source.kind, final=final, charset=source.charset, reading=self.reading
        )

    def blocks(
        self, start: RecordStart | None = None, tally: CellCounts | None = None
    ) -> Iterator[Sequence[RecordBlock | CellBlock]]:
        """All blocks from ``start`` on, or from the first record; ``tally`` counts the outcomes for
        the cells of an upload with a recipe."""
        begin = start or self._first
        parser = parser_for(
            self.layout,
            begin,
            schema_named=self._source.named is not None,
            charset=self._charset,
            reading=self.reading,
        )
        if isinstance(parser, ReadingParser):
            parser.tally = tally
        is_read_whole = self.reading is not None and self.reading.is_read_whole
        for piece in _pieces(self._source, 0 if is_read_whole else begin.offset):
            yield parser.feed(piece)
        yield parser.finish()

    def as_read(self, definition: SchemaDefinition) -> SchemaDefinition:
        """The definition that the rows of this upload have to fit."""
        rounds = self.reading is not None and self.reading.round
        return definition.as_rounding() if rounds else definition


def gather_chunk(
    source: messages.UploadSource,
    chunk: messages.ChunkAt,
    schemas: Sequence[messages.SchemaKeyBytes],
) -> dict[bytes, RecordColumns]:
    """The chunk's good rows by schema, each with the definition that its schema has here."""
    reader = UploadReader(source)
    definitions = {
        schema.schema: reader.as_read(parse_canonical(schema.definition)) for schema in schemas
    }
    # As in the check: a reference that only the check accepted would lose its record.
    lookup = SchemaLookup(definitions.__getitem__, named=source.named, own_hosts=source.own_hosts)
    return gather(lookup, _blocks_of(reader, chunk), text=source.kind is Format.CSV)


def _blocks_of(reader: UploadReader, chunk: messages.ChunkAt) -> Iterator[RecordBlock | CellBlock]:
    """Exactly the chunk's rows."""
    for blocks in reader.blocks(RecordStart(chunk.offset, chunk.row)):
        for block in blocks:
            if block.start.row > chunk.last:
                return
            part = block.part(chunk.first, chunk.last)
            if part.count:
                yield part


def keys_by_row(
    schema: messages.SchemaKeyBytes, fields: Sequence[int], records: RecordColumns
) -> messages.SchemaRows:
    """The index keys of the fields with these ids, under the records' definition.

    Equal values have equal keys, also those of stored rows, which the index contains.
    """
    tails = SchemaKey(
        schema.tails,
        version=schema.tails_version,
        organization=schema.organization,
        schema=schema.schema,
    )
    found: list[messages.FieldKeys] = []
    for number in fields:
        spec = records.definition.by_id[number]
        column = records.values[spec.name]
        present = np.array([value is not None for value in column], np.bool_)
        keys = keys_of(spec, tails.field(spec), [key for key in column if key is not None])
        found.append(messages.FieldKeys(number, present.tobytes(), keys.dtype.str, keys.tobytes()))
    rows = np.array(records.rows, np.uint32)
    return messages.SchemaRows(schema.schema, rows.tobytes(), found)


def answer_of(task: messages.SampleTask) -> bytes:
    """
    Raises:
        InvalidDefinition: with all errors.
        Malformed, InvalidRecords, TooLarge: as :func:`infer`, :func:`detect_as`, :func:`preview`,
            :func:`look_at` and :func:`estimate`; also if the schema that a file is for has other
            fields.
    """
    found: ProposedSchema | FileReading | Preview | CostEstimate
    match task:
        case messages.InferTask(sample, kind, wishes):
            found = infer(sample, kind, wishes)
        case messages.DetectTask():
            found = _reading(task)
        case messages.PreviewTask(definition, sample, kind, shown, reading, whole):
            recipe = None if reading is None else read_recipe(reading)
            parsed = parse_definition(definition)
            found = preview(parsed, sample, kind, shown=shown, reading=recipe, whole=whole)
        case messages.EstimateTask(definition, records, string_bytes, sample, kind):
            parsed = parse_definition(definition)
            sampled = None if sample is None else look_at(parsed, sample, kind)
            found = estimate(parsed, records, string_bytes, sampled).rounded()
    return msgspec.json.encode(found)


def _reading(task: messages.DetectTask) -> FileReading:
    choices = read_said(task.said) if task.said else NOTHING
    schema = None if task.definition is None else parse_canonical(task.definition)
    differences: list[ReadingDifference] = []
    kept = choices.reading
    if kept is None and task.kept is not None:
        kept = read_recipe(task.kept)
    specs = {} if schema is None else schema.fields
    texts = [name for name, spec in specs.items() if spec.kind is KeyKind.TEXT]
    if kept is not None:
        found, differences = read_again(
            *(task.sample, kept, choices),
            whole=task.whole,
            fields=specs if schema else None,
            texts=texts,
        )
    else:
        found = detect_as(task.sample, choices, whole=task.whole, texts=texts)
    if schema is not None and all(difference.taken for difference in differences):
        check_fields(found.recipe, list(schema.fields), sorted(schema.required))
    require_short(found.recipe)
    definition, fields = propose(found, tight=task.tight)
    return FileReading(
        reading=msgspec.to_builtins(found.recipe),
        schema=definition,
        sampled=found.rows,
        whole=found.whole,
        fields=fields,
        above=list(found.above),
        below=list(found.below),
        short_rows=found.short,
        guessed=list(found.guessed),
        words=list(found.words),
        notes=[*found.notes, *notes_on_unused(choices, found.recipe.container)],
        renamed=dict(found.changed),
        kept=kept is not None,
        differences=differences,
    )
