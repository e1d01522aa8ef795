"""The contents of objects, for readers; rows and pages are addressed as in :mod:`..records.store`,
by (group, ordinal) and (segment, number).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import wraps
from itertools import pairwise
from typing import NamedTuple, ParamSpec, TypeVar

from encrypted_records.errors import ObjectLost
from encrypted_records.model import digests
from encrypted_records.server.db.statements import as_driver_has_it, executed, fetch
from encrypted_records.server.objects import block_cache, choice, layout, stores
from encrypted_records.server.objects.block_cache import Ahead, Spare
from encrypted_records.server.records import store
from encrypted_records.server.records.models import RowPart

Q = ParamSpec("Q")
T = TypeVar("T")

_ENTRY_BYTES = layout.ENTRY_BYTES
#: Number of blocks whose entries are read together if neighbours are read, too; they begin at a
#: multiple of this in their part.
_NEAR = 32
#: Queries for runs and pages. For a run, the entry of its block, which may be read with others.
_ROWS = """
SELECT one, two, p.first, p.count, name, salt,
    substr(blocks, CAST((two - p.first) / {run} * {size} + 1 AS integer), {size})
FROM wanted JOIN row_part p ON p.group_id = one AND p.first <= two AND two < p.first + p.count
    JOIN bulk_object o ON o.id = p.object_id JOIN record_group g ON g.id = one
"""
_PAGES = f"""
SELECT one, two, p.first, p.count, page_bytes, name,
    substr(digests, CAST((two - p.first) * {digests.DIGEST} + 1 AS integer), {digests.DIGEST})
FROM wanted JOIN page_part p ON p.segment_id = one AND p.first <= two AND two < p.first + p.count
    JOIN bulk_object o ON o.id = p.object_id
"""  # noqa: S608  no input


def _twice(read: Callable[Q, T]) -> Callable[Q, T]:
    """Read again if an object is lost: it may have been rewritten under another name, without
    erased rows, since the database gave its location. Also if an object is altered: the cached copy
    may be wrong, so the second read goes to the store.
    """

    @wraps(read)
    def again(*arguments: Q.args, **options: Q.kwargs) -> T:
        try:
            return read(*arguments, **options)
        except ObjectLost:
            with _copies_passed_over():
                return read(*arguments, **options)

    return again


def _copies_passed_over() -> AbstractContextManager[None]:
    cache = block_cache.opened()
    return nullcontext() if cache is None else cache.passed_over()


class _Block(NamedTuple):
    """The position of a block: its object, its number of rows, and the ordinal of the first."""

    name: str
    group: int
    first: int
    rows: int
    salt: bytes
    entry: layout.BlockEntry
    #: the number of neighbours before it, if their entries were read with it
    at: int = 0
    near: bytes = b""

    @property
    def lines(self) -> stores.Range:
        start = self.entry.start
        return stores.Range(self.name, start, start + layout.LINE_BYTES * self.rows)

    @property
    def whole(self) -> stores.Range:
        return _range_of(self.name, self.entry)

    def around(self, most: int) -> list[stores.Range]:
        """This block and its neighbours, as many as have no more than ``most`` bytes."""
        near = layout.blocks_around(layout.entries_of(self.near), self.at, most)
        return [_range_of(self.name, entry) for entry in near]


def _range_of(name: str, entry: layout.BlockEntry) -> stores.Range:
    return stores.Range(name, entry.start, entry.start + entry.length)


@_twice
def rows_at(keys: Sequence[store.Key]) -> dict[store.Key, store.StoredSealedRow]:
    """The rows at (group, ordinal) that are in objects; other keys are left out.

    Raises:
        ObjectLost, ObjectAltered: with the object's name.
        StoreUnavailable: the store is unavailable or fails.
    """
    return _read_rows(_blocks_of(keys), checked=True)


def rows_left(keys: Sequence[store.Key]) -> dict[store.Key, store.StoredSealedRow]:
    """The rows that can still be read if objects are lost or altered; see :func:`rows_at`."""
    found: dict[store.Key, store.StoredSealedRow] = {}
    for block, wanted in _blocks_of(keys).items():
        try:
            found |= _read_rows({block: wanted}, checked=False)
        except ObjectLost:
            with suppress(ObjectLost), _copies_passed_over():
                found |= _read_rows(_blocks_of(wanted), checked=False)
    return found


def _blocks_of(keys: Sequence[store.Key]) -> dict[_Block, list[store.Key]]:
    """The block of each key that is in an object.

    Parts begin with a run, so all keys of a run are in one block. The database is queried once for
    each run, because it reads all entries of a part for each query.
    """
    by_run: dict[store.Key, list[store.Key]] = {}
    for key in keys:
        by_run.setdefault((key[0], key[1] - key[1] % digests.RUN), []).append(key)
    blocks: dict[_Block, list[store.Key]] = {}
    near = 1 if block_cache.opened() is None else _NEAR
    statement = _ROWS.format(run=digests.RUN * near, size=_ENTRY_BYTES * near)
    for group, begins, first, count, name, salt, packed in store.select(
        lambda wanted: f"WITH wanted (one, two) AS ({wanted}) {statement}", list(by_run)
    ):
        rows = min(digests.RUN, first + count - begins)
        entries, at = bytes(packed), (begins - first) // digests.RUN % near
        entry = layout.entry_of(entries[at * _ENTRY_BYTES : (at + 1) * _ENTRY_BYTES])
        block = _Block(name, group, begins, rows, bytes(salt), entry, at, entries)
        keys_of_block = [key for key in by_run[group, begins] if key[1] < begins + rows]
        if keys_of_block:
            blocks[block] = keys_of_block
    return blocks


def _read_rows(
    blocks: dict[_Block, list[store.Key]], *, checked: bool
) -> dict[store.Key, store.StoredSealedRow]:
    """Read short blocks whole; of long blocks the lines, and then the requested rows."""
    if not blocks:
        return {}
    short = [block for block in blocks if block.entry.length <= layout.WHOLE_BYTES]
    long = [block for block in blocks if block.entry.length > layout.WHOLE_BYTES]
    by_range = {block.whole: block for block in short}

    def ahead(place: stores.Range, most: int) -> Sequence[stores.Range]:
        return by_range[place].around(most) if place in by_range else ()

    read = _read([*by_range, *(block.lines for block in long)], ahead=ahead)
    found: dict[store.Key, store.StoredSealedRow] = {}
    wanted: list[tuple[_Block, store.Key, layout.RowEntry, stores.Range]] = []
    contents: list[bytes] = []
    for block, data in zip([*short, *long], read, strict=True):
        lines = layout.lines_of(data[: layout.LINE_BYTES * block.rows], block.entry, block.name)
        places = layout.places_of(lines)
        for key in blocks[block]:
            at = key[1] - block.first
            start = block.entry.start + places[at]
            if lines[at].version:
                place = stores.Range(block.name, start, start + lines[at].length)
                wanted.append((block, key, lines[at], place))
                if block.entry.length <= layout.WHOLE_BYTES:
                    contents.append(data[places[at] : places[at + 1]])
    contents += _read([place for *_, place in wanted[len(contents) :]])
    for (block, key, line, _), packed in zip(wanted, contents, strict=True):
        if checked:
            layout.check_row(block.salt, line, packed, block.name)
        found[key] = store.StoredSealedRow(*key, line.record_id, line.version, packed)
    return found


def _read(
    ranges: Sequence[stores.Range],
    spare: Spare = lambda: (),
    ahead: Ahead = lambda _first, _most: (),
) -> list[bytes]:
    bulk_store = choice.chosen().store
    if not ranges:
        return []
    if bulk_store is None:
        raise ObjectLost(f"no bulk store is set, and there is an object: {ranges[0].name}")
    cache = block_cache.opened()
    return (
        bulk_store.read(ranges) if cache is None else cache.read(bulk_store, ranges, spare, ahead)
    )


@_twice
def versions_at(keys: Sequence[store.Key]) -> dict[store.Key, tuple[bytes, int]]:
    """Record id and version at (group, ordinal), for rows in objects."""
    blocks = _blocks_of(keys)
    found: dict[store.Key, tuple[bytes, int]] = {}
    for block, lines in _lines_of(list(blocks)):
        for key in blocks[block]:
            line = lines[key[1] - block.first]
            if line.version:
                found[key] = line.record_id, line.version
    return found


@_twice
def versions_between(group: int, first: int, end: int) -> list[tuple[int, bytes, int]]:
    """Ordinal, id and version of each row of a group that is in an object, from ``first`` to below
    ``end``, unordered.
    """
    keys = [(group, ordinal) for ordinal in range(first - first % digests.RUN, end, digests.RUN)]
    return [
        (ordinal, line.record_id, line.version)
        for block, lines in _lines_of(list(_blocks_of(keys)))
        for ordinal, line in enumerate(lines, block.first)
        if first <= ordinal < end and line.version
    ]


def _lines_of(blocks: Sequence[_Block]) -> Iterator[tuple[_Block, list[layout.RowEntry]]]:
    for block, data in zip(blocks, _read([block.lines for block in blocks]), strict=True):
        yield block, layout.lines_of(data, block.entry, block.name)


def has_rows(group: int) -> bool:
    """Whether any rows of a group are in objects."""
    return RowPart.objects.filter(group_id=group).exists()


@_twice
def is_any_new(wanted: Set[bytes], span: tuple[bytes, bytes]) -> bool:
    """Whether a new record in an object has one of these ids. ``span`` has the least and the
    greatest of them.
    """
    return any(line.record_id in wanted for _, line in _spanning(wanted, span))


@_twice
def find_new(record_ids: Collection[bytes]) -> list[store.Key]:
    """Keys of the rows in which these records were new in an object."""
    wanted, blocks = sorted(set(record_ids)), []
    for batch in store.cut(wanted):
        # Compare each id: the span of all ids may contain every part.
        marks = ", ".join(["(%s)"] * len(batch))
        statement = f"""
            WITH wanted (one) AS (VALUES {marks})
            SELECT group_id, first, count, name, blocks FROM row_part p
            JOIN bulk_object o ON o.id = p.object_id
            WHERE (p.group_id, p.first) IN (
                SELECT m.group_id, m.first FROM wanted
                JOIN row_part m ON m.last_id >= one AND m.first_id <= one)
            """  # noqa: S608
        for part in fetch(statement, *batch):
            blocks += _blocks_within(wanted, *part)
    return [
        (block.group, ordinal)
        for block, lines in _lines_of(list(dict.fromkeys(blocks)))
        for ordinal, line in enumerate(lines, block.first)
        if line.version == 1 and line.record_id in record_ids
    ]


def _spanning(
    record_ids: Collection[bytes], span: tuple[bytes, bytes]
) -> Iterator[tuple[store.Key, layout.RowEntry]]:
    """The rows of version 1 of all blocks whose span of ids may contain one of these."""
    spanning = as_driver_has_it(
        "SELECT group_id, first, count, name, blocks FROM row_part"
        " JOIN bulk_object o ON o.id = object_id WHERE last_id >= %s AND first_id <= %s"
    )
    with executed(spanning, list(span)) as cursor:
        parts = cursor.fetchall()
    ordered = sorted(record_ids) if parts else []
    for part in parts:
        for block, lines in _lines_of(_blocks_within(ordered, *part)):
            for ordinal, line in enumerate(lines, block.first):
                if line.version == 1:
                    yield (block.group, ordinal), line


def _blocks_within(
    record_ids: Sequence[bytes], group: int, first: int, count: int, name: str, entries: bytes
) -> list[_Block]:
    """The blocks of a part whose span may contain one of these sorted ids. A job's part has tens of
    thousands of blocks, and few of them match.
    """
    each = zip(range(0, count, digests.RUN), layout.entries_of(bytes(entries)), strict=True)
    return [
        _Block(name, group, first + at, min(digests.RUN, count - at), b"", entry)
        for at, entry in each
        if _is_any_within(record_ids, entry)
    ]


def _is_any_within(record_ids: Sequence[bytes], entry: layout.BlockEntry) -> bool:
    at = bisect_left(record_ids, entry.least)
    return at < len(record_ids) and record_ids[at] <= entry.greatest


@_twice
def pages_at(keys: Sequence[store.Key]) -> dict[store.Key, bytes]:
    """The pages at (segment, number) that are in objects; other keys are left out.

    Raises:
        ObjectLost, ObjectAltered: with the object's name.
        StoreUnavailable: the store is unavailable or fails.
    """
    rows = list(store.select(lambda wanted: f"WITH wanted (one, two) AS ({wanted}) {_PAGES}", keys))
    ranges = [
        stores.Range(name, start, start + length)
        for _, number, first, _, length, name, _ in rows
        for start in [layout.HEAD_BYTES + (number - first) * length]
    ]
    pages_of = {name: (count, length) for _, _, _, count, length, name, _ in rows}

    def ahead(place: stores.Range, most: int) -> Iterator[stores.Range]:
        for at in layout.pages_around(place.start, *pages_of[place.name], most):
            yield place._replace(start=at, end=at + place.end - place.start)

    read = _read(ranges, lambda: list(_pages_between(ranges)), ahead)
    found: dict[store.Key, bytes] = {}
    for (segment, number, *_, name, digest), data in zip(rows, read, strict=True):
        if digests.page_digest(data) != bytes(digest):
            raise layout.altered(name)
        found[segment, number] = data
    return found


def _pages_between(pages: Sequence[stores.Range]) -> Iterator[stores.Range]:
    """The pages, all of one length, between two pages of an object that a remote store reads as one
    range.
    """
    reach = stores.find_reach(pages)
    for before, behind in pairwise(sorted(set(pages))):
        if before.name == behind.name and behind.start - before.end <= reach:
            length = before.end - before.start
            for start in range(before.end, behind.start, length):
                yield stores.Range(before.name, start, start + length)


def page_digests_of(segments: Collection[int]) -> list[tuple[int, int, bytes]]:
    """Segment, first number and digests of the pages of each part of these segments."""
    statement = "SELECT segment_id, first, digests FROM page_part WHERE segment_id IN {values}"
    return [
        (segment, first, bytes(page_digests))
        for segment, first, page_digests in store.select_in(statement, segments)
    ]
