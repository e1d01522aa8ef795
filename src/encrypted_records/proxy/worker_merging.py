"""A worker's share of a merge: open the inputs' pages, build the new segment, seal its pages.

A million rows take hundreds of MiB and seconds of a core, which the proxy has better uses for. Of
the inputs, no more pages are here than those of one column; sealed pages come and go in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.merge import Merge
from encrypted_records.index.paged import Opened, PagedSegment
from encrypted_records.index.segments import OpenSegment
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import Page, PageRef
from encrypted_records.proxy import pipes, tasks


def merge(request: tasks.Merge) -> tasks.Merged:
    """One segment for the live rows of the inputs; its pages go to the proxy before this returns.

    Raises:
        DoesNotOpen: a page of an input does not open.
    """
    definition = parse_definition(request.definition)
    place = {"organization": request.organization, "schema": request.schema}
    keys = {version: SchemaKey(key, version=version, **place) for version, key in request.keys}
    minis = _minis(request)
    inputs: list[Opened] = [
        PagedSegment(keys[one.key_version], definition, one)
        if one.form == "paged"
        else OpenSegment(keys[one.key_version], definition, one, next(minis))
        for one in request.inputs
    ]
    dead = [BitMap.deserialize(one) for one in request.dead]
    merging = Merge(keys[request.version], definition, inputs, dead)
    paged = [one for one in inputs if isinstance(one, PagedSegment)]
    for name in merging.fields:
        _fill(paged, name, request.most)
        merging.take(name)
        for one in paged:
            one.blocks.clear()
    segment, pages = merging.sealed()
    while some := list(islice(pages, request.most)):
        pipes.write(tasks.Piece(segment, some))
    return tasks.Merged(segment)


def _minis(request: tasks.Merge) -> Iterator[Page]:
    refs = [PageRef(one.uid, 0) for one in request.inputs if one.form == "mini"]
    return _fetched(refs, request.most)


def _fill(segments: Sequence[PagedSegment], name: str, most: int) -> None:
    """Bring the pages of one column of all segments: directories first, which tell the others."""
    by_uid = {one.segment.uid: one for one in segments}
    while refs := [
        PageRef(uid, number)
        for uid, one in by_uid.items()
        for number in sorted(one.missing_columns([name]))
    ]:
        for page in _fetched(refs, most):
            by_uid[page.segment].put(page.number, page.data)


def _fetched(refs: Sequence[PageRef], most: int) -> Iterator[Page]:
    for at in range(0, len(refs), most):
        some = list(refs[at : at + most])
        reply = pipes.asked(tasks.Fetch(some))
        assert isinstance(reply, tasks.Fetched)
        for ref, data in zip(some, reply.data, strict=True):
            yield Page(ref.segment, ref.number, data)
