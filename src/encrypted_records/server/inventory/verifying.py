"""Check all stored data against its digests, and reconcile the database with a bulk store.

Rows are checked against the digests of their runs, pages against their digests, and both against
the digests in the commit that named them; objects against their sizes, heads and lines, too. Data
that is deleted or moves during its check is checked again before it counts as a flaw.

Reconciliation is for a database and a store of which one was restored to an earlier state. A
database from before an erasure refers to objects that were rewritten without the erased rows and
then deleted. The rewritten objects are in the store without a reference, but the head of each names
its group and its rows. So for every lost object, the unknown objects are searched. The rows found
must match the digests in the database, except for rows erased since, whose digests are at the end
of the object. They are written to a new object, with a name drawn by the database, without the rows
that are erased in either.

An object that is not found is lost. It is marked, so that a proxy can learn about it
(:mod:`..erasure.damage`): the proxy rebuilds the index from rows, and deletes records without
remaining data after a user has confirmed it.

Restored objects of groups and segments that the database has ended, or has in other objects, are
deleted, because their erasure may have been reported. Objects of groups and segments that the
database does not know stay unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from encrypted_records import errors
from encrypted_records.model import digests, wire
from encrypted_records.model.records import Commit
from encrypted_records.server.db.statements import fetch
from encrypted_records.server.erasure import erasing
from encrypted_records.server.inventory import walk
from encrypted_records.server.objects import choice, layout, objects, stores
from encrypted_records.server.objects.stores import lost
from encrypted_records.server.records import store
from encrypted_records.server.records.models import (
    BulkObject,
    CommitLog,
    IndexSegment,
    PagePart,
    RecordGroup,
    RowPart,
)
from encrypted_records.server.rows import contents

#: Bytes read at a time, from an object or from rows of the database.
_BYTES_AT_ONCE = 4 << 20
_RUNS_AT_ONCE = 32
#: More than any group's number of rows.
_MANY = 1 << 62
#: States of objects that a commit has named.
_NAMED_ONCE = (objects.NAMED, objects.LOST)
#: How often a check is repeated while its data changes.
_LOOKS = 20


@dataclass(frozen=True)
class StoredFlaw:
    """``what`` names the object, or the rows or pages in the database."""

    state: Literal["lost", "altered"]
    what: str


def _state_of(error: errors.ObjectLost) -> Literal["lost", "altered"]:
    return "altered" if isinstance(error, errors.ObjectAltered) else "lost"


class Verification:
    """One verification of all data, with its counts so far. ``unknown`` names the objects in the
    store that the database does not know.
    """

    def __init__(self) -> None:
        self.objects = self.rows = self.pages = 0
        self.unknown: list[str] = []

    def flaws(self) -> Iterator[StoredFlaw]:
        """All differences from the state in which the data was stored.

        Raises:
            StoreUnavailable: the store is away or fails.
        """
        yield from self._sizes()
        for batch in walk.numbers(RecordGroup.objects.filter(count__gt=0)):
            for number in batch:
                yield from _surely(self._group, number, _state_of_group)
        for batch in walk.numbers(IndexSegment.objects.filter(pages__gt=0)):
            for number in batch:
                yield from _surely(self._segment, number, _state_of_segment)

    def _sizes(self) -> Iterator[StoredFlaw]:
        """Check names and sizes of the objects, but not their contents."""
        bulk_store = choice.chosen().store
        for name, stored, size in walk.walk(bulk_store):
            if stored is None:
                self.unknown.append(name)
                continue
            in_use = stored.state in (objects.STORED, objects.NAMED)
            if not in_use and not walk.is_needed(stored):
                continue
            self.objects += 1
            if size is None and walk.is_missing(bulk_store, stored):
                yield StoredFlaw("lost", f"object {name}")
            elif size not in (None, stored.size) and walk.is_needed(stored):
                yield StoredFlaw("altered", f"object {name}")

    def _group(self, number: int) -> Iterator[StoredFlaw]:
        group = RecordGroup.objects.filter(pk=number).first()
        if group is None or not group.count:
            return
        salt, called = bytes(group.salt), f"group {bytes(group.uid).hex()}"
        runs, gone = _runs_of(number), contents.erased_digests(number, 0, _MANY)
        seen: set[int] = set()
        for part in RowPart.objects.filter(group_id=number).order_by("first"):
            seen.update(
                range(part.first // digests.RUN, -(-(part.first + part.count) // digests.RUN))
            )
            name = _name_of(part.object_id)
            try:
                for run, row_digests in row_runs_of(
                    _store(name), name, part, bytes(group.uid), salt, gone
                ):
                    self.rows += sum(digest != digests.HOLE for digest in row_digests)
                    if runs.get(run) != hashlib.sha256(b"".join(row_digests)).digest():
                        yield StoredFlaw(
                            "altered", f"object {name}: rows from {run * digests.RUN} of {called}"
                        )
            except errors.ObjectLost as error:
                yield StoredFlaw(_state_of(error), f"object {name}: of rows of {called}")
        for run, digests_of_run in _runs_in_database(group, sorted(runs.keys() - seen), salt, gone):
            if (
                digests_of_run is None
                or runs[run] != hashlib.sha256(b"".join(digests_of_run)).digest()
            ):
                yield StoredFlaw(
                    "altered", f"rows from {run * digests.RUN} of {called} in the database"
                )
            else:
                self.rows += sum(digest != digests.HOLE for digest in digests_of_run)
        if group.ended_at is None and group.version is not None and salt:
            yield from self._stated(group, runs, called)

    def _stated(
        self, group: RecordGroup, runs: dict[int, bytes], called: str
    ) -> Iterator[StoredFlaw]:
        """Check that the group has the digest in its commit."""
        stated = _stated_digests(group.schema_id, group.version).get(bytes(group.uid))
        stored = digests.group_digest(b"".join(runs[run] for run in sorted(runs)))
        if len(runs) != -(-group.count // digests.RUN) or stated != stored:
            yield StoredFlaw("altered", f"{called}: it is not the one that its commit names")

    def _segment(self, number: int) -> Iterator[StoredFlaw]:
        segment = IndexSegment.objects.filter(pk=number).first()
        if segment is None or not segment.pages:
            return
        called = f"segment {bytes(segment.uid).hex()}"
        found: dict[int, bytes] = {}
        for part in PagePart.objects.filter(segment_id=number).order_by("first"):
            stated = bytes(part.digests)
            for at in range(part.count):
                found[part.first + at] = stated[at * digests.DIGEST : (at + 1) * digests.DIGEST]
            name = _name_of(part.object_id)
            try:
                check_pages(_store(name), name, part, bytes(segment.uid))
                self.pages += part.count
            except errors.ObjectLost as error:
                yield StoredFlaw(_state_of(error), f"object {name}: of pages of {called}")
        for page, digest, data in _pages_in_database(number):
            found[page] = digest
            if digests.page_digest(data) == digest:
                self.pages += 1
            else:
                yield StoredFlaw("altered", f"page {page} of {called} in the database")
        if segment.version is None or segment.superseded_at is not None:
            return
        named = _stated_digests(segment.schema_id, segment.version).get(bytes(segment.uid))
        page_digests = b"".join(found[number] for number in sorted(found))
        if sorted(found) != list(range(segment.pages)):
            yield StoredFlaw(
                "lost", f"pages of {called}: {len(found)} of {segment.pages} are there"
            )
        elif named != digests.segment_digest(
            bytes(segment.salt), bytes(segment.header), page_digests
        ):
            yield StoredFlaw("altered", f"{called}: it is not the one that its commit names")


def _surely(
    check: Callable[[int], Iterator[StoredFlaw]], number: int, state_of: Callable[[int], object]
) -> list[StoredFlaw]:
    """The flaws of a group or segment whose data did not change during the check."""
    found: list[StoredFlaw] = []
    for _ in range(_LOOKS):
        before = state_of(number)
        found = list(check(number))
        if not found or state_of(number) == before:
            break
    return found


def _state_of_group(number: int) -> object:
    """A value that changes when rows of a group are deleted, or move to an object or another
    object.
    """
    parts = RowPart.objects.filter(group_id=number).order_by("first")
    group = RecordGroup.objects.filter(pk=number)
    return list(parts.values_list("first", "object_id")), group.values_list(
        "count", "ended", "erased", "version"
    ).first()


def _state_of_segment(number: int) -> object:
    parts = PagePart.objects.filter(segment_id=number).order_by("first")
    segment = IndexSegment.objects.filter(pk=number)
    return list(parts.values_list("first", "object_id")), segment.values_list(
        "pages", "replaced", "version"
    ).first()


def _name_of(number: int) -> str:
    name = BulkObject.objects.filter(pk=number).values_list("name", flat=True).first()
    return name or f"number {number}"


def _store(name: str) -> stores.BulkStore:
    bulk_store = choice.chosen().store
    if bulk_store is None:
        raise lost(name)
    return bulk_store


def _runs_of(number: int) -> dict[int, bytes]:
    """The stored digest of each run, by the run's number."""
    return {
        first // digests.RUN + at // digests.DIGEST: bytes(run_digests[at : at + digests.DIGEST])
        for first, run_digests in fetch(
            "SELECT first, digests FROM row_run WHERE group_id = %s", number
        )
        for at in range(0, len(run_digests), digests.DIGEST)
    }


def is_as_kept(group: RecordGroup, first: int, row_digests: bytes) -> bool:
    """Whether rows that were read match the digests of the group's runs.

    Args:
        first: the ordinal of the first row, which begins a run.
        row_digests: the digests of the rows, concatenated; ``HOLE`` for a missing row.
    """
    gone = contents.erased_digests(group.pk, first, first + len(row_digests) // digests.DIGEST)
    runs = _runs_of(group.pk)
    by_row = [
        row_digests[at : at + digests.DIGEST] for at in range(0, len(row_digests), digests.DIGEST)
    ]
    by_row = [
        gone.get(first + at, digest) if digest == digests.HOLE else digest
        for at, digest in enumerate(by_row)
    ]
    found = digests.run_digests(b"".join(by_row))
    return all(
        runs.get(first // digests.RUN + at // digests.DIGEST) == found[at : at + digests.DIGEST]
        for at in range(0, len(found), digests.DIGEST)
    )


def row_runs_of(
    bulk_store: stores.BulkStore,
    name: str,
    part: RowPart,
    uid: bytes,
    salt: bytes,
    gone: dict[int, bytes],
) -> Iterator[tuple[int, list[bytes]]]:
    """Each run of an object of rows, with the digests of its rows.

    Args:
        gone: the digests of rows whose bytes are gone.

    Raises:
        ObjectLost, ObjectAltered: it is missing, or not as it was stored.
    """
    (head,) = bulk_store.read([stores.Range(name, 0, layout.HEAD_BYTES)])
    if head != layout.row_head(uid, part.first, part.count):
        raise layout.altered(name)
    entries = layout.entries_of(bytes(part.blocks))
    for at, entry in enumerate(entries):
        first = part.first + at * digests.RUN
        count = min(digests.RUN, part.count - at * digests.RUN)
        (data,) = bulk_store.read([stores.Range(name, entry.start, entry.start + entry.length)])
        lines = layout.lines_of(data[: layout.LINE_BYTES * count], entry, name)
        places = layout.places_of(lines)
        row_digests: list[bytes] = []
        for ordinal, line in enumerate(lines):
            if not line.version:
                row_digests.append(gone.get(first + ordinal, digests.HOLE))
                continue
            packed = data[places[ordinal] : places[ordinal + 1]]
            layout.check_row(salt, line, packed, name)
            row_digests.append(digests.row_digest(salt, line.record_id, line.version, packed))
        yield first // digests.RUN, row_digests


def check_pages(bulk_store: stores.BulkStore, name: str, part: PagePart, uid: bytes) -> None:
    """Check an object of pages.

    Raises:
        ObjectLost, ObjectAltered: it is missing, or not as it was stored.
    """
    (head,) = bulk_store.read([stores.Range(name, 0, layout.HEAD_BYTES)])
    if head != layout.page_head(uid, part.first, part.count):
        raise layout.altered(name)
    stated, size = bytes(part.digests), part.page_bytes
    at_once = max(1, _BYTES_AT_ONCE // size)
    for first in range(0, part.count, at_once):
        end = min(first + at_once, part.count)
        start = layout.HEAD_BYTES + first * size
        (data,) = bulk_store.read([stores.Range(name, start, layout.HEAD_BYTES + end * size)])
        for at in range(first, end):
            page = data[(at - first) * size : (at - first + 1) * size]
            if digests.page_digest(page) != stated[at * digests.DIGEST : (at + 1) * digests.DIGEST]:
                raise layout.altered(name)


def _runs_in_database(
    group: RecordGroup, runs: list[int], salt: bytes, gone: dict[int, bytes]
) -> Iterator[tuple[int, list[bytes] | None]]:
    """Each of these runs with the digests of its rows; None if some of its rows are missing.

    The last runs of an ended group may have been swept already.
    """
    holes = store.hole_ordinals(group.holes)
    for begin in range(0, len(runs), _RUNS_AT_ONCE):
        batch = runs[begin : begin + _RUNS_AT_ONCE]
        rows = {
            row.ordinal: digests.row_digest(salt, row.record_id, row.version, row.sealed)
            for row, _ in store.rows_between(
                group.pk, batch[0] * digests.RUN, (batch[-1] + 1) * digests.RUN
            )
        }
        for run in batch:
            first, end = run * digests.RUN, (run + 1) * digests.RUN
            if group.ended_at is not None and end > group.count:
                continue
            ordinals = range(first, min(end, group.count))
            row_digests = [
                rows.get(at) or gone.get(at) or (digests.HOLE if at in holes else None)
                for at in ordinals
            ]
            present = [digest for digest in row_digests if digest is not None]
            if any(gone.get(at) == digests.HOLE for at in ordinals):
                continue  # lost rows that were given up; no digest is left to compare
            # The holes of a staged group are unknown before its commit.
            if len(present) < len(row_digests) and group.staging_id is not None:
                present = [digest or digests.HOLE for digest in row_digests]
            yield run, present if len(present) == len(row_digests) else None


def _pages_in_database(segment: int) -> Iterator[tuple[int, bytes, bytes]]:
    last = -1
    while rows := fetch(
        "SELECT number, digest, data FROM index_page WHERE segment_id = %s AND number > %s"
        " ORDER BY number LIMIT %s",
        *(segment, last, _RUNS_AT_ONCE),
    ):
        yield from ((number, bytes(digest), bytes(data)) for number, digest, data in rows)
        last = rows[-1][0]


@lru_cache(maxsize=64)
def _stated_digests(schema: str, version: int) -> dict[bytes, bytes]:
    """The digests of the groups and segments that a schema's commit names, by uid."""
    stored = CommitLog.objects.filter(schema=schema, version=version)
    body = stored.values_list("body", flat=True).first()
    if body is None:
        return {}
    try:
        commit = wire.decode_commit_body(Commit(bytes(body), b"", b""))
    except (errors.Malformed, errors.Unsupported):
        return {}
    return {group.uid: group.rows for group in commit.groups} | {
        segment.uid: segment.digest for segment in commit.segments
    }


class Reconciliation:
    """One run of the reconciliation. ``taken`` counts objects found under other names, ``dropped``
    objects that are not needed any more; ``rows`` and ``pages`` are lost objects of rows and of
    pages.
    """

    def __init__(self) -> None:
        self.taken = self.dropped = self.rows = self.pages = 0
        #: name and size of each unknown object, by the owner in its head
        self._strangers: dict[layout.ObjectHead, list[tuple[str, int]]] = {}

    def run(self) -> None:
        """
        Raises:
            InvalidSetting: there is no bulk store.
            StoreFull, StoreUnavailable: the store has no room, is away or fails; repeat this.
        """
        bulk_store = choice.chosen().store
        if bulk_store is None:
            raise errors.InvalidSetting(
                "no bulk store is set, so there is nothing to reconcile",
                hint="name it with --bulk-url",
            )
        numbers: dict[int, str] = {}
        for name, stored, size in walk.walk(bulk_store):
            if stored is None and size is not None:
                self._note_stranger(bulk_store, name, size)
            elif stored is None or size is not None or stored.state not in _NAMED_ONCE:
                continue
            elif walk.is_missing(bulk_store, stored):
                numbers[stored.pk] = name
        parts = [part for part in _row_parts(numbers) if not self._find(bulk_store, part)]
        left = {part.object_id for part in parts}
        pages = {
            part.object_id
            for batch in _cut(numbers)
            for part in PagePart.objects.filter(object_id__in=batch)
        }
        self.rows, self.pages = len(left), len(pages)
        objects.note_lost({numbers[page] for page in left | pages})
        self._drop_ended()

    def _note_stranger(self, bulk_store: stores.BulkStore, name: str, size: int) -> None:
        if (head := _head_of(bulk_store, name, size)) is not None:
            self._strangers.setdefault(head, []).append((name, size))

    def _drop_ended(self) -> None:
        for head, strangers in self._strangers.items():
            if not _is_over(head):
                continue
            known = objects.known_among([name for name, _ in strangers])
            for name, size in strangers:
                if name not in known:  # objects taken over are known by now
                    objects.adopt_doomed(name, size, at_once=True)
                    self.dropped += 1

    def _find(self, bulk_store: stores.BulkStore, part: RowPart) -> bool:
        """Whether the rows of a lost object were found, and taken over."""
        group = RecordGroup.objects.filter(pk=part.group_id, ended_at=None).first()
        if group is None:
            return True  # the group has ended, and its rows will be deleted
        place = layout.ObjectHead(True, bytes(group.uid), part.first, part.count)
        for name, size in self._strangers.get(place, []):
            try:
                (data,) = bulk_store.read([stores.Range(name, 0, size)])
                contents = layout.contents_of(data, name)
            except errors.ObjectLost:
                continue
            if _take(group, part, (name, size), contents):
                self.taken += 1
                return True
        return False


def _cut(numbers: dict[int, str]) -> Iterator[list[int]]:
    return (list(batch) for batch in store.cut(sorted(numbers)))


def _row_parts(numbers: dict[int, str]) -> list[RowPart]:
    return [
        part
        for batch in _cut(numbers)
        for part in RowPart.objects.filter(object_id__in=batch).order_by("group_id", "first")
    ]


def _is_over(head: layout.ObjectHead) -> bool:
    """Whether the database has ended this object's group or segment, or has its content
    elsewhere.
    """
    if not head.rows:
        replaced = IndexSegment.objects.filter(uid=head.uid).exclude(superseded_at=None)
        return replaced.exists()
    group = RecordGroup.objects.filter(uid=head.uid, staging=None).first()
    if group is None:
        return False
    parts = RowPart.objects.filter(group_id=group.pk, first=head.first)
    lost = BulkObject.objects.filter(pk__in=parts.values("object_id"), state=objects.LOST)
    return not lost.exists()


def _head_of(bulk_store: stores.BulkStore, name: str, size: int) -> layout.ObjectHead | None:
    if size < layout.HEAD_BYTES:
        return None
    try:
        (data,) = bulk_store.read([stores.Range(name, 0, layout.HEAD_BYTES)])
    except errors.ObjectLost:
        return None
    return layout.head_of(data)


def _take(
    group: RecordGroup, part: RowPart, stranger: tuple[str, int], found: layout.RowsObject
) -> bool:
    """Take the rows of a stranger over as those of a part, if they match; returns whether they
    do.
    """
    salt = bytes(group.salt)
    end = part.first + part.count
    known = contents.erased_digests(group.pk, part.first, end)
    row_digests = {
        at: digests.row_digest(salt, *row)
        for at, row in enumerate(found.rows, part.first)
        if row is not None
    }
    found_digests = found.gone | row_digests
    joined = b"".join([found_digests.get(at, digests.HOLE) for at in range(part.first, end)])
    if not salt or not is_as_kept(group, part.first, joined):
        return False
    rows = [None if at in known else row for at, row in enumerate(found.rows, part.first)]
    kept = b"".join([row_digests.get(at, digests.HOLE) for at in range(part.first, end)])
    gone = found.gone | known
    with erasing.rewritten(group, part, rows, kept, gone, at_once=True) as is_replaced:
        if not is_replaced:
            return True
        new = {at: digest for at, digest in found.gone.items() if at not in known}
        contents.note_erased(group.pk, new)
        RecordGroup.objects.filter(pk=group.pk).update(erase_at=erasing.soon())
        # Without a grace period if the object has rows that this database erased; otherwise all of
        # it is now stored here.
        objects.adopt_doomed(*stranger, at_once=bool(known.keys() & row_digests.keys()))
    return True
