"""A worker's part of packing: the rows of many chunks as one segment.

It takes each chunk as soon as it is sealed, while others are still: its group, and its sorted
columns from who has sealed it; where these are not at hand, it reads the rows from the upload once
more. Memory does not grow with the chunks: the sorted columns of each, and what becomes pages, lie
in a file without a name (:mod:`.page_spool`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.segments.sorted_runs import Blocks, RunMerger, cut_columns
from encrypted_records.ingest.check import RecordColumns
from encrypted_records.ingest.seal import build_columns
from encrypted_records.model import wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import Group, Part, PartUpload, Segment
from encrypted_records.proxy.spool import damaged
from encrypted_records.proxy.workers import messages, pipe
from encrypted_records.proxy.workers.page_spool import SpooledContents
from encrypted_records.proxy.workers.upload_rows import gather_chunk


def pack(task: messages.PackTask) -> messages.PackedChunks:
    """Build one segment for each schema that has groups; its pages are sent before this returns.

    Raises:
        DoesNotOpen: ``spool_damaged``; the upload cannot be decrypted, or its rows have changed.
        OutOfSpace, Unavailable: the disk has no room for it, or fails.
    """
    contents = SpooledContents(Path(task.folder), task.keep_free, "packing a job's index")
    packers = {schema.schema: _Packer(task, schema, contents) for schema in task.schemas}
    for chunk, fates in zip(task.chunks, task.fates, strict=True):
        told = pipe.ask(messages.GroupsRequest(chunk.number))
        assert isinstance(told, messages.GroupsReply)
        groups = {group.schema: group.group for group in told.groups if not group.runs}
        for named in told.groups:
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


class _Packer:
    """The segment of one schema in the making."""

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
            DoesNotOpen: ``spool_damaged``; they are not as many as the group has.
        """
        if records.count != group.count:
            raise damaged("it has other rows than were encrypted")
        columns = build_columns(self._tails, self._definition, group, records.values)
        self.add(group, cut_columns(self._definition, columns))

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
