"""Groups that a commit ends, and those that stand for them (docs/SPEC.md, section 7.7).

A record keeps its place among all rows: those of the new groups are numbered as those of the old
ones were. So nothing that names a row by its number needs to know of such a commit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TypeVar

from pyroaring import BitMap

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.ledger_state import Deaths
from encrypted_records.index.log.snapshot import GroupState
from encrypted_records.model.records import CommitBody, Group, KilledRows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveGroups:
    """The groups of a log at one version: by uid, in order, and how many rows come before each."""

    by_uid: Mapping[bytes, GroupState]
    in_order: Sequence[Group]
    starts: Sequence[int]
    dead: Mapping[bytes, BitMap]
    deaths: Mapping[bytes, Deaths]


@dataclass(frozen=True, slots=True)
class GroupEndings:
    """The effect of a commit that ends groups on the log's groups; empty if it ends none.

    ``dead`` and ``deaths`` refer to the added groups, ``numbers`` to the rows that moved.
    """

    in_order: list[Group] = field(default_factory=list)
    dead: dict[bytes, BitMap] = field(default_factory=dict)
    deaths: dict[bytes, Deaths] = field(default_factory=dict)
    numbers: list[range] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A group that ends, and where its first row lies among all rows of those that end."""

    group: Group
    base: int
    #: how many rows of the log come before it
    start: int

    @property
    def end(self) -> int:
        return self.base + self.group.count


def without(every: Mapping[bytes, T], uids: Container[bytes]) -> dict[bytes, T]:
    """All but these."""
    return {uid: entry for uid, entry in every.items() if uid not in uids}


def bitmap_of(killed: KilledRows) -> BitMap:
    rows = BitMap()
    for first, count in killed.runs:
        rows.add_range(first, first + count)
    return rows


def check_standing(body: CommitBody, live: LiveGroups) -> GroupEndings:
    """Check that the groups that a commit adds stand for those that it ends.

    Raises:
        LogBroken: they do not.
    """
    if not body.ended:
        return GroupEndings()
    pieces = list(_pieces(body, live))
    bases = [0, *accumulate(group.count for group in body.groups)]
    if pieces[-1].end != bases[-1]:
        raise LogBroken("a commit adds other rows than those of the groups that it ends")
    cuts = set(bases)
    for before, after in pairwise(pieces):
        if before.start + before.group.count != after.start and after.base not in cuts:
            raise LogBroken("a group would replace groups that are not neighbours")
    every_hole, every_killed = (_gathered(body, rows) for rows in (body.holes, body.killed))
    ends = [piece.end for piece in pieces]
    standing = GroupEndings()
    starts: dict[bytes, int] = {}
    for group, base in zip(body.groups, bases, strict=False):
        own = pieces[bisect_right(ends, base) : bisect_left(ends, base + group.count) + 1]
        starts[group.uid] = own[0].start + base - own[0].base
        dead = _dead_rows(group, base, own, live.dead)
        holes = every_hole.get(group.uid, BitMap())
        killed = every_killed.get(group.uid, BitMap())
        if holes | killed != dead or not holes.isdisjoint(killed):
            raise LogBroken("other rows are dead than in the groups that a commit ends")
        if not all(_is_no_lower(group, piece.group) for piece in own):
            raise LogBroken("a group states a lower length class than a group that it replaces")
        if dead:
            standing.dead[group.uid] = dead
            standing.deaths[group.uid] = _newest(own, live.deaths, len(dead))
    ended = set(body.ended)
    left = [
        (start, group)
        for group, start in zip(live.in_order, live.starts, strict=False)
        if group.uid not in ended
    ]
    added = [(starts[group.uid], group) for group in body.groups]
    standing.in_order.extend(row for _, row in sorted([*left, *added], key=lambda pair: pair[0]))
    standing.numbers.extend(range(piece.start, piece.start + piece.group.count) for piece in pieces)
    return standing


def _pieces(body: CommitBody, live: LiveGroups) -> Iterator[_Piece]:
    base, before = 0, -1
    for uid in body.ended:
        state = live.by_uid.get(uid)
        if state is None:
            raise LogBroken("a commit ends a group that is not live")
        if state.sequence <= before:
            raise LogBroken("a commit ends groups out of order")
        yield _Piece(state.group, base, live.starts[state.sequence])
        base, before = base + state.group.count, state.sequence


def _gathered(body: CommitBody, every: Sequence[KilledRows]) -> dict[bytes, BitMap]:
    """Rows of the groups that a commit adds, by group."""
    counts = {group.uid: group.count for group in body.groups}
    gathered: dict[bytes, BitMap] = {}
    for rows in every:
        if rows.end > counts.get(rows.group, 0):
            raise LogBroken("a commit that ends groups names rows of others")
        gathered[rows.group] = bitmap_of(rows)
    return gathered


def _dead_rows(
    group: Group, base: int, pieces: Sequence[_Piece], dead: Mapping[bytes, BitMap]
) -> BitMap:
    rows = BitMap()
    for piece in pieces:
        rows |= dead.get(piece.group.uid, BitMap()).shift(piece.base - base)
    return rows & BitMap(range(group.count))


def _is_no_lower(group: Group, before: Group) -> bool:
    had = dict(zip(before.fields, before.classes, strict=True))
    stated = zip(group.fields, group.classes, strict=True)
    return all(
        stated_class.length >= had[number].length
        for number, stated_class in stated
        if number in had
    )


def _newest(pieces: Sequence[_Piece], deaths: Mapping[bytes, Deaths], count: int) -> Deaths:
    """The newest deaths of these groups, up to ``count`` rows: a group that was split does not know
    the time of death of each row.
    """
    newest: list[tuple[int, int]] = []
    every = (death for piece in pieces for death in deaths.get(piece.group.uid, ()))
    for moment, rows in sorted(every, reverse=True):
        if count <= 0:
            break
        newest.append((moment, min(rows, count)))
        count -= rows
    return tuple(reversed(newest))
