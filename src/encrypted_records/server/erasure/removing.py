"""Delete rows and pages, and all else that is known of them, in SQL. Callers decide and hold the
transaction, as of :mod:`..records.store`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from django.db import connection

from encrypted_records.model import ids
from encrypted_records.server.objects import objects
from encrypted_records.server.records import store
from encrypted_records.server.records.bulk_tables import ChangedRow, PagePart, RowPart
from encrypted_records.server.records.models import IndexSegment, RecordGroup


def drop_rows(group: int, first: int, count: int, *, at_once: bool = False) -> None:
    """Delete the rows of the parts that begin in this range."""
    end = first + count
    some = RowPart.objects.filter(group_id=group, first__gte=first, first__lt=end)
    objects.drop(some, at_once=at_once)
    ChangedRow.objects.filter(group_id=group, ordinal__gte=first, ordinal__lt=end).delete()
    _run("DELETE FROM row_run WHERE group_id = %s AND first = %s", group, first)
    _run(
        "DELETE FROM record_row WHERE group_id = %s AND ordinal >= %s AND ordinal < %s",
        group,
        first,
        end,
    )


def drop_groups(groups: Collection[int], *, at_once: bool = False) -> None:
    """Delete all rows of these groups, and what is known of them: which died, digests."""
    if groups:
        objects.drop(RowPart.objects.filter(group_id__in=groups), at_once=at_once)
        for table in _OF_GROUPS:
            _drop_of(table, "group_id", groups)


def drop_page(segment: int, number: int) -> None:
    """Delete a page, or the part that begins with it."""
    objects.drop(PagePart.objects.filter(segment_id=segment, first=number))
    _run("DELETE FROM index_page WHERE segment_id = %s AND number = %s", segment, number)


def drop_empty(staging: int) -> None:
    """Delete the groups and segments of a staging that have no row or page."""
    for parents, beside in (
        ("record_group", ("group_id", "row_run")),
        ("index_segment", ("segment_id", "index_page", "page_part")),
    ):
        column, *tables = beside
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {parents} WHERE staging_id = %s", [staging])  # noqa: S608
            numbers = {number for (number,) in cursor.fetchall()}
        full = {one for table in tables for one in _among(table, column, numbers)}
        _drop_of(parents, "id", numbers - full)


def drop_staged(staging: int) -> None:
    """Delete all rows and pages of a staging."""
    groups = RecordGroup.objects.filter(staging=staging).values_list("pk", flat=True)
    segments = IndexSegment.objects.filter(staging=staging).values_list("pk", flat=True)
    objects.drop(RowPart.objects.filter(group_id__in=groups))
    objects.drop(PagePart.objects.filter(segment_id__in=segments))
    for table in ("changed_row", "row_run", "record_row"):
        _drop_of(table, "group_id", groups)
    _drop_of("index_page", "segment_id", segments)


def _drop_of(table: str, column: str, numbers: Iterable[int]) -> None:
    """Delete what a table has of these groups or segments. Each is named, so that a table in
    partitions is asked only where they are."""
    for some in store.cut(sorted(numbers)):
        marks = ", ".join(["%s"] * len(some))
        _run(f"DELETE FROM {table} WHERE {column} IN ({marks})", *some)  # noqa: S608  no input


def _among(table: str, column: str, numbers: Iterable[int]) -> Iterator[int]:
    """The groups or segments among these numbers of which a table has rows."""
    for some in store.cut(sorted(numbers)):
        marks = ", ".join(["%s"] * len(some))
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT DISTINCT {column} FROM {table} WHERE {column} IN ({marks})",  # noqa: S608
                list(some),
            )
            yield from (number for (number,) in cursor.fetchall())


def drop_pages(segments: Collection[int], *, at_once: bool = False) -> None:
    """Delete all pages of these segments, at most some hundred."""
    if segments:
        objects.drop(PagePart.objects.filter(segment_id__in=segments), at_once=at_once)
        marks = ", ".join(["%s"] * len(segments))
        _run(f"DELETE FROM index_page WHERE segment_id IN ({marks})", *segments)  # noqa: S608


def drop_pages_from(segment: int, first: int, *, at_once: bool = False) -> None:
    """Delete the pages of a segment from number ``first`` on, but none of a part that begins
    before it."""
    some = PagePart.objects.filter(segment_id=segment, first__gte=first)
    objects.drop(some, at_once=at_once)
    _run("DELETE FROM index_page WHERE segment_id = %s AND number >= %s", segment, first)


#: Of the groups of a schema, and then of the schema itself, children before parents.
_OF_GROUPS = ("changed_row", "dead_row", "erased_row", "row_run", "record_row")
_ERASE = (
    "DELETE FROM record_group WHERE schema_id = %s",
    "DELETE FROM staged_part WHERE staging_id IN (SELECT id FROM staging WHERE schema_id = %s)",
    "DELETE FROM index_segment WHERE schema_id = %s",
    "DELETE FROM staging WHERE schema_id = %s",
    "DELETE FROM writer_head WHERE schema_id = %s",
    "DELETE FROM commit_request WHERE schema_id = %s",
    "DELETE FROM commit_log WHERE schema_id = %s",
    "DELETE FROM log_checkpoint WHERE schema_id = %s",
    "DELETE FROM hold WHERE schema_id = %s",
    "DELETE FROM asked_erasure WHERE schema_id = %s",
)


def erase(schema: bytes) -> None:
    """Delete everything stored for a schema, by the 16 bytes of its id."""
    # Before anything that is in them: as sweeps and moves lock, else each would wait for the other.
    groups, segments = (
        list(
            parents._default_manager.filter(schema=ids.to_text(schema))
            .order_by("pk")
            .select_for_update(of=("self",))
            .values_list("pk", flat=True)
        )
        for parents in (RecordGroup, IndexSegment)
    )
    every = RecordGroup.objects.filter(schema=ids.to_text(schema)).values("pk")
    objects.drop(RowPart.objects.filter(group_id__in=every))
    every_segment = IndexSegment.objects.filter(schema=ids.to_text(schema)).values("pk")
    objects.drop(PagePart.objects.filter(segment_id__in=every_segment))
    for table in _OF_GROUPS:
        _drop_of(table, "group_id", groups)
    _drop_of("index_page", "segment_id", segments)
    for statement in _ERASE:
        _run(statement, schema)


def _run(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
