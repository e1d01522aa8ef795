"""Whether a commit's changes fit the log before it (docs/SPEC.md, section 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyroaring import BitMap

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.layout import Laid
from encrypted_records.index.log.order import require
from encrypted_records.index.log.snapshot import GroupState
from encrypted_records.index.log.standing import bitmap_of
from encrypted_records.model.records import CommitBody, KilledRows, Segment
from encrypted_records.rules.commits import judging
from encrypted_records.rules.commits.judging import Size


def check_killed(
    every: Sequence[KilledRows], groups: Mapping[bytes, GroupState], dead: Mapping[bytes, BitMap]
) -> None:
    """Check that the rows that a commit ends are there and live.

    Raises:
        LogBroken: they are not.
    """
    for killed in every:
        state = groups.get(killed.group)
        if state is None or killed.end > state.group.count:
            raise LogBroken("a commit removes a row that does not exist")
        ended = dead.get(killed.group)
        if ended is not None and not ended.isdisjoint(bitmap_of(killed)):
            raise LogBroken("a commit removes a row that is dead")


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
    sizes = {uid: Size(groups[uid].group.count, len(dead.get(uid, ()))) for uid in freed}
    sizes |= {uid: Size(group.count, len(dead.get(uid, ()))) for uid, group in added.items()}
    require(judging.judge_cover(body.segments, sizes))
