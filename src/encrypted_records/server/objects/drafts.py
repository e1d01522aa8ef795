"""Parts, divided into objects and rows small enough for the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from encrypted_records.model.records import Page
from encrypted_records.server.objects import choice, layout, objects
from encrypted_records.server.objects.layout import RowObject
from encrypted_records.server.records import store
from encrypted_records.server.records.bindings import BoundPart, PackedBatch
from encrypted_records.server.records.bulk_tables import PagePart, RowPart

_CHANGED = store.RowTable(
    "COPY changed_row (group_id, ordinal, record_id, version) FROM STDIN (FORMAT BINARY)",
    ("int8", "int8", "bytea", "int8"),
    "INSERT INTO changed_row (group_id, ordinal, record_id, version) VALUES (%s, %s, %s, %s)",
)


@dataclass(frozen=True)
class _PageObject:
    segment: bytes
    first: int
    count: int
    page_bytes: int
    digests: bytes
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class CommitDraft:
    """``batches`` and ``pages`` (with their digests) are for the database, all else is for objects;
    ``changed`` are those of the objects' rows whose version is above 1: uid of the group, ordinal,
    id and version."""

    batches: list[PackedBatch]
    pages: list[tuple[Page, bytes]]
    changed: list[tuple[bytes, int, bytes, int]]
    _rows: list[tuple[bytes, RowObject]]
    _pages: list[_PageObject]

    @property
    def contents(self) -> list[bytes]:
        """The bytes of each object."""
        return [part.data for _, part in self._rows] + [page.data for page in self._pages]

    def enter(
        self, numbers: Sequence[int], groups: Mapping[bytes, int], segments: Mapping[bytes, int]
    ) -> None:
        """Take the written objects over, in the transaction of their part.

        Args:
            numbers: of the objects, in the order of ``contents``.
            groups, segments: their numbers in the database, by uid.

        Raises:
            django.db.IntegrityError: rows or pages that begin there are stored already.
            StoreUnavailable: writing them took too long.
        """
        if not numbers:
            return
        objects.take_over(numbers)
        RowPart.objects.bulk_create(
            RowPart(
                group_id=groups[group],
                first=rows.first,
                count=rows.count,
                object_id=number,
                blocks=rows.entries,
                first_id=rows.first_id,
                last_id=rows.last_id,
            )
            for number, (group, rows) in zip(numbers, self._rows, strict=False)
        )
        PagePart.objects.bulk_create(
            PagePart(
                segment_id=segments[pages.segment],
                first=pages.first,
                count=pages.count,
                object_id=number,
                page_bytes=pages.page_bytes,
                digests=pages.digests,
            )
            for number, pages in zip(numbers[len(self._rows) :], self._pages, strict=True)
        )
        store.insert(_CHANGED, ((groups[group], *row) for group, *row in self.changed))


def of_rows(
    group: bytes, made: Sequence[RowObject], changed: Sequence[tuple[bytes, int, bytes, int]]
) -> CommitDraft:
    """A draft of objects of a group alone.

    Args:
        changed: as of :class:`CommitDraft`.
    """
    return CommitDraft([], [], list(changed), [(group, part) for part in made], [])


def divide(bound: BoundPart, pages: Sequence[Page]) -> CommitDraft:
    """Divide a part by how much it brings of each group and segment."""
    chosen = choice.chosen()
    draft = CommitDraft([], [], [], [], [])
    for batch in bound.batches:
        packed = sum(len(row[2]) for row in batch.rows if row is not None)
        if chosen.store is None or packed < chosen.least:
            draft.batches.append(batch)
            continue
        draft._rows.extend(
            (batch.group, stored)
            for stored in layout.row_objects(batch.group, batch.first, batch.rows, batch.digests)
        )
        draft.changed.extend(
            (batch.group, ordinal, row[0], row[1])
            for ordinal, row in enumerate(batch.rows, batch.first)
            if row is not None and row[1] > 1
        )
    with_digests = zip(pages, bound.pages, strict=True)
    for segment, own in groupby(with_digests, lambda paired: paired[0].segment):
        some = list(own)
        size = sum(len(page.data) for page, _ in some)
        if chosen.store is None or size < chosen.least:
            draft.pages.extend(some)
        else:
            draft._pages.extend(_page_objects(segment, some))
    return draft


def _page_objects(segment: bytes, pages: Sequence[tuple[Page, bytes]]) -> Iterator[_PageObject]:
    digest_of = {page.number: digest for page, digest in pages}
    for first, run in layout.cut_pages((page.number, page.data) for page, _ in pages):
        yield _PageObject(
            segment,
            first,
            len(run),
            len(run[0]),
            b"".join([digest_of[first + at] for at in range(len(run))]),
            layout.page_object(segment, first, run),
        )
