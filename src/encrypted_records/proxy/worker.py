"""A worker process: parses, checks, seals and merges for the proxy, on a core of its own.

It is asked over its stdin and answers over its stdout (:mod:`.tasks`), and ends with the proxy,
since its stdin does. It knows what it is told and no more: it has no environment, opens no
connection, and reads no file but the sealed upload that it is to work on.
"""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from encrypted_records import logs
from encrypted_records.crypto.keys import SchemaKey, SpoolKey
from encrypted_records.errors import ErsError, KeyMissing, NotFound
from encrypted_records.ingest.blocks import Block, Place, Table
from encrypted_records.ingest.check import Checker, Schemas, gather
from encrypted_records.ingest.layouts import parser_for, recognize
from encrypted_records.ingest.parse_csv import Header, check_columns
from encrypted_records.ingest.seal import seal_columns
from encrypted_records.ingest.tables import Columns
from encrypted_records.model import ids, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import Part, PartUpload
from encrypted_records.proxy import pipes, tasks
from encrypted_records.proxy.hardening import harden
from encrypted_records.proxy.spool import Spool
from encrypted_records.proxy.worker_merging import merge

log = logging.getLogger(__name__)

#: Seconds between two counts of checked rows.
COUNT_SECONDS = 0.25


def main() -> None:
    """Work until there is no more to do: until stdin ends."""
    harden()  # it is sent keys
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the proxy, which ends us
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter("text"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Records are many objects and no cycles; looking for some took a tenth of the time.
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    try:
        while (request := pipes.read()) is not None:
            pipes.write(_answer(request))
    except BrokenPipeError:
        pass  # the proxy is gone


def _answer(request: tasks.ToWorker) -> tasks.Answer:
    try:
        match request:
            case tasks.Check():
                return check(request)
            case tasks.Seal():
                return seal(request)
            case tasks.Merge():
                return merge(request)
        raise TypeError("a reply came where a request was due")
    except ErsError as error:
        return tasks.Failed.of(error)
    except BrokenPipeError:
        raise
    except Exception as error:
        # The log keeps type and place; the text of the error may quote a record.
        log.exception("unexpected %s in a worker", type(error).__name__)
        return tasks.Failed("ErsError", "internal_error", "a worker made a mistake", "")


class _Handed:
    """The keys that the proxy has handed over, of one upload."""

    def __init__(self, source: tasks.Source) -> None:
        self._keys = {
            (upload, version): SpoolKey(key, upload=upload, version=version)
            for upload, version, key in source.keys
        }

    def spool(self, upload: bytes, version: int) -> SpoolKey:
        key = self._keys.get((upload, version))
        if key is None:
            raise KeyMissing("a worker was not handed the key of this upload")
        return key


def _pieces(source: tasks.Source, start: int) -> Iterator[bytes]:
    spool = Spool(Path(source.folder))
    return spool.read(source.upload, _Handed(source), start=start, size=source.size)


class _Upload:
    """An upload whose layout is known from its first bytes."""

    def __init__(self, source: tasks.Source) -> None:
        self._source = source
        start = b""
        for piece in _pieces(source, 0):
            start += piece
            if recognize(start, csv=source.csv, final=False) is not None:
                break
        found = recognize(start, csv=source.csv, final=True)
        assert found is not None
        self.layout, self._begin = found

    def blocks(self, place: Place | None = None) -> Iterator[Sequence[Block | Table]]:
        """All blocks from ``place`` on, or from the first record."""
        begin = place or self._begin
        parser = parser_for(self.layout, begin, schema_named=self._source.named is not None)
        for piece in _pieces(self._source, begin.offset):
            yield parser.feed(piece)
        yield parser.finish()


def check(request: tasks.Check) -> tasks.Found:
    """The first pass over an upload. Definitions are asked for as records name their schemas."""
    source = request.source
    upload = _Upload(source)
    known: list[bytes] = []

    def lookup(schema: bytes) -> SchemaDefinition:
        found = pipes.asked(tasks.Wanted(schema))
        assert isinstance(found, tasks.Definition)
        if found.text is None:
            raise NotFound("there is no such schema, or none that you can reach")
        definition = parse_definition(found.text)
        if isinstance(upload.layout, Header):
            check_columns(upload.layout.names, definition)
        known.append(schema)
        return definition

    schemas = Schemas(lookup, named=source.named, own_hosts=source.own_hosts)
    checker = Checker(schemas, text=source.csv)
    last = time.monotonic()
    for blocks in upload.blocks():
        checker.take(blocks)
        if time.monotonic() - last > COUNT_SECONDS:
            last = time.monotonic()
            pipes.write(tasks.Counted(checker.findings.rows))
    found = checker.finish()
    return tasks.Found(
        rows=found.rows,
        flawed=found.flawed,
        flaws_total=found.flaws_total,
        flaws=found.flaws,
        chunks=[
            tasks.ChunkAt(number, one.place.offset, one.place.row, one.first, one.last)
            for number, one in enumerate(found.chunks)
        ],
        schemas=known,
    )


def seal(request: tasks.Seal) -> tasks.Sealed:
    """One chunk's good rows as a part per schema, in new groups under new record ids."""
    keys = {one.schema: one for one in request.schemas}
    definitions = {one.schema: parse_definition(one.definition) for one in request.schemas}
    schemas = Schemas(definitions.__getitem__, named=request.source.named)
    blocks = _blocks(request.source, request.chunk)
    gathered = gather(schemas, blocks, text=request.source.csv)
    return tasks.Sealed([_part(request, keys[schema], some) for schema, some in gathered.items()])


def _blocks(source: tasks.Source, chunk: tasks.ChunkAt) -> Iterator[Block | Table]:
    """Exactly the chunk's rows."""
    for blocks in _Upload(source).blocks(Place(chunk.offset, chunk.row)):
        for block in blocks:
            if block.place.row > chunk.last:
                return
            part = block.part(chunk.first, chunk.last)
            if part.count:
                yield part


def _part(
    request: tasks.Seal,
    keys: tasks.SchemaKeyBytes,
    records: Columns,
) -> tasks.SealedPart:
    place = {"organization": keys.organization, "schema": keys.schema}
    definition = records.definition
    sealed = seal_columns(
        SchemaKey(keys.key, version=keys.key_version, **place),
        SchemaKey(keys.tails, version=keys.tails_version, **place),
        definition,
        [(ids.new_id(), 1) for _ in range(records.count)],
        records.values,
    )
    groups, segments = [sealed.group], [sealed.built.segment]
    part = Part(request.staging, request.chunk.number, definition.digest, groups, segments)
    upload = PartUpload(part, (sealed.batch,), sealed.built.pages)
    return tasks.SealedPart(
        schema=keys.schema,
        body=b"".join(wire.encode_part(upload)),
        digest=wire.part_digest(upload.rows, upload.pages),
        groups=groups,
        segments=segments,
    )


if __name__ == "__main__":
    main()
