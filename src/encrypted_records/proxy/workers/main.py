"""A worker process: parses, checks, seals and merges for the proxy, on another core.

It reads tasks from its stdin and writes results to its stdout (:mod:`.messages`). Its log goes to
its stderr, but nothing that a library prints. When the proxy ends, stdin closes and the worker
ends, too. A worker knows only what a task contains: it has no environment, opens no connection, and
reads no file but the sealed upload of the task.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from contextlib import nullcontext
from dataclasses import replace

from encrypted_records import logs, runtime
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.crypto.sealing import seal_group
from encrypted_records.errors import ErsError, NotFound
from encrypted_records.index.segments.sorted_runs import Blocks, cut_columns
from encrypted_records.ingest.check import STANDARD, Checker, RecordColumns, SchemaLookup
from encrypted_records.ingest.layouts import GROWTH
from encrypted_records.ingest.parsing import Header, check_columns
from encrypted_records.ingest.reading.parser import CellCounts, check_fields
from encrypted_records.ingest.reading.recipe import read_recipe
from encrypted_records.ingest.seal import build_columns, seal_columns
from encrypted_records.model import ids, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.record_formats import Format
from encrypted_records.model.records import Page, Part, PartUpload, Segment, SegmentHeader
from encrypted_records.proxy.process import harden
from encrypted_records.proxy.workers import messages
from encrypted_records.proxy.workers.segments import merge, pack, rebuild, reseal
from encrypted_records.proxy.workers.uploads import (
    UploadReader,
    answer_of,
    gather_chunk,
    keys_by_row,
)

log = logging.getLogger(__name__)

#: Seconds between two counts of checked rows.
COUNT_SECONDS = 0.25


def main() -> None:
    """Do tasks until stdin ends."""
    harden()  # tasks contain keys
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the proxy, which ends its workers
    handler = logging.StreamHandler(messages.separate_output())
    handler.setFormatter(logs.formatter("text"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logs.log_uncaught()
    # Records are many objects without cycles; the search for cycles took a tenth of the time.
    gc.freeze()
    gc.set_threshold(200_000, 20, 20)
    try:
        while (task := messages.read_message()) is not None:
            _run(task)
    except BrokenPipeError:
        pass  # the proxy has ended
    except Exception as error:
        log.exception("unexpected %s between tasks of a worker", type(error).__name__)
        raise SystemExit(1) from None


def _run(task: messages.ToWorker) -> None:
    """Do a task and write its result, or the error."""
    try:
        # Within the try: a result that cannot be encoded fails its task, and not the process.
        with messages.limited() if _is_limited(task) else nullcontext():
            messages.write_message(_result(task))
    except ErsError as error:
        messages.write_message(messages.Failed.of(error))
    except BrokenPipeError:
        raise
    except MemoryError:
        if isinstance(task, messages.SampleTask):
            os.abort()  # the proxy then reports which task took too much
        # The proxy tries again later, in a new process.
        log.error("a worker process has no memory left")  # noqa: TRY400 - its text quotes nothing
        raise SystemExit(1) from None
    except Exception as error:
        # The log gets the type and the traceback; the text of the error may quote a record.
        log.exception("unexpected %s in a worker", type(error).__name__)
        messages.write_message(
            messages.Failed(
                ErsError.code, ErsError.code, "an internal error occurred in a worker", ""
            )
        )


def _is_limited(task: messages.ToWorker) -> bool:
    """Whether a task reads a file that may unfold to more than fits into memory."""
    if isinstance(task, messages.CheckTask | messages.KeysTask | messages.SealTask):
        return task.source.reading is not None and read_recipe(task.source.reading).is_read_whole
    return isinstance(task, messages.SampleTask)


def _result(task: messages.ToWorker) -> messages.Result:
    match task:
        case messages.CheckTask():
            return check(task)
        case messages.KeysTask():
            return list_keys(task)
        case messages.SealTask():
            return seal(task)
        case messages.PackTask():
            return pack(task)
        case messages.ResealTask():
            return reseal(task)
        case messages.MergeTask():
            return merge(task)
        case messages.RebuildTask():
            return rebuild(task)
        case (
            messages.InferTask()
            | messages.DetectTask()
            | messages.PreviewTask()
            | messages.EstimateTask()
        ):
            return messages.JsonResult(answer_of(task))
    raise TypeError("a reply came instead of a task")


def check(task: messages.CheckTask) -> messages.CheckReport:
    """The first pass over an upload. It requests each definition when a record names its schema."""
    source = task.source
    upload = UploadReader(source)

    def definition_of(schema: bytes) -> SchemaDefinition:
        reply = messages.ask_proxy(messages.DefinitionRequest(schema))
        assert isinstance(reply, messages.DefinitionReply)
        if reply.text is None:
            raise NotFound("there is no such schema, or none that you can reach")
        definition = parse_canonical(reply.text)
        if isinstance(upload.layout, Header):
            check_columns(upload.layout.names, definition)
        if upload.reading is not None:
            check_fields(upload.reading, list(definition.fields), sorted(definition.required))
        return upload.as_read(definition)

    schemas = SchemaLookup(definition_of, named=source.named, own_hosts=source.own_hosts)
    checker = Checker(
        schemas,
        text=source.kind is Format.CSV,
        # The converted text, which may be longer, has to fit into a part.
        limits=replace(STANDARD, text_bytes=STANDARD.text_bytes // GROWTH)
        if source.charset or source.reading
        else STANDARD,
    )
    last = runtime.monotonic()
    tally = CellCounts()
    for blocks in upload.blocks(tally=tally):
        checker.take(blocks)
        if runtime.monotonic() - last > COUNT_SECONDS:
            last = runtime.monotonic()
            messages.write_message(messages.RowCount(checker.findings.rows))
    findings = checker.finish()
    return messages.CheckReport(
        rows=findings.rows,
        bad_rows=findings.bad_rows,
        errors=findings.errors,
        examples=findings.examples,
        rounded=dict(findings.rounded),
        reading=None if upload.reading is None else tally.as_json(upload.reading, findings.rows),
        chunks=[
            messages.ChunkAt(number, chunk.start.offset, chunk.start.row, chunk.first, chunk.last)
            for number, chunk in enumerate(findings.chunks)
        ],
    )


def list_keys(task: messages.KeysTask) -> messages.ChunkKeys:
    """The index keys of some fields of one chunk's good rows."""
    schemas = {
        schema.schema: (schema, fields)
        for schema, fields in zip(task.schemas, task.fields, strict=True)
    }
    gathered = gather_chunk(task.source, task.chunk, task.schemas)
    return messages.ChunkKeys(
        [
            keys_by_row(*schemas[schema], records)
            for schema, records in gathered.items()
            if schemas[schema][1]
        ]
    )


def seal(task: messages.SealTask) -> messages.SealedChunk:
    """Encrypt the good rows of a chunk, as one part for each schema, in new groups. Records that
    replace no other have new ids.
    """
    keys = {schema.schema: schema for schema in task.schemas}
    fates = {fate.schema: fate for fate in task.fates}
    parts: list[messages.SealedPart] = []
    for schema, every in gather_chunk(task.source, task.chunk, task.schemas).items():
        fate = fates.get(schema, messages.Fate(schema, [], [], None))
        records = every.without(frozenset(fate.left_out))
        if records.count:
            parts.append(_part(task, keys[schema], records, fate))
    return messages.SealedChunk(parts)


def _part(
    task: messages.SealTask,
    keys: messages.SchemaKeyBytes,
    records: RecordColumns,
    fate: messages.Fate,
) -> messages.SealedPart:
    replaced = {row: (record, version + 1) for row, record, version in fate.replaced}
    scope = {"organization": keys.organization, "schema": keys.schema}
    key = SchemaKey(keys.key, version=keys.key_version, **scope)
    tails = SchemaKey(keys.tails, version=keys.tails_version, **scope)
    definition = records.definition
    identities = [(new, 1) for new in ids.new_record_ids(records.count)]
    if replaced:
        pairs = zip(records.rows, identities, strict=True)
        identities = [replaced.get(row, fresh) for row, fresh in pairs]
    number = task.chunk.number
    segments: list[Segment] = []
    pages: tuple[Page, ...] = ()
    headers: tuple[SegmentHeader, ...] = ()
    if task.indexed:
        sealed = seal_columns(
            key,
            tails,
            definition,
            identities,
            records.values,
            origin=task.staging + number.to_bytes(4, "big"),
            before=fate.before,
        )
        group, batch, salt = sealed.group, sealed.batch, sealed.salt
        segments, headers = [sealed.built.segment], (sealed.built.header,)
        pages = sealed.built.pages
    else:
        group, batch, salt = seal_group(key, definition, identities, records.values, fate.before)
    runs: list[Blocks] = []
    if task.sorted:
        runs = list(
            cut_columns(definition, build_columns(tails, definition, group, records.values))
        )
    part = Part(task.staging, number, definition.digest, [group], segments, 0)
    body = b"".join(wire.encode_part(PartUpload(part, (batch,), pages, (salt,), headers)))
    return messages.SealedPart(keys.schema, memoryview(body), [group], segments, runs=runs)


if __name__ == "__main__":
    main()
