"""Whether a commit's changes fit the log before it (docs/SPEC.md, section 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyroaring import BitMap

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.layout import Laid
from encrypted_records.index.log.resealed import KeyName
from encrypted_records.index.log.snapshot import GroupState
from encrypted_records.index.log.standing import bitmap_of
from encrypted_records.model.records import CommitBody, KilledRows, Segment


def check_killed(
    every: Sequence[KilledRows], groups: Mapping[bytes, GroupState], dead: Mapping[bytes, BitMap]
) -> None:
    """Check that the rows that a commit ends are there and live.

    Raises:
        LogBroken: they are not.
    """
    if len({killed.group for killed in every}) != len(every):
        raise LogBroken("a commit removes rows of one group twice")
    for killed in every:
        state = groups.get(killed.group)
        if not killed.in_order:
            raise LogBroken("a commit names rows out of order")
        if state is None or killed.end > state.group.count:
            raise LogBroken("a commit removes a row that does not exist")
        ended = dead.get(killed.group)
        if ended is not None and not ended.isdisjoint(bitmap_of(killed)):
            raise LogBroken("a commit removes a row that is dead")


def check_key(
    body: CommitBody,
    first: KeyName | None,
    present: KeyName | None,
    since: int,
    resealed: int,
) -> None:
    """Check the commit's key version against the log before it (docs/SPEC.md, section 7.5).

    Args:
        first, present: names of the keys of the first and of the newest commit before it.
        since: the log version at which the latter came in.
        resealed: that at which everything was sealed again, the newest time; 0 if it never was.

    Raises:
        LogBroken: it may not be of this version.
    """
    if not body.of_one_key:
        raise LogBroken("a commit adds a group or segment of another key version")
    if present is None or first is None:
        return
    if body.key_version < present[0]:
        raise LogBroken("a commit goes back to an older key version")
    if body.key_version > present[0] and body.seen < since:
        raise LogBroken("a commit brings a new key without having seen the one before")
    if body.key_version > first[0] and body.seen < 1:
        raise LogBroken("a commit was made without having seen how the log begins")
    if body.segments and body.seen < resealed:
        raise LogBroken("a commit brings an index and has not seen that all was sealed again")


def check_cover(
    body: CommitBody,
    groups: Mapping[bytes, GroupState],
    segments: Mapping[bytes, Segment],
    dead: Mapping[bytes, BitMap],
    laid: Mapping[bytes, Laid],
) -> None:
    """Check that each group belongs to exactly one live segment, before and after, and that counts
    add up. A compaction, whose segment stays, is :mod:`.layout`'s.

    Args:
        groups, segments, laid: those that are live before the commit.
        dead: rows of these groups, and of those that it adds.

    Raises:
        LogBroken: they do not.
    """
    uids = [segment.uid for segment in body.segments]
    if len(set(uids)) != len(uids) or any(uid in segments for uid in uids):
        raise LogBroken("a commit adds a segment that exists")
    added = {group.uid: group for group in body.groups}
    freed: list[bytes] = []
    for uid in body.replaced:
        if uid not in segments or body.replaced.count(uid) > 1:
            raise LogBroken("a commit replaces a segment that is not live")
        freed += [group for group, _ in laid.get(uid, segments[uid].groups)]
    ended = set(body.ended)
    if not ended.issubset(freed):
        raise LogBroken("a commit ends a group whose segment it does not replace")
    freed = [uid for uid in freed if uid not in ended]
    covered = [group for segment in body.segments for group, _ in segment.groups]
    if sorted(covered) != sorted([*freed, *added]):
        raise LogBroken("a commit's segments do not cover exactly its groups")
    for segment in body.segments:
        base = gone = 0
        for uid, stated in segment.groups:
            group = added.get(uid) or groups[uid].group
            if stated != base:
                raise LogBroken("a segment's groups do not follow one another")
            base += group.count
            gone += len(dead.get(uid, ()))
        if segment.count + segment.purged != base or segment.purged > gone:
            raise LogBroken("a segment's counts do not add up")
