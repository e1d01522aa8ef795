"""Groups that a commit ends, and where those lie that it adds (docs/SPEC.md, section 7.7).

Under the schema's lock. What is stored of the old groups stays a little for readers of an earlier
version; :mod:`..erasure.sweeping` deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec
from django.utils import timezone

from encrypted_records.errors import Conflict
from encrypted_records.model.records import CommitBody, Group, KilledRows
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import EndedGroup, Piece, Size
from encrypted_records.server.commits.checks import require, require_none
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.objects import objects
from encrypted_records.server.records import store
from encrypted_records.server.records.models import RecordGroup, RowPart
from encrypted_records.server.rows import contents

Run = tuple[int, int]
#: Ordinal, record id and version.
_Row = tuple[int, bytes, int]
#: Rows whose ids are compared at once.
_AT_ONCE = 10_000


@dataclass(frozen=True)
class GroupPlace:
    """The place of a new group in the order of the log, and its ordinals that have no row.

    ``dead`` counts the holes, and the rows that die with the commit that adds it.
    """

    group: Group
    start: int
    holes: Sequence[Run] = ()
    dead: int = 0
    #: the number of its segment, where that was there before
    segment: int | None = None

    @property
    def size(self) -> Size:
        return Size(self.group.count, self.dead)

    @property
    def stored_holes(self) -> str:
        return msgspec.json.encode(self.holes).decode()


def place_at_the_end(schema: Schema, body: CommitBody) -> dict[bytes, GroupPlace]:
    """The places of groups that stand for no others."""
    starts = accumulate((group.count for group in body.groups), initial=schema.stored_rows)
    return {
        group.uid: GroupPlace(group, start)
        for group, start in zip(body.groups, starts, strict=False)
    }


class ReplacingGroups:
    """The groups of a commit that stand for others."""

    def __init__(
        self, body: CommitBody, freed: Sequence[RecordGroup], segment: int | None = None
    ) -> None:
        """
        Args:
            freed: the groups of the segments that the commit replaces; of a compaction, those
                that it ends.
            segment: the number of that of a compaction.

        Raises:
            BadInput: ``invalid_commit``; the groups do not stand for those that end.
            Conflict: ``group_not_live``; one that ends is not live, or other rows of it are dead
                than the commit says.
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
        require_none(commit_judging.judge_replacement(ended, body.groups))
        self._pieces = commit_judging.pieces_of(ended, body.groups)
        #: by new group and ordinal, the versions that ended rows which it has
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

    def _uid(self, piece: Piece) -> bytes:
        """Of the new group that the piece is in."""
        return self._body.groups[piece.new].uid

    def _dead(self) -> dict[bytes, set[int]]:
        """By new group, the ordinals of rows that are dead or holes in the old ones."""
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
        """Compare the stored rows with those that they stand for, and end the old groups.

        Args:
            numbers: of the new groups, by uid.

        Raises:
            BadInput: ``invalid_commit``; a row has another id or version, or is missing.
        """
        for pieces in _together(self._pieces):
            self._compare(pieces, numbers)
        # By when it died each goes, and by what was asked since: no reader needs it here.
        store.add_dead(
            (numbers[rows.group], row.ordinal, self._died[rows.group].get(row.ordinal, version))
            for rows in self._body.killed
            for row in rows.rows()
        )
        for some in store.cut(sorted(self.kept)):
            objects.doom(RowPart.objects.filter(group_id__in=some))
            RecordGroup.objects.filter(pk__in=some).update(
                ended_at=timezone.now(), ended=version, segment=None, live=0, erase_at=None
            )
        with_dead = [numbers[kills.group] for kills in self._body.killed]
        RecordGroup.objects.filter(pk__in=with_dead).update(erase_at=timezone.now())

    def _compare(self, pieces: Sequence[Piece], numbers: Mapping[bytes, int]) -> None:
        """Compare the rows of as many pieces as are read at once."""
        ranges = [(self._old[piece.old].pk, piece.first, piece.end) for piece in pieces]
        places = [(numbers[self._uid(piece)], piece.to, piece.to_end) for piece in pieces]
        found = contents.versions_in([*ranges, *places])
        for piece, old, new in zip(pieces, ranges, places, strict=True):
            self._compare_one(piece, found[old], found[new])

    def _compare_one(self, piece: Piece, old: Sequence[_Row], new: Sequence[_Row]) -> None:
        uid = self._uid(piece)
        dead, holes = self._dead_rows[uid], self._holes.get(uid, set())
        shift = piece.to - piece.first
        require(
            [(at + shift, *rest) for at, *rest in old if at + shift not in dead]
            == [row for row in new if row[0] not in dead],
            "a row is not of the record and version that it replaces",
        )
        with_bytes = {at for at, _, _ in new}
        killed = (at for at in dead - holes if piece.to <= at < piece.to_end)
        require(
            with_bytes.isdisjoint(holes) and all(at in with_bytes for at in killed),
            "a hole has a row, or a deleted row has none",
        )


def _together(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """The pieces, cut so that none is too long, as many at a time as are read at once."""
    some: list[Piece] = []
    count = 0
    for piece in pieces:
        for first in range(piece.first, piece.end, _AT_ONCE):
            end = min(piece.end, first + _AT_ONCE)
            if some and count + end - first > _AT_ONCE:
                yield some
                some, count = [], 0
            to = piece.to + first - piece.first
            some.append(piece._replace(first=first, end=end, to=to))
            count += end - first
    if some:
        yield some


def _start(group: RecordGroup) -> int:
    assert group.start is not None  # it is visible
    return group.start


def _by_group(every: Sequence[KilledRows]) -> dict[bytes, set[int]]:
    return {rows.group: {row.ordinal for row in rows.rows()} for rows in every}


def not_live(message: str) -> Conflict:
    """The refusal of a commit whose writer has not seen that a group ended, or a row died."""
    return Conflict(
        message,
        code="group_not_live",
        hint="read the manifest, and create the commit again for the rows that are live now",
    )
