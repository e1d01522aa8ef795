"""A worker's part of packing: the rows of many chunks, which are sealed already, as one segment.

It reads the rows from the upload once more, and takes their groups as they were sealed. Memory does
not grow with the chunks: the sorted columns of each, and what becomes pages, lie in a file without
a name (:mod:`.page_spool`).
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.segments.sorted_runs import RunMerger
from encrypted_records.ingest.seal import build_columns
from encrypted_records.ingest.tables import Columns
from encrypted_records.model import wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import Group, Part, PartUpload, Segment
from encrypted_records.proxy.spool.files import damaged
from encrypted_records.proxy.workers import messages, pipe
from encrypted_records.proxy.workers.page_spool import SpooledContents
from encrypted_records.proxy.workers.upload_rows import gather_chunk


def pack(task: messages.PackTask) -> messages.PackedChunks:
    """One segment for each schema that has groups; its pages are sent before this returns.

    Raises:
        DoesNotOpen: ``spool_damaged``; the upload does not open, or has other rows by now.
        OutOfSpace, Unavailable: the disk has no room for it, or fails.
    """
    contents = SpooledContents(Path(task.folder), task.keep_free, "packing a job's index")
    wanted = {one.schema for one in task.groups}
    packers = {one.schema: _Packer(task, one, contents) for one in task.schemas}
    groups = {(one.chunk, one.schema): one.group for one in task.groups}
    for chunk, fates in zip(task.chunks, task.fates, strict=True):
        left_out = {fate.schema: frozenset(fate.left_out) for fate in fates}
        for schema, records in gather_chunk(task.source, chunk, task.schemas).items():
            group = groups.pop((chunk.number, schema), None)
            if group is not None:
                packers[schema].add(group, records.without(left_out.get(schema, frozenset())))
    if groups:
        raise damaged("it has fewer rows than were sealed of it")
    return messages.PackedChunks(
        [(schema, packers[schema].send()) for schema in packers if schema in wanted]
    )


class _Packer:
    """What becomes the segment of one schema."""

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

    def add(self, group: Group, records: Columns) -> None:
        """
        Raises:
            DoesNotOpen: ``spool_damaged``; they are not as many as the group has.
        """
        if records.count != group.count:
            raise damaged("it has other rows than were sealed of it")
        columns = build_columns(self._tails, self._definition, group, records.values)
        self._merger.add(group, columns)

    def send(self) -> Segment:
        """The segment, whose pages have gone to the proxy."""
        task, sealed = self._task, self._merger.seal()
        pages = iter(lambda: tuple(islice(sealed.pages, task.most)), ())
        for number, some in enumerate(pages, task.sequence):
            named = (task.staging, number, self._definition.digest)
            upload = PartUpload(
                Part(*named, [], [sealed.segment], 0), pages=some, headers=(sealed.header,)
            )
            body = b"".join(wire.encode_part(upload))
            pipe.write(messages.PackedPages(self._schema, body))
        return sealed.segment
