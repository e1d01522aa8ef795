"""The worker's part of a merge: open the inputs' pages, build the new segment, seal its pages.

A merge takes seconds of one core for a million rows, which would block the proxy. Memory does not
grow with the segments: the sealed pages of one input column are in a file, a few of them are open
at a time, and the content of new pages is in another file (:mod:`.page_spool`). Sealed pages are
received and sent in groups. They are requested in the order of their numbers, all of a column
together: requests in key order would reveal that order to the API.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.segments.merge import SegmentMerger
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.paged import MergeInput, PagedSegment
from encrypted_records.model.definition_changes import DefinitionHistory
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.digests import check_page
from encrypted_records.model.records import Page, PageRef, Segment, SegmentHeader
from encrypted_records.proxy.workers import messages, pipe
from encrypted_records.proxy.workers.page_spool import FetchedPages, SpooledContents


def merge(task: messages.MergeTask) -> messages.MergedSegment:
    """Build one segment for the live rows of the inputs; its pages are sent before this returns.

    Raises:
        DoesNotOpen: a page of an input does not open.
        Altered: a page is not the one that was stored.
        OutOfSpace, Unavailable: the disk has no room for the merge, or fails.
    """
    definition = parse_canonical(task.definition)
    every = [parse_canonical(text) for text in task.earlier]
    by_digest = {definition.digest: definition for definition in every}
    history = DefinitionHistory(definition, by_digest, frozenset())
    scope = {"organization": task.organization, "schema": task.schema}
    keys = {version: SchemaKey(key, version=version, **scope) for version, key in task.keys}
    digests = {segment.uid: own for segment, own in zip(task.inputs, task.digests, strict=True)}
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
        pipe.write(messages.MergedPages(sealed.segment, sealed.header, some))
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
        Altered: a page is not the one that was stored: what it says must not be sealed again.
    """
    for begin in range(0, len(refs), most):
        some = list(refs[begin : begin + most])
        reply = pipe.ask(messages.PagesRequest(some))
        assert isinstance(reply, messages.PagesReply)
        for ref, data in zip(some, reply.data, strict=True):
            check_page(ref.segment, ref.number, data, digests[ref.segment])
            yield Page(ref.segment, ref.number, data)
