"""A worker's part of building an index again: rows opened, compared with what was signed, and
indexed where they lie (docs/SPEC.md, section 6.4).

Memory does not grow with the segment, as when one is packed: a few MiB of rows are here at a time,
and sorted columns lie in a file without a name (:mod:`.page_spool`).
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.segments.sorted_runs import RunMerger
from encrypted_records.ingest.seal import build_columns
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import Group
from encrypted_records.proxy.workers import messages, pipe
from encrypted_records.proxy.workers.page_spool import SpooledContents
from encrypted_records.proxy.workers.reseal import Change, open_sources


def rebuild(task: messages.RebuildTask) -> messages.MergedSegment:
    """One segment for the live rows of the task's groups; its pages are sent before this returns.

    Raises:
        Altered: a row is not the one that was stored.
        DoesNotOpen: a row was altered or belongs elsewhere, or the API gave others than those that
            it was asked for.
        OutOfSpace, Unavailable: the disk has no room for it, or fails.
    """
    scope = {"organization": task.organization, "schema": task.schema}
    keys = {version: SchemaKey(key, version=version, **scope) for version, key in task.keys}
    definition = parse_canonical(task.definition)
    every = {one.digest: one for one in map(parse_canonical, task.earlier)}
    change = Change(definition, definition, ())
    contents = SpooledContents(Path(task.folder), task.keep_free, "building an index again")
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
