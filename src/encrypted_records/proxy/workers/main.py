"""A worker process: parses, checks, seals and merges for the proxy, on a core of its own.

It reads tasks from its stdin and writes results to its stdout (:mod:`.messages`). When the proxy
ends, stdin closes and the worker ends, too. A worker knows only what a task contains: it has no
environment, opens no connection, and reads no file but the sealed upload of the task.
"""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from encrypted_records import logs
from encrypted_records.crypto.keys import SchemaKey, SpoolKey
from encrypted_records.errors import ErsError, KeyMissing, NotFound
from encrypted_records.ingest.blocks import RecordBlock, RecordStart, Table
from encrypted_records.ingest.charsets import GROWTH, settle
from encrypted_records.ingest.check import STANDARD, Checker, SchemaLookup, gather
from encrypted_records.ingest.layouts import Layout, parser_for, recognize
from encrypted_records.ingest.parse_csv import Header, check_columns
from encrypted_records.ingest.seal import seal_columns
from encrypted_records.ingest.tables import Columns
from encrypted_records.model import ids, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.media_types import Format
from encrypted_records.model.records import Part, PartUpload
from encrypted_records.proxy.process.hardening import harden
from encrypted_records.proxy.spool.spool import Spool
from encrypted_records.proxy.workers import messages, pipe
from encrypted_records.proxy.workers.keys import keys_by_row
from encrypted_records.proxy.workers.merge import merge
from encrypted_records.proxy.workers.reseal import reseal
from encrypted_records.proxy.workers.samples import estimate_of, preview_of, proposal_of

log = logging.getLogger(__name__)

#: Seconds between two counts of checked rows.
COUNT_SECONDS = 0.25


def main() -> None:
    """Do tasks until stdin ends."""
    harden()  # tasks contain keys
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the proxy, which ends its workers
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter("text"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Records are many objects without cycles; the search for cycles took a tenth of the time.
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    try:
        while (task := pipe.read()) is not None:
            pipe.write(_run(task))
    except BrokenPipeError:
        pass  # the proxy has ended


def _run(task: messages.ToWorker) -> messages.Result | messages.Failed:
    try:
        match task:
            case messages.CheckTask():
                return check(task)
            case messages.KeysTask():
                return list_keys(task)
            case messages.SealTask():
                return seal(task)
            case messages.ResealTask():
                return reseal(task)
            case messages.MergeTask():
                return merge(task)
            case messages.InferTask(sample, kind, choices):
                return messages.JsonResult(proposal_of(sample, kind, choices))
            case messages.PreviewTask(definition, sample, kind, shown):
                return messages.JsonResult(preview_of(definition, sample, kind, shown))
            case messages.EstimateTask(definition, records, string_bytes, sample, kind):
                return messages.JsonResult(
                    estimate_of(definition, records, string_bytes, sample, kind)
                )
        raise TypeError("a reply came instead of a task")
    except ErsError as error:
        return messages.Failed.of(error)
    except BrokenPipeError:
        raise
    except Exception as error:
        # The log gets the type and the traceback; the text of the error may quote a record.
        log.exception("unexpected %s in a worker", type(error).__name__)
        return messages.Failed(ErsError.code, ErsError.code, "a worker made a mistake", "")


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
            raise KeyMissing("a worker did not get the key of this upload")
        return key


def _pieces(source: messages.UploadSource, offset: int) -> Iterator[bytes]:
    spool = Spool(Path(source.folder))
    return spool.read(source.upload, _SpoolKeys(source), start=offset, size=source.size)


class _UploadReader:
    """An upload whose layout is known from its first bytes."""

    def __init__(self, source: messages.UploadSource) -> None:
        self._source = source
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
        return recognize(start, source.kind, final=final, charset=source.charset)

    def blocks(self, start: RecordStart | None = None) -> Iterator[Sequence[RecordBlock | Table]]:
        """All blocks from ``start`` on, or from the first record."""
        begin = start or self._first
        parser = parser_for(
            self.layout,
            begin,
            schema_named=self._source.named is not None,
            charset=self._charset,
        )
        for piece in _pieces(self._source, begin.offset):
            yield parser.feed(piece)
        yield parser.finish()


def check(task: messages.CheckTask) -> messages.CheckReport:
    """The first pass over an upload. It requests each definition when a record names its schema."""
    source = task.source
    upload = _UploadReader(source)

    def definition_of(schema: bytes) -> SchemaDefinition:
        reply = pipe.ask(messages.DefinitionRequest(schema))
        assert isinstance(reply, messages.DefinitionReply)
        if reply.text is None:
            raise NotFound("there is no such schema, or none that you can reach")
        definition = parse_canonical(reply.text)
        if isinstance(upload.layout, Header):
            check_columns(upload.layout.names, definition)
        return definition

    schemas = SchemaLookup(definition_of, named=source.named, own_hosts=source.own_hosts)
    checker = Checker(
        schemas,
        text=source.kind is Format.CSV,
        # What it becomes is what has to fit into a part.
        limits=replace(STANDARD, text_bytes=STANDARD.text_bytes // GROWTH)
        if source.charset
        else STANDARD,
    )
    last = time.monotonic()
    for blocks in upload.blocks():
        checker.take(blocks)
        if time.monotonic() - last > COUNT_SECONDS:
            last = time.monotonic()
            pipe.write(messages.RowCount(checker.findings.rows))
    findings = checker.finish()
    return messages.CheckReport(
        rows=findings.rows,
        bad_rows=findings.bad_rows,
        errors=findings.errors,
        examples=findings.examples,
        chunks=[
            messages.ChunkAt(number, chunk.start.offset, chunk.start.row, chunk.first, chunk.last)
            for number, chunk in enumerate(findings.chunks)
        ],
    )


def list_keys(task: messages.KeysTask) -> messages.ChunkKeys:
    """The index keys of some fields of one chunk's good rows."""
    schemas = {one.schema: (one, own) for one, own in zip(task.schemas, task.fields, strict=True)}
    gathered = _gather(task)
    return messages.ChunkKeys(
        [
            keys_by_row(*schemas[schema], records)
            for schema, records in gathered.items()
            if schemas[schema][1]
        ]
    )


def _gather(task: messages.KeysTask | messages.SealTask) -> dict[bytes, Columns]:
    """The chunk's good rows by schema."""
    definitions = {schema.schema: parse_canonical(schema.definition) for schema in task.schemas}
    # As in the check: a reference that it took and this one does not would lose its record.
    source = task.source
    schemas = SchemaLookup(definitions.__getitem__, named=source.named, own_hosts=source.own_hosts)
    blocks = _blocks_of(task.source, task.chunk)
    return gather(schemas, blocks, text=task.source.kind is Format.CSV)


def seal(task: messages.SealTask) -> messages.SealedChunk:
    """One chunk's good rows as a part per schema, in new groups; records that they do not replace
    have new ids."""
    keys = {schema.schema: schema for schema in task.schemas}
    fates = {fate.schema: fate for fate in task.fates}
    parts: list[messages.SealedPart] = []
    for schema, every in _gather(task).items():
        fate = fates.get(schema, messages.Fate(schema, [], [], None))
        records = every.without(frozenset(fate.left_out))
        if records.count:
            parts.append(_part(task, keys[schema], records, fate))
    return messages.SealedChunk(parts)


def _blocks_of(
    source: messages.UploadSource, chunk: messages.ChunkAt
) -> Iterator[RecordBlock | Table]:
    """Exactly the chunk's rows."""
    for blocks in _UploadReader(source).blocks(RecordStart(chunk.offset, chunk.row)):
        for block in blocks:
            if block.start.row > chunk.last:
                return
            part = block.part(chunk.first, chunk.last)
            if part.count:
                yield part


def _part(
    task: messages.SealTask,
    keys: messages.SchemaKeyBytes,
    records: Columns,
    fate: messages.Fate,
) -> messages.SealedPart:
    replaced = {row: (record, version + 1) for row, record, version in fate.replaced}
    scope = {"organization": keys.organization, "schema": keys.schema}
    definition = records.definition
    fresh = ids.new_record_ids(len(records.rows))
    sealed = seal_columns(
        SchemaKey(keys.key, version=keys.key_version, **scope),
        SchemaKey(keys.tails, version=keys.tails_version, **scope),
        definition,
        [replaced.get(row) or (new, 1) for row, new in zip(records.rows, fresh, strict=True)],
        records.values,
        origin=task.staging + task.chunk.number.to_bytes(4, "big"),
        before=fate.before,
    )
    groups, segments = [sealed.group], [sealed.built.segment]
    part = Part(task.staging, task.chunk.number, definition.digest, groups, segments, 0)
    built = sealed.built
    upload = PartUpload(part, (sealed.batch,), built.pages, (sealed.salt,), (built.header,))
    return messages.SealedPart(
        schema=keys.schema,
        body=b"".join(wire.encode_part(upload)),
        groups=groups,
        segments=segments,
    )


if __name__ == "__main__":
    main()
