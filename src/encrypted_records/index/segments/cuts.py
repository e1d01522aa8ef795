"""A column of a new paged segment, cut into contents of pages (docs/SPEC.md, section 6.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from encrypted_records.index.columns import directory, pages, words
from encrypted_records.index.columns.column import Column, EntryBlock
from encrypted_records.index.columns.directory import Directory
from encrypted_records.index.columns.stream_cutter import StreamCutter
from encrypted_records.index.segments.contents import Contents
from encrypted_records.index.segments.headers import PLAIN, WORDS, ColumnKind
from encrypted_records.index.segments.zones import encode_zone
from encrypted_records.model.field_types.base import KeyKind


@dataclass(frozen=True, slots=True)
class Cut:
    """``first`` is the number of the first of its contents; ``slots`` is how many pages the column
    accounts for, ``directory_pages`` how many of these are its directory's."""

    name: str
    first: int
    directory: Directory
    directory_pages: int
    slots: int
    zone: bytes
    made: ColumnKind

    @property
    def contents(self) -> range:
        """The numbers of its contents."""
        return range(self.first, self.first + len(self.directory.ends))


def cut(
    name: str, column: Column, kind: KeyKind, contents: Contents, *, packed: bool, most: int
) -> Cut:
    """Add a column that is in memory to ``contents``.

    Args:
        most: entries that a page may hold, however many would fit.
    """
    made: ColumnKind = PLAIN
    rows = len(column.ordinals)
    if kind is KeyKind.WORDS:
        # What follows from lengths alone, not how many words there are.
        rows = words.count_entries(column)
        made = (WORDS, rows)
    first, ends = len(contents), []
    for page in pages.cut(column, kind, packed=packed, most=most):
        contents.add(page.content)
        ends.append(page.end)
    built = directory.build(column, ends, rows)
    own, slots = _count_slots(built, kind, rows, packed=packed, most=most)
    zone = encode_zone(column.keys, column.keys, kind)
    return Cut(name, first, built, own, slots, zone, made)


def cut_stream(
    name: str,
    blocks: Iterator[EntryBlock],
    kind: KeyKind,
    contents: Contents,
    *,
    packed: bool,
    most: int,
) -> Cut:
    """Cut a streamed column like :func:`cut`."""
    cutter, counted = StreamCutter(kind, most, packed=packed), _Counted(kind)
    first = len(contents)
    for content in cutter.cut(counted.through(blocks)):
        contents.add(content)
    built = cutter.directory(counted.rows)
    own, slots = _count_slots(built, kind, counted.rows, packed=packed, most=most)
    zone = encode_zone(built.firsts, built.lasts, kind)
    made: ColumnKind = (WORDS, counted.rows) if kind is KeyKind.WORDS else PLAIN
    return Cut(name, first, built, own, slots, zone, made)


class _Counted:
    """Counts on the way how many rows a column has; of words, for how many entries it has room."""

    def __init__(self, kind: KeyKind) -> None:
        self._words = kind is KeyKind.WORDS
        self.rows = 0

    def through(self, blocks: Iterator[EntryBlock]) -> Iterator[EntryBlock]:
        for block in blocks:
            self.rows += words.count_room(block) if self._words else len(block.ordinals)
            yield block


def _count_slots(
    built: Directory, kind: KeyKind, rows: int, *, packed: bool, most: int
) -> tuple[int, int]:
    if packed:
        size = len(directory.encode(built, kind, packed=True))
        own = -(-size // pages.CAPACITY)
        return own, own + len(built.ends)
    planned = directory.count_pages(kind, rows, most)
    return planned.directory, planned.directory + planned.data
