"""The present groups of a live segment: those that its commit names, or, after compactions, other
groups in place of some of them (docs/SPEC.md, section 7.7.2).

Local ordinals of a segment never change. So its commit and its header go on to name the groups that
it was made over, and the ledger keeps beside it those that stand for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.snapshot import GroupState
from encrypted_records.model.records import CommitBody, Segment

#: Groups with the local ordinals at which they begin, in the order of these.
Laid = Sequence[tuple[bytes, int]]


def lay_anew(
    body: CommitBody,
    groups: Mapping[bytes, GroupState],
    home: Mapping[bytes, bytes],
    segments: Mapping[bytes, Segment],
    laid: Mapping[bytes, Laid],
) -> dict[bytes, Laid]:
    """The groups of a segment after a compaction, by the segment's uid.

    Args:
        body: of a compaction; all other rules on the group that stands for ended ones hold.
        groups, home, segments, laid: the state before the compaction: the groups, the segment of
            each, the live segments, and their layout.

    Raises:
        LogBroken: the commit is not a valid compaction.
    """
    homes = {home[uid] for uid in body.ended}
    if len(homes) != 1:
        raise LogBroken("a commit ends groups of several segments that stay")
    (segment,) = homes
    before = laid.get(segment, segments[segment].groups)
    bases = dict(before)
    at = base = bases[body.ended[0]]
    for uid in body.ended:
        if bases[uid] != at:
            raise LogBroken("a group would replace groups that are not neighbours in a segment")
        at += groups[uid].group.count
    ended = set(body.ended)
    kept = [(uid, begin) for uid, begin in before if uid not in ended]
    return {segment: sorted([*kept, (body.groups[0].uid, base)], key=itemgetter(1))}
