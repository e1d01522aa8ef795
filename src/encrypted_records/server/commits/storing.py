"""Store and end a commit's groups and segments under the schema's lock, and read the facts that
decide whether it applies.

Segments are stored with their pages, groups with their rows. A compaction combines groups while
their segment stays (docs/SPEC.md, section 7.7.2). The position of a group in its segment is not
stored; it follows from the commits. The rows of groups that a commit ends (section 7.7) stay a
little for readers of an earlier version; :mod:`..erasure.sweeping` deletes them.

The facts are in tables other than the schema's, and are read under the lock of the schema's row in
two statements. The first reads only the table of rows, which may be partitioned or distributed over
several servers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec
from django.utils import timezone

from encrypted_records.errors import Conflict
from encrypted_records.model import wire
from encrypted_records.model.records import Commit, CommitBody, Group, KilledRows
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import EndedGroup, MovedRows, Size, judge_cover
from encrypted_records.server import sql
from encrypted_records.server.commits import checks
from encrypted_records.server.commits.judging import CommitSigner
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.statements import Statement, insert
from encrypted_records.server.objects import objects
from encrypted_records.server.records import store
from encrypted_records.server.records.models import CommitLog, IndexSegment, RecordGroup, RowPart
from encrypted_records.server.rows import contents

Run = tuple[int, int]
#: Ordinal, record id and version.
_Row = tuple[int, bytes, int]
#: Rows whose ids are compared at a time.
_IDS_AT_ONCE = 10_000


@dataclass(frozen=True)
class GroupPlace:
    """The position of a new group in log order, and its ordinals without a row.

    ``dead`` counts the holes, and the rows that die with the commit that adds the group.
    """

    group: Group
    start: int
    holes: Sequence[Run] = ()
    dead: int = 0
    #: the number of its segment, if the segment existed before
    segment: int | None = None

    @property
    def size(self) -> Size:
        return Size(self.group.count, self.dead)

    @property
    def stored_holes(self) -> str:
        return msgspec.json.encode(self.holes).decode()


def place_at_the_end(schema: Schema, body: CommitBody) -> dict[bytes, GroupPlace]:
    """The places of groups that replace no others."""
    starts = accumulate((group.count for group in body.groups), initial=schema.stored_rows)
    return {
        group.uid: GroupPlace(group, start)
        for group, start in zip(body.groups, starts, strict=False)
    }


class ReplacingGroups:
    """The groups of a commit that replace others."""

    def __init__(
        self, body: CommitBody, freed: Sequence[RecordGroup], segment: int | None = None
    ) -> None:
        """
        Args:
            freed: the groups of the segments that the commit replaces; for a compaction, the groups
                that it ends.
            segment: for a compaction, the number of its segment.

        Raises:
            BadInput: ``invalid_commit``; the new groups do not match the groups that end.
            Conflict: ``group_not_live``; a group that ends is not live, or its dead rows are not
                those that the commit states.
        """
        self._body = body
        by_uid = {bytes(group.uid): group for group in freed}
        if any(uid not in by_uid for uid in body.ended):
            raise not_live("a group that the commit ends is not live")
        self._old = [by_uid[uid] for uid in body.ended]
        ended = [
            EndedGroup(_start(group), group.count, store.classes_of(group.fields))
            for group in self._old
        ]
        checks.require_none(commit_judging.judge_replacement(ended, body.groups))
        self._pieces = commit_judging.pieces_of(ended, body.groups)
        #: for each new group and ordinal, the version that ended the row
        self._died: dict[bytes, dict[int, int]] = {group.uid: {} for group in body.groups}
        holes, killed = _by_group(body.holes), _by_group(body.killed)
        dead = self._dead()
        for group in body.groups:
            gone = holes.get(group.uid, set()), killed.get(group.uid, set())
            if gone[0] & gone[1] or gone[0] | gone[1] != dead[group.uid]:
                raise not_live("other rows of the groups that the commit ends were deleted")
        self._dead_rows, self._holes = dead, holes
        runs = {hole.group: hole.runs for hole in body.holes}
        begins: dict[bytes, int] = {}
        for piece in self._pieces:
            start = _start(self._old[piece.old]) + piece.first - piece.to
            begins.setdefault(self._uid(piece), start)
        self.places = {
            group.uid: GroupPlace(
                group, begins[group.uid], runs.get(group.uid, ()), len(dead[group.uid]), segment
            )
            for group in body.groups
        }

    @property
    def kept(self) -> set[int]:
        """Numbers of the groups that end."""
        return {group.pk for group in self._old}

    def _uid(self, piece: MovedRows) -> bytes:
        """The uid of the new group that contains the piece."""
        return self._body.groups[piece.new].uid

    def _dead(self) -> dict[bytes, set[int]]:
        """By new group, the ordinals of rows that are dead or holes in the old groups."""
        died = store.deaths_of([group.pk for group in self._old])
        dead: dict[bytes, set[int]] = {group.uid: set() for group in self._body.groups}
        for piece in self._pieces:
            old, uid, shift = self._old[piece.old], self._uid(piece), piece.to - piece.first
            versions = died[old.pk]
            dead[uid].update(
                at + shift
                for at in store.hole_ordinals(old.holes) | versions.keys()
                if piece.first <= at < piece.end
            )
            self._died[uid].update(
                (at + shift, version)
                for at, version in versions.items()
                if piece.first <= at < piece.end
            )
        return dead

    def finish(self, numbers: Mapping[bytes, int], version: int) -> None:
        """Compare the stored rows with the rows that they replace, and end the old groups.

        Args:
            numbers: of the new groups, by uid.

        Raises:
            BadInput: ``invalid_commit``; a row has another id or version, or is missing.
        """
        for pieces in _together(self._pieces):
            self._compare(pieces, numbers)
        # Dead rows keep the version that ended them, so that grace periods and requested erasures
        # still apply. No reader needs these copies.
        store.add_dead(
            (numbers[rows.group], row.ordinal, self._died[rows.group].get(row.ordinal, version))
            for rows in self._body.killed
            for row in rows.rows()
        )
        for batch in store.cut(sorted(self.kept)):
            objects.doom(RowPart.objects.filter(group_id__in=batch))
            RecordGroup.objects.filter(pk__in=batch).update(
                ended_at=timezone.now(), ended=version, segment=None, live=0, erase_at=None
            )
        with_dead = [numbers[kills.group] for kills in self._body.killed]
        RecordGroup.objects.filter(pk__in=with_dead).update(erase_at=timezone.now())

    def _compare(self, pieces: Sequence[MovedRows], numbers: Mapping[bytes, int]) -> None:
        """Compare the rows of pieces that are read together."""
        ranges = [(self._old[piece.old].pk, piece.first, piece.end) for piece in pieces]
        places = [(numbers[self._uid(piece)], piece.to, piece.to_end) for piece in pieces]
        found = contents.versions_in([*ranges, *places])
        for piece, old, new in zip(pieces, ranges, places, strict=True):
            self._compare_one(piece, found[old], found[new])

    def _compare_one(self, piece: MovedRows, old: Sequence[_Row], new: Sequence[_Row]) -> None:
        uid = self._uid(piece)
        dead, holes = self._dead_rows[uid], self._holes.get(uid, set())
        shift = piece.to - piece.first
        checks.require(
            [(at + shift, *record) for at, *record in old if at + shift not in dead]
            == [row for row in new if row[0] not in dead],
            "a row is not of the record and version that it replaces",
        )
        with_bytes = {at for at, _, _ in new}
        killed = (at for at in dead - holes if piece.to <= at < piece.to_end)
        checks.require(
            with_bytes.isdisjoint(holes) and all(at in with_bytes for at in killed),
            "a hole has a row, or a deleted row has none",
        )


def _together(pieces: Sequence[MovedRows]) -> Iterator[list[MovedRows]]:
    """Cut long pieces, and batch the pieces that are read together."""
    batch: list[MovedRows] = []
    count = 0
    for piece in pieces:
        for first in range(piece.first, piece.end, _IDS_AT_ONCE):
            end = min(piece.end, first + _IDS_AT_ONCE)
            if batch and count + end - first > _IDS_AT_ONCE:
                yield batch
                batch, count = [], 0
            to = piece.to + first - piece.first
            batch.append(piece._replace(first=first, end=end, to=to))
            count += end - first
    if batch:
        yield batch


def _start(group: RecordGroup) -> int:
    assert group.start is not None  # the group is visible
    return group.start


def _by_group(kills: Sequence[KilledRows]) -> dict[bytes, set[int]]:
    return {rows.group: {row.ordinal for row in rows.rows()} for rows in kills}


def not_live(message: str) -> Conflict:
    """The error if the writer has not seen that a group ended or a row died."""
    return Conflict(
        message,
        code="group_not_live",
        hint="read the manifest, and create the commit again for the rows that are live now",
    )


def add_segments(
    schema: Schema,
    commit: checks.CheckedCommit,
    facts: Facts,
    freed: Sequence[RecordGroup],
    added: Mapping[bytes, Size],
    version: int,
) -> dict[bytes, int]:
    """Store segments over the new and the freed groups; returns the number of each new uid.

    Raises:
        BadInput: ``invalid_commit``; the segments do not cover exactly these groups.
        Conflict: ``uid_taken``; ``group_not_live``, one of these groups has ended.
    """
    segments = commit.body.segments
    sizes = dict(added)
    sizes |= {bytes(g.uid): Size(g.count, g.count - g.live) for g in freed}
    require_live(schema, commit.body, sizes)
    checks.require_none(judge_cover(segments, sizes))
    if commit.staged:
        numbers = commit.staged.segments
        for batch in store.cut(list(numbers.values())):
            IndexSegment.objects.filter(pk__in=batch).update(version=version)
    else:
        numbers = _store_segments(schema, commit, facts, version)
    freed_numbers = {bytes(group.uid): group.pk for group in freed}
    for segment in segments:
        moved = [freed_numbers[uid] for uid, _ in segment.groups if uid in freed_numbers]
        for batch in store.cut(moved):
            RecordGroup.objects.filter(pk__in=batch).update(segment_id=numbers[segment.uid])
    return numbers


def _store_segments(
    schema: Schema, commit: checks.CheckedCommit, facts: Facts, version: int
) -> dict[bytes, int]:
    segments = commit.body.segments
    # The facts have the answer for the first segment.
    taken = (segment_of_uid.rows(schema=schema.uid, uid=segment.uid) for segment in segments[1:])
    if facts.has_segment or any(taken):
        raise Conflict("a segment's uid is taken", code="uid_taken")
    numbers = {}
    for s in segments:
        stored = IndexSegment(
            schema=schema,
            uid=s.uid,
            form=s.form,
            count=s.count,
            pages=s.pages,
            header=commit.salts_and_headers.headers[s.uid].data,
            salt=commit.salts_and_headers.headers[s.uid].salt,
            version=version,
        )
        insert(stored)
        numbers[s.uid] = stored.pk
    store.add_pages(
        (numbers[uid], number, digest, data)
        for uid, pages in commit.pages.items()
        for number, (digest, data) in enumerate(zip(commit.digests[uid], pages, strict=True))
    )
    return numbers


def add_groups(
    schema: Schema,
    commit: checks.CheckedCommit,
    facts: Facts,
    segments: Mapping[bytes, int],
    places: Mapping[bytes, GroupPlace],
    version: int,
) -> dict[bytes, int]:
    """Store the new groups with their rows, or make staged groups visible; returns the number of
    each uid.

    Raises:
        Conflict: ``uid_taken``, ``record_exists``.
    """
    segment_of = {
        uid: segments[segment.uid] for segment in commit.body.segments for uid, _ in segment.groups
    }
    groups = commit.body.groups
    rows = {
        group.uid: _group(schema, commit, group, places[group.uid], version) for group in groups
    }
    for uid, row in rows.items():
        stays = places[uid].segment
        row.segment_id = segment_of[uid] if stays is None else stays
        row.salt = commit.salts_and_headers.salts.get(uid, b"")
    if commit.staged:
        for uid, row in rows.items():
            row.pk = commit.staged.groups[uid]
        RecordGroup.objects.bulk_update(rows.values(), _PUBLISHED, batch_size=100)
        return dict(commit.staged.groups)
    taken = (group_of_uid.rows(schema=schema.uid, uid=group.uid) for group in groups[1:])
    if facts.has_group or any(taken):
        raise Conflict("a group's uid is taken", code="uid_taken")
    if not commit.body.ended:
        new = [row.record_id for row in commit.new_rows() if row.version == 1]
        require_new(new, are_apart=not facts.has_ids_between)
    for row in rows.values():
        insert(row)
    numbers = {uid: row.pk for uid, row in rows.items()}
    store.add_runs((numbers[batch.group], batch.first, batch.runs) for batch in commit.batches)
    store.add_rows(row for batch in commit.batches for row in batch.placed(numbers[batch.group]))
    return numbers


#: Columns that publishing sets on a staged group.
_PUBLISHED = ["segment_id", "version", "start", "key_id", "live", "holes"]


def _group(
    schema: Schema, commit: checks.CheckedCommit, group: Group, place: GroupPlace, version: int
) -> RecordGroup:
    return RecordGroup(
        schema=schema,
        uid=group.uid,
        version=version,
        start=place.start,
        key_version=group.key_version,
        key_id=commit.body.key_id,
        count=group.count,
        live=group.count - place.dead,
        holes=place.stored_holes,
        fields=store.describe_fields(group),
    )


def require_new(record_ids: Iterable[bytes], *, are_apart: bool = False) -> None:
    """
    Args:
        are_apart: whether no stored row has an id from the least to the greatest of these.

    Raises:
        Conflict: ``record_exists``; an id is stored already, or named twice.
    """
    ids = list(record_ids)
    distinct = set(ids)
    if len(distinct) != len(ids) or (not are_apart and contents.is_any_stored(distinct)):
        raise Conflict("a record with one of these ids is already stored", code="record_exists")


def find_standing(schema: Schema, body: CommitBody) -> ReplacingGroups:
    """The groups that a compaction's group replaces, row by row.

    Raises:
        BadInput: ``invalid_commit``; the replaced groups are not consecutive in one segment, or as
            :class:`ReplacingGroups`.
        Conflict: ``group_not_live``; as :class:`ReplacingGroups`.
    """
    ended = {
        bytes(group.uid): group
        for batch in store.cut(body.ended)
        for group in RecordGroup.objects.filter(
            schema=schema, uid__in=batch, staging=None, ended_at=None
        )
    }
    if len(ended) != len(body.ended):
        raise not_live("a group that the commit ends is not live")
    homes = {group.segment_id for group in ended.values() if group.segment_id is not None}
    checks.require(len(homes) == 1, "a commit ends groups of several segments that stay")
    segment = IndexSegment.objects.defer("header").get(pk__in=homes)
    bases = _Bases(schema, segment)
    at = bases.of(ended[body.ended[0]])
    for uid in body.ended:
        checks.require(
            bases.of(ended[uid]) == at,
            "a group would replace groups that are not neighbours in a segment",
        )
        at += ended[uid].count
    return ReplacingGroups(body, list(ended.values()), segment.pk)


class _Bases:
    """First ordinals of the groups of one segment, within it."""

    def __init__(self, schema: Schema, segment: IndexSegment) -> None:
        self._schema = schema
        self._made = _version(segment)
        uid = bytes(segment.uid)
        named = [segment for segment in self._commit(self._made).segments if segment.uid == uid]
        self._named = dict(named[0].groups)

    def of(self, group: RecordGroup) -> int:
        """The first ordinal of a group that the segment has, or had before a compaction."""
        while (version := _version(group)) > self._made:
            # A compaction added the group in place of several groups; this was the first of them.
            first = self._commit(version).ended[0]
            group = RecordGroup.objects.get(schema=self._schema, uid=first)
        return self._named[bytes(group.uid)]

    def _commit(self, version: int) -> CommitBody:
        entry = CommitLog.objects.get(schema=self._schema, version=version)
        parts = (bytes(part) for part in (entry.body, entry.mac, entry.signature))
        return wire.decode_commit_body(Commit(*parts))


def _version(stored: IndexSegment | RecordGroup) -> int:
    assert stored.version is not None, "it is visible"
    return stored.version


def require_live(schema: Schema, body: CommitBody, known: Container[bytes]) -> None:
    """Check that no group of the new segments has ended.

    Args:
        known: the groups that the segments have to cover.

    Raises:
        Conflict: ``group_not_live``; a compaction came before the merge.
    """
    named = [uid for segment in body.segments for uid, _ in segment.groups if uid not in known]
    for batch in store.cut(named):
        if RecordGroup.objects.filter(
            schema=schema, uid__in=batch, ended_at__isnull=False
        ).exists():
            raise not_live("a group of a new segment is not live")


#: Selects version and digest of a schema's commit by its id.
in_log = Statement(sql.LOGGED)
#: Select the number of a schema's segment, or group, by its uid.
segment_of_uid = Statement(sql.SEGMENT)
group_of_uid = Statement(sql.GROUP)
row_between = Statement(sql.ROW_BETWEEN)
commit_facts = Statement(sql.COMMIT_FACTS)
#: An empty span: no id is in it.
_NOWHERE = b"\xff" * 17, b""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that were read for one commit.

    ``logged`` is the row of :data:`in_log`; ``head`` is number and digest of the writer's last
    commit. ``has_segment`` and ``has_group`` say whether the uid of the commit's first segment or
    group is taken; ``has_ids_between`` whether a row may have an id from the least to the greatest
    id of the new records.
    """

    signer: CommitSigner
    logged: Sequence[Any] | None
    head: tuple[int, bytes] | None
    is_written: bool
    has_segment: bool
    has_group: bool
    has_ids_between: bool


def find_facts(user: bytes, commit: checks.CheckedCommit) -> Facts:
    """Read all facts, under the lock of the schema's row.

    Args:
        user: the id of the user whose right is checked.
    """
    body = commit.body
    ids = [row.record_id for row in commit.new_rows() if row.version == 1]
    first, last = (min(ids), max(ids)) if ids else _NOWHERE
    # Read the table of rows first: rows move to objects and never back, so the two queries together
    # miss no row.
    is_between = bool(row_between.rows(first=first, last=last))
    found = commit_facts.row(
        schema=body.schema,
        user=user,
        member=body.member,
        segment=body.segments[0].uid if body.segments else b"",
        group=body.groups[0].uid if body.groups else b"",
        first=first,
        last=last,
        writer=body.writer,
        id=body.id,
    )
    assert found is not None, "the schema is locked"
    is_written, has_segment, has_group, is_changed, is_part, counter, digest, *logged = found[5:]
    return Facts(
        signer=CommitSigner.of(found[:5]),
        logged=None if logged[0] is None else logged,
        head=None if counter is None else (counter, bytes(digest)),
        is_written=bool(is_written),
        has_segment=bool(has_segment),
        has_group=bool(has_group),
        has_ids_between=is_between or bool(is_changed) or bool(is_part),
    )
