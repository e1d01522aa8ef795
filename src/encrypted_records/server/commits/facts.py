"""Facts from other tables than its schema's row by which a commit is judged.

It is read under the lock of that row with two statements, of which the first is of the table of
rows alone: that may be in partitions, or over several servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from encrypted_records.server import sql
from encrypted_records.server.commits.checks import Checked
from encrypted_records.server.commits.signing import Signer
from encrypted_records.server.db.statements import Statement

#: Version and digest of a schema's commit of an id.
in_log = Statement(sql.LOGGED)
#: The numbers of a schema's segment, and group, of a uid.
segment_of_uid = Statement(sql.SEGMENT)
group_of_uid = Statement(sql.GROUP)
row_between = Statement(sql.ROW_BETWEEN)
commit_facts = Statement(sql.COMMIT_FACTS)
#: No id lies between these.
_NOWHERE = b"\xff" * 17, b""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that were read for one commit.

    ``logged`` is the row of :data:`in_log`; ``head`` is number and digest of the writer's last
    commit. ``has_segment`` and ``has_group`` say whether the uid of the commit's first one is
    taken, ``has_ids_between`` whether a row may have an id from the least to the greatest of the
    new records'.
    """

    signer: Signer
    logged: Sequence[Any] | None
    head: tuple[int, bytes] | None
    is_written: bool
    has_segment: bool
    has_group: bool
    has_ids_between: bool


def find(user: bytes, commit: Checked) -> Facts:
    """All of it, behind the lock of the schema's row.

    Args:
        user: the id of the one whose right is asked for.
    """
    body = commit.body
    ids = [row.record_id for row in commit.new_rows() if row.version == 1]
    first, last = (min(ids), max(ids)) if ids else _NOWHERE
    # First: rows move to objects, and never back, so none is missed by both questions.
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
        signer=Signer.of(found[:5]),
        logged=None if logged[0] is None else logged,
        head=None if counter is None else (counter, bytes(digest)),
        is_written=bool(is_written),
        has_segment=bool(has_segment),
        has_group=bool(has_group),
        has_ids_between=is_between or bool(is_changed) or bool(is_part),
    )
