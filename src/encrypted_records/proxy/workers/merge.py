"""A worker's part of a merge: open the inputs' pages, build the new segment, seal its pages.

A million rows take hundreds of MiB and seconds of one core, which would block the proxy. Of the
inputs, only the pages of one column are in memory at a time; sealed pages are sent in groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.segments.merge import SegmentMerger
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.model.definition_history import DefinitionHistory
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.digests import check_page
from encrypted_records.model.records import Page, PageRef, Segment, SegmentHeader
from encrypted_records.proxy.workers import messages, pipe


def merge(task: messages.MergeTask) -> messages.MergedSegment:
    """One segment for the live rows of the inputs; its pages are sent before this returns.

    Raises:
        DoesNotOpen: a page of an input does not open.
        Altered: one is not the one that was stored.
    """
    definition = parse_canonical(task.definition)
    every = [parse_canonical(text) for text in task.earlier]
    by_digest = {one.digest: one for one in every}
    history = DefinitionHistory(definition, by_digest, frozenset())
    scope = {"organization": task.organization, "schema": task.schema}
    keys = {version: SchemaKey(key, version=version, **scope) for version, key in task.keys}
    digests = {one.uid: own for one, own in zip(task.inputs, task.digests, strict=True)}
    minis = _mini_pages(task, digests)
    inputs: list[OpenedSegment] = [
        _open(keys[segment.key_version], history, segment, header, minis)
        for segment, header in zip(task.inputs, task.headers, strict=True)
    ]
    dead = [BitMap.deserialize(bitmap) for bitmap in task.dead]
    merging = SegmentMerger(
        keys[task.version], definition, inputs, task.groups, dead, compared=history.compared
    )
    paged = [opened for opened in inputs if isinstance(opened, PagedSegment)]
    for name in merging.fields:
        _fill(paged, name, task.most, digests)
        merging.take(name)
        for opened in paged:
            opened.blocks.clear()
    sealed = merging.seal()
    while some := list(islice(sealed.pages, task.most)):
        pipe.write(messages.MergedPages(sealed.segment, sealed.header, some))
    return messages.MergedSegment(sealed.segment, sealed.header)


def _open(
    key: SchemaKey,
    history: DefinitionHistory,
    segment: Segment,
    header: SegmentHeader,
    minis: Iterator[Page],
) -> OpenedSegment:
    made = history.of(segment.definition)
    if segment.form == "paged":
        return PagedSegment(key, history.compared, segment, header, made=made)
    return MiniSegment(key, history.compared, segment, header, next(minis), made)


def _mini_pages(task: messages.MergeTask, digests: Mapping[bytes, bytes]) -> Iterator[Page]:
    refs = [PageRef(segment.uid, 0) for segment in task.inputs if segment.form == "mini"]
    return _fetch(refs, task.most, digests)


def _fill(
    segments: Sequence[PagedSegment], name: str, most: int, digests: Mapping[bytes, bytes]
) -> None:
    """Fetch the pages of one column of all segments: directories first, which name the others."""
    by_uid = {opened.segment.uid: opened for opened in segments}
    while refs := [
        PageRef(uid, number)
        for uid, opened in by_uid.items()
        for number in sorted(opened.missing_columns([name]))
    ]:
        for page in _fetch(refs, most, digests):
            by_uid[page.segment].put(page.number, page.data)


def _fetch(refs: Sequence[PageRef], most: int, digests: Mapping[bytes, bytes]) -> Iterator[Page]:
    """
    Raises:
        Altered: a page is not the one that was stored: what it says must not be sealed again.
    """
    for begin in range(0, len(refs), most):
        some = list(refs[begin : begin + most])
        reply = pipe.ask(messages.PagesRequest(some))
        assert isinstance(reply, messages.PagesReply)
        for ref, data in zip(some, reply.data, strict=True):
            check_page(ref.segment, ref.number, data, digests[ref.segment])
            yield Page(ref.segment, ref.number, data)
