"""Rules for the next commit of a log, as far as they need no key.

Readers refuse a log with any other commit, so the API accepts none. Each side passes its state of
the log before the commit, and reports faults in its own errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.records import MAX_BEHIND, CommitBody, Group, KilledRows, Segment

#: Version and id of a key.
KeyName: TypeAlias = tuple[int, bytes]


class CommitFault(Enum):
    """The reason why a commit may not follow, as a sentence."""

    FOREIGN_KEY = "a commit adds a group or segment of another key version"
    ROWS_ORDER = "a commit names rows out of order"
    ROWS_TWICE = "a commit names rows of one group twice"
    HOLES = "a commit adds a group with holes, and ends none"
    ENDED_REQUEST = "a commit that ends groups stores a request"
    NO_COMPACTION = "a commit ends groups of a segment that stays, and does more"
    REQUEST_TWICE = "a commit names a request twice that is stored by it"
    ROWS_OF_OTHERS = "a commit that ends groups names rows of others"

    OLDER_KEY = "a commit goes back to an older key version"
    UNSEEN_KEY = "a commit brings a new key without having seen the one before"
    UNSEEN_START = "a commit was made without having seen how the log begins"
    WRITER = "a commit does not follow its writer's last one"
    UNSEEN_RESEAL = "a commit brings an index and has not seen that all was sealed again"
    UNSEEN_RECORDS = "records were added before a commit that had not seen them"
    BEHIND = f"a commit had seen a log that is older by more than {MAX_BEHIND} versions"
    OTHER_LOG = "a commit had seen a log that is not a beginning of this one"

    NOT_ITS_GROUPS = "a commit's segments cover a group that is not theirs to cover"
    COVERED_TWICE = "a commit's segments cover a group twice"
    UNCOVERED = "a commit's segments do not cover a group"
    BASES = "a segment's groups do not follow one another"
    COUNTS = "a segment's counts do not add up"

    ENDED_ORDER = "a commit ends groups out of order"
    OTHER_ROWS = "a commit adds other rows than those of the groups that it ends"
    NEIGHBOURS = "a group would replace groups that are not neighbours"
    LOWER_CLASS = "a group states a lower length class than a group that it replaces"


def judge_form(body: CommitBody) -> CommitFault | None:
    """The reason why a commit is invalid in any log; None if its lists are consistent."""
    if not body.of_one_key:
        return CommitFault.FOREIGN_KEY
    reason = _judge_rows(body.killed) or _judge_rows(body.holes)
    if reason is not None:
        return reason
    if len(body.requests) > 1 and len(set(body.requests)) < len(body.requests):
        return CommitFault.REQUEST_TWICE
    if not body.ended:
        return CommitFault.HOLES if body.holes else None
    if body.requests:
        return CommitFault.ENDED_REQUEST
    counts = {group.uid: group.count for group in body.groups}
    if any(rows.end > counts.get(rows.group, 0) for rows in (*body.holes, *body.killed)):
        return CommitFault.ROWS_OF_OTHERS
    more = body.segments or body.exact or body.definition_text or len(body.groups) != 1
    return CommitFault.NO_COMPACTION if body.compacts and more else None


def _judge_rows(killed: Sequence[KilledRows]) -> CommitFault | None:
    if not killed:
        return None
    if not all(rows.in_order for rows in killed):
        return CommitFault.ROWS_ORDER
    return CommitFault.ROWS_TWICE if len({rows.group for rows in killed}) < len(killed) else None


class Log(NamedTuple):
    """A log before a commit.

    Attributes:
        version: the newest version.
        added_at: the newest version that added records.
        resealed_at: the newest version at which everything was sealed again; 0 if that never
            happened.
        first: the key version of the first commit, or of the newest commit that sealed everything
            again; None if the log is empty.
        present: the key version of the newest commit.
        present_since: the version at which ``present`` was introduced.
    """

    version: int
    added_at: int
    resealed_at: int
    first: int | None
    present: int | None
    present_since: int


def judge_keys(body: CommitBody, log: Log) -> CommitFault | None:
    """The reason why a commit may not have its key version (docs/SPEC.md, section 7.5)."""
    if log.present is None or log.first is None:
        return None
    if body.key_version < log.present:
        return CommitFault.OLDER_KEY
    if body.key_version > log.present and body.seen < log.present_since:
        return CommitFault.UNSEEN_KEY
    return CommitFault.UNSEEN_START if body.key_version > log.first and body.seen < 1 else None


def judge_order(body: CommitBody, log: Log, writer: tuple[int, bytes]) -> CommitFault | None:
    """The reason why a commit may not follow its writer's last commit here, or why its ``seen``
    version is too old.

    Args:
        writer: counter and digest of the writer's last commit; 0 and zero bytes before any.
    """
    counter, digest = writer
    if body.counter != counter + 1 or body.previous != digest:
        return CommitFault.WRITER
    if body.segments and body.seen < log.resealed_at:
        return CommitFault.UNSEEN_RESEAL
    if body.exact and body.seen < log.added_at:
        return CommitFault.UNSEEN_RECORDS
    if log.version - body.seen > MAX_BEHIND:
        return CommitFault.BEHIND
    return CommitFault.OTHER_LOG if body.seen > log.version else None


class Size(NamedTuple):
    """The number of rows of a group, and the number of dead rows among them."""

    rows: int
    dead: int = 0


def judge_cover(segments: Sequence[Segment], groups: Mapping[bytes, Size]) -> CommitFault | None:
    """The reason why segments do not cover exactly these groups, each once and without gaps.

    A segment may leave rows out, but no more than are dead (docs/SPEC.md, section 6.4).
    """
    covered: set[bytes] = set()
    for segment in segments:
        base = dead = 0
        for uid, stated in segment.groups:
            size = groups.get(uid)
            if size is None:
                return CommitFault.NOT_ITS_GROUPS
            if uid in covered:
                return CommitFault.COVERED_TWICE
            if stated != base:
                return CommitFault.BASES
            covered.add(uid)
            base += size.rows
            dead += size.dead
        if segment.count + segment.purged != base or segment.purged > dead:
            return CommitFault.COUNTS
    return None if len(covered) == len(groups) else CommitFault.UNCOVERED


class EndedGroup(NamedTuple):
    """A group that a commit ends.

    Attributes:
        start: the number of rows of the log before it.
        rows: the number of its rows.
        classes: the least length class that it states of each field, by field.
    """

    start: int
    rows: int
    classes: Mapping[int, LeastClass]


class MovedRows(NamedTuple):
    """Rows that keep their place in the log while their group changes.

    Rows ``first`` to below ``end`` of the ended group number ``old`` are those of the added group
    number ``new`` from ``to`` on.
    """

    old: int
    first: int
    end: int
    new: int
    to: int

    @property
    def to_end(self) -> int:
        return self.to + self.end - self.first


def pieces_of(ended: Sequence[EndedGroup], added: Sequence[Group]) -> list[MovedRows]:
    """The pieces of ended groups that make up the added groups, in order.

    Both have the same total number of rows.
    """
    olds = list(accumulate((group.rows for group in ended), initial=0))
    news = list(accumulate((group.count for group in added), initial=0))
    pieces = []
    for first, end in pairwise(sorted({*olds, *news})):
        old, new = bisect_right(olds, first) - 1, bisect_right(news, first) - 1
        pieces.append(MovedRows(old, first - olds[old], end - olds[old], new, first - news[new]))
    return pieces


def judge_replacement(ended: Sequence[EndedGroup], added: Sequence[Group]) -> CommitFault | None:
    """The reason why groups that a commit adds cannot replace those that it ends (docs/SPEC.md,
    section 7.7)."""
    starts = [group.start for group in ended]
    if starts != sorted(set(starts)):
        return CommitFault.ENDED_ORDER
    if sum(group.rows for group in ended) != sum(group.count for group in added):
        return CommitFault.OTHER_ROWS
    cuts = set(accumulate(group.count for group in added))
    ends = accumulate(group.rows for group in ended)
    for end, (group, after) in zip(ends, pairwise(ended), strict=False):
        if group.start + group.rows != after.start and end not in cuts:
            return CommitFault.NEIGHBOURS
    pieces = pieces_of(ended, added)
    if all(_is_no_lower(added[piece.new], ended[piece.old].classes) for piece in pieces):
        return None
    return CommitFault.LOWER_CLASS


def _is_no_lower(group: Group, had: Mapping[int, LeastClass]) -> bool:
    stated = zip(group.fields, group.classes, strict=True)
    return all(part.length >= had[number].length for number, part in stated if number in had)
