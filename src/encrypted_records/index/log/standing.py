"""Groups that a commit ends, and those that stand for them (docs/SPEC.md, section 7.7).

A record keeps its place among all rows: those of the new groups are numbered as those of the old
ones were. So nothing that names a row by its number needs to know of such a commit.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeVar

from pyroaring import BitMap

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.ledger_state import Deaths
from encrypted_records.index.log.order import require
from encrypted_records.index.log.snapshot import GroupState
from encrypted_records.model.records import CommitBody, Group, KilledRows
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import EndedGroup

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
    if any(uid not in live.by_uid for uid in body.ended):
        raise LogBroken("a commit ends a group that is not live")
    old = [live.by_uid[uid] for uid in body.ended]
    ended = [
        EndedGroup(
            live.starts[state.sequence],
            state.group.count,
            dict(zip(state.group.fields, state.group.classes, strict=True)),
        )
        for state in old
    ]
    require(commit_judging.judge_replacement(ended, body.groups))
    holes, killed = _by_group(body.holes), _by_group(body.killed)
    standing = GroupEndings()
    starts: dict[bytes, int] = {}
    pieces = groupby(commit_judging.pieces_of(ended, body.groups), lambda piece: piece.new)
    for group, (_, some) in zip(body.groups, pieces, strict=True):
        own = list(some)
        uids = [body.ended[piece.old] for piece in own]
        starts[group.uid] = ended[own[0].old].start + own[0].first
        dead = BitMap()
        for uid, piece in zip(uids, own, strict=True):
            rows = live.dead.get(uid, BitMap()) & BitMap(range(piece.first, piece.end))
            dead |= rows.shift(piece.to - piece.first)
        gone = holes.get(group.uid, BitMap()), killed.get(group.uid, BitMap())
        if gone[0] | gone[1] != dead or not gone[0].isdisjoint(gone[1]):
            raise LogBroken("other rows are dead than in the groups that a commit ends")
        if dead:
            standing.dead[group.uid] = dead
            standing.deaths[group.uid] = _newest(uids, live.deaths, len(dead))
    gone_uids = set(body.ended)
    left = [
        (start, group)
        for group, start in zip(live.in_order, live.starts, strict=False)
        if group.uid not in gone_uids
    ]
    added = [(starts[group.uid], group) for group in body.groups]
    standing.in_order.extend(row for _, row in sorted([*left, *added], key=lambda pair: pair[0]))
    standing.numbers.extend(range(group.start, group.start + group.rows) for group in ended)
    return standing


def _by_group(every: Sequence[KilledRows]) -> dict[bytes, BitMap]:
    return {rows.group: bitmap_of(rows) for rows in every}


def _newest(uids: Sequence[bytes], deaths: Mapping[bytes, Deaths], count: int) -> Deaths:
    """The newest deaths of these groups, up to ``count`` rows: a group that was split does not know
    the time of death of each row.
    """
    newest: list[tuple[int, int]] = []
    every = (death for uid in uids for death in deaths.get(uid, ()))
    for moment, rows in sorted(every, reverse=True):
        if count <= 0:
            break
        newest.append((moment, min(rows, count)))
        count -= rows
    return tuple(reversed(newest))
