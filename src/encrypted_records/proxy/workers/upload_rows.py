"""The rows of an upload in the spool, as a task names it: all of them, or those of one chunk.

A worker's part of looking for equal values: the index keys of rows that are not stored yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from encrypted_records.crypto.keys import SchemaKey, SpoolKey
from encrypted_records.errors import KeyMissing
from encrypted_records.index.columns.column import keys_of
from encrypted_records.ingest.blocks import CellBlock, RecordBlock, RecordStart
from encrypted_records.ingest.check import RecordColumns, SchemaLookup, gather
from encrypted_records.ingest.layouts import Layout, parser_for, recognize, settle
from encrypted_records.ingest.reading.parser import CellCounts, ReadingParser
from encrypted_records.ingest.reading.recipe import read_recipe
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.workers import messages


class _SpoolKeys:
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
    return spool.read(source.upload, _SpoolKeys(source), start=offset, size=source.size)


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
        """All blocks from ``start`` on, or from the first record; ``tally`` counts what becomes of
        the cells of an upload with a reading."""
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
        """A definition that the rows of this upload have to fit."""
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
    # As in the check: a reference that it took and this one does not would lose its record.
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
    """The keys of the fields of these ids, under the records' own definition.

    Equal values have equal keys, and so do stored ones, whose keys the index has.
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
