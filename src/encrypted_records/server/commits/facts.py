"""What a commit is judged by that stands in other tables than its schema's row.

It is read under the lock of that row with two statements, of which the first is of the table of
rows alone: that may be in partitions, or over several servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from encrypted_records.server import permissions
from encrypted_records.server.commits import signing
from encrypted_records.server.commits.checks import Checked
from encrypted_records.server.db.compiled_queries import (
    Compiled,
    Prepared,
    Together,
    as_driver_has_it,
)
from encrypted_records.server.records.models import (
    CommitLog,
    IndexSegment,
    RecordGroup,
    WriterHead,
)

#: Version and digest of a schema's commit of an id.
in_log = Prepared(
    lambda: CommitLog.objects.values_list("version", "digest"),
    "commit_log.schema_id",
    "commit_log.commit_id",
)
#: The numbers of a schema's segment, and group, of a uid.
segment_of_uid = Prepared(
    lambda: IndexSegment.objects.values_list("pk"), "index_segment.schema_id", "index_segment.uid"
)
group_of_uid = Prepared(
    lambda: RecordGroup.objects.values_list("pk"), "record_group.schema_id", "record_group.uid"
)
_ROWS = (
    in_log,
    signing.roster_head,
    signing.signer,
    Prepared(
        lambda: WriterHead.objects.values_list("counter", "digest"),
        "writer_head.schema_id",
        "writer_head.writer",
    ),
)


def _first(table: str, last: str, first: str) -> str:
    """SQL for the first row of a table whose span of ids ends behind one id and begins before
    another.

    It is asked for in the order of its index. PostgreSQL does not know that there is none, nearly
    always: without an order it looks through all of a table whose rows it takes to be among them.
    """
    return (
        f"SELECT {last} FROM {table} WHERE {last} >= %s AND {first} <= %s"  # noqa: S608  no input
        f" ORDER BY {last} LIMIT 1"
    )


def _exists(table: str, last: str, first: str) -> str:
    """The same as a part of a statement, which takes no order from what it only asks for."""
    return f"SELECT 1 FROM ({_first(table, last, first)}) AS one"  # noqa: S608  no input


_EXIST = (
    permissions.written,
    segment_of_uid,
    group_of_uid,
    _exists("changed_row", "record_id", "record_id"),
    _exists("row_part", "last_id", "first_id"),
)
_questions = Together(_ROWS, _EXIST)
_BETWEEN = _first("record_row", "record_id", "record_id")
#: No id lies between these.
_NOWHERE = b"\xff" * 17, b""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found.

    ``logged`` is the row of :data:`in_log`, ``roster_head`` and ``signer`` are those of
    :data:`.signing.roster_head` and :data:`.signing.signer`; ``head`` is number and digest of the
    writer's last commit. ``has_segment`` and ``has_group`` say whether the uid of the commit's
    first one is taken, ``has_ids_between`` whether a row may have an id from the least to the
    greatest of the new records'.
    """

    logged: Sequence[Any] | None
    roster_head: Sequence[Any]
    signer: Sequence[Any] | None
    head: tuple[int, bytes] | None
    is_written: bool
    has_segment: bool
    has_group: bool
    has_ids_between: bool


def find(member: bytes, commit: Checked) -> Facts:
    """All of it, behind the lock of the schema's row.

    Args:
        member: the id of the user whose right is asked for.
    """
    body = commit.body
    schema = body.schema
    ids = [row.record_id for row in commit.new_rows() if row.version == 1]
    span = (min(ids), max(ids)) if ids else _NOWHERE
    # First: rows move to objects, and never back, so none is missed by both questions.
    is_between = bool(_are_between().rows(span))
    exist, (logged, roster_head, signer, head) = _questions.answers(
        ((schema, body.id), (schema,), (schema, body.member), (schema, body.writer)),
        (
            (schema, member),
            (schema, body.segments[0].uid if body.segments else b""),
            (schema, body.groups[0].uid if body.groups else b""),
            span,
            span,
        ),
    )
    is_written, has_segment, has_group, *have_ids = exist
    assert roster_head is not None, "the schema is locked"
    return Facts(
        logged=logged,
        roster_head=roster_head,
        signer=signer,
        head=None if head is None else (head[0], bytes(head[1])),
        is_written=is_written,
        has_segment=has_segment,
        has_group=has_group,
        has_ids_between=is_between or any(have_ids),
    )


@cache
def _are_between() -> Compiled:
    return Compiled(as_driver_has_it(_BETWEEN), (), (), 1)
