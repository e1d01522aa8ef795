"""Checks of a commit by itself, whatever the database contains. Pure.

Rules: the body has the digest that its writer signed; groups, rows, segments and pages are complete
and agree with each other; every field has the version byte and a length that its group states, and
a group states at least the length classes of the definition. So nothing but ciphertext of our
format can be stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from encrypted_records.errors import BadInput
from encrypted_records.model import records, wire
from encrypted_records.model.ciphertext_lengths import (
    SEAL_VERSION,
    TAG_BYTES,
    LeastClass,
    are_sealed_fields,
    is_class,
    is_class_of,
)
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import CommitFault
from encrypted_records.server.records.bindings import (
    PackedBatch,
    SaltsAndHeaders,
    bind_groups,
    bind_segments,
)


@dataclass(frozen=True)
class Staged:
    """Database numbers of the staged groups and segments that a commit names, by uid."""

    groups: dict[bytes, int]
    segments: dict[bytes, int]
    #: id and version of each row of a version above 1
    changed: list[tuple[bytes, int]] = field(default_factory=list)


@dataclass(frozen=True)
class CheckedCommit:
    """A commit that is valid in itself.

    ``rows`` holds each group's rows by ordinal, ``pages`` each segment's pages by number.
    ``batches`` are the rows as they are stored, ``digests`` those of the pages. Staged rows and
    pages are in none of them.
    """

    commit: records.Commit
    body: records.CommitBody
    digest: bytes
    rows: dict[bytes, list[records.SealedRow | None]] = field(repr=False)
    pages: dict[bytes, list[bytes]] = field(repr=False)
    salts_and_headers: SaltsAndHeaders = field(repr=False)
    batches: list[PackedBatch] = field(repr=False)
    digests: dict[bytes, list[bytes]] = field(repr=False)
    staged: Staged | None = None

    def new_rows(self) -> Iterator[records.SealedRow]:
        for rows in self.rows.values():
            yield from (row for row in rows if row is not None)

    def changed(self) -> list[tuple[bytes, int]]:
        """Id and version of each row of a version above 1."""
        changed = [(row.record_id, row.version) for row in self.new_rows() if row.version > 1]
        return changed + (self.staged.changed if self.staged else [])


def check(upload: records.CommitUpload) -> CheckedCommit:
    """A commit whose parts agree with each other.

    Raises:
        Malformed: its body is not of this format.
        BadInput: ``invalid_commit``; the message names the rule.
    """
    body = wire.decode_commit_body(upload.commit)
    check_lists(body)
    rows, pages = _rows(body, upload), _pages(body.segments, upload.pages)
    salts_and_headers = SaltsAndHeaders.of(
        (group.uid for group in body.groups),
        (segment.uid for segment in body.segments),
        upload.salts,
        upload.headers,
    )
    return CheckedCommit(
        commit=upload.commit,
        body=body,
        digest=wire.commit_digest(upload.commit),
        rows=rows,
        pages=pages,
        salts_and_headers=salts_and_headers,
        batches=bind_groups(body.groups, rows, salts_and_headers),
        digests=bind_segments(body.segments, pages, salts_and_headers),
    )


def check_bare(commit: records.Commit) -> CheckedCommit:
    """A commit whose rows and pages are staged.

    Raises:
        Malformed, BadInput: as :func:`check`.
    """
    body = wire.decode_commit_body(commit)
    check_lists(body)
    return CheckedCommit(
        commit, body, wire.commit_digest(commit), {}, {}, SaltsAndHeaders({}, {}), [], {}
    )


def check_sealed(checked: CheckedCommit, definitions: Mapping[bytes, SchemaDefinition]) -> None:
    """Check names and shapes against the definitions that the groups name.

    Args:
        definitions: by digest.

    Raises:
        BadInput: ``invalid_commit``, or ``not_sealed`` for bytes that no sealing produces.
    """
    for group in checked.body.groups:
        _check_rows(checked.rows[group.uid], _classes(group, definitions[group.definition]))


def check_stated(
    groups: Sequence[records.Group], definitions: Mapping[bytes, SchemaDefinition]
) -> None:
    """Check fields and classes of staged groups against the definitions that they name.

    Args:
        definitions: by digest.

    Raises:
        BadInput: ``invalid_commit``.
    """
    for group in groups:
        _classes(group, definitions[group.definition])


def check_part(upload: records.PartUpload, definition: SchemaDefinition | None) -> None:
    """Check that a part announces exactly its content, and that this content is sealed.

    Args:
        definition: the definition that the part was made under; None if its commit will bring it.

    Raises:
        BadInput: ``invalid_commit``; ``not_sealed`` for bytes that no sealing produces.
    """
    part = upload.part
    require(
        {group.definition for group in part.groups}
        | {segment.definition for segment in part.segments}
        <= {part.definition},
        "a group or segment is of another definition than its part",
    )
    classes = {group.uid: _classes(group, definition) for group in part.groups}
    counts = {group.uid: group.count for group in part.groups}
    segments = {segment.uid: segment for segment in part.segments}
    require(
        len(classes) == len(part.groups) and len(segments) == len(part.segments),
        "a part names a group or a segment twice",
    )
    for batch in upload.rows:
        require(batch.group in classes, "rows of a group that the part does not announce")
        require(
            0 < len(batch.rows) <= counts[batch.group] - batch.first,
            "a batch has no rows, or more than its group",
        )
        require(
            bool(part.stands) or None not in batch.rows,
            "a group has holes, but replaces no other groups",
        )
        _check_packed(batch, classes[batch.group])
    for page in upload.pages:
        segment = segments.get(page.segment)
        if segment is None:
            raise _invalid("pages of a segment that the part does not announce")
        require(page.number < segment.pages, "a page's number is beyond its segment's pages")
        _check_page(segment, page.data)


def _classes(group: records.Group, definition: SchemaDefinition | None) -> list[LeastClass]:
    """The length class that a group states for each of its fields, in order."""
    require(
        definition is None or group.fields == definition.ids,
        "a group's fields are not those of its definition",
    )
    require(
        len(group.classes) == len(group.fields),
        "a group does not state a length class for each of its fields",
    )
    if definition is None:
        require(
            all(map(is_class, group.classes)), "a group states a length class that no field has"
        )
        return group.classes
    require(
        all(map(is_class_of, definition.fields.values(), group.classes)),
        "a group states a length class below that of its field's definition",
    )
    return group.classes


def _check_rows(
    every_row: Sequence[records.SealedRow | None], classes: Sequence[LeastClass]
) -> None:
    rows = [row for row in every_row if row is not None]
    require(all(row.version >= 1 for row in rows), "a record's version is below 1")
    fields_of_rows = [row.fields for row in rows]
    require(
        set(map(len, fields_of_rows)) <= {len(classes)}, "a row does not have one value per field"
    )
    if not all(map(are_sealed_fields, zip(*fields_of_rows, strict=True), classes)):
        raise _not_sealed()


def _check_packed(batch: records.PackedRowBatch, classes: Sequence[LeastClass]) -> None:
    """Check the classes of packed rows, as :func:`_check_rows` checks unpacked rows."""
    rows = [row for row in batch.rows if row is not None]
    require(all(row.version >= 1 for row in rows), "a record's version is below 1")
    if not records.are_packed_fields([row.packed for row in rows], classes):
        raise _not_sealed()


def _not_sealed() -> BadInput:
    return BadInput(
        "a field's bytes cannot be ciphertext of this format",
        code="not_sealed",
        hint="records are encrypted by the proxy; send them there",
    )


def check_lists(body: records.CommitBody) -> None:
    """Check that the commit changes something, and names nothing twice.

    Raises:
        BadInput: ``invalid_commit``.
    """
    require_none(commit_judging.judge_form(body))
    text = body.definition_text
    require(
        not text or hashlib.sha256(text).digest() == body.definition,
        "the definition that a commit brings is not the one that it names",
    )
    require(
        body.killed_count <= records.MAX_KILLED,
        f"a commit ends more than {records.MAX_KILLED} rows",
    )
    require(
        bool(text) or body.changes_data,
        "a commit must bring a definition, add groups, end rows or replace segments",
    )
    for references, part in (
        ([group.uid for group in body.groups], "a group"),
        ([segment.uid for segment in body.segments], "a segment"),
        (body.replaced, "a replaced segment"),
        (body.ended, "a group that ends"),
    ):
        require(len(set(references)) == len(references), f"{part} is named twice")


def _rows(
    body: records.CommitBody, upload: records.CommitUpload
) -> dict[bytes, list[records.SealedRow | None]]:
    rows: dict[bytes, list[records.SealedRow | None]] = {group.uid: [] for group in body.groups}
    for batch in upload.rows:
        group_rows = rows.get(batch.group)
        if group_rows is None:
            raise _invalid("rows of a group that the commit does not add")
        require(batch.first == len(group_rows), "a group's rows are not in order, or not complete")
        group_rows.extend(records.sealed_rows(batch))
    holes = {hole.group: [row.ordinal for row in hole.rows()] for hole in body.holes}
    for group in body.groups:
        rows_of_group = rows[group.uid]
        require(len(rows_of_group) == group.count, "a group's rows are not complete")
        without = (
            [at for at, row in enumerate(rows_of_group) if row is None]
            if None in rows_of_group
            else []
        )
        require(without == holes.get(group.uid, []), "a group's holes are not those of its rows")
    return rows


def _pages(
    segments: Sequence[records.Segment], sent: Sequence[records.Page]
) -> dict[bytes, list[bytes]]:
    pages: dict[bytes, list[bytes]] = {segment.uid: [] for segment in segments}
    for page in sent:
        segment_pages = pages.get(page.segment)
        if segment_pages is None:
            raise _invalid("pages of a segment that the commit does not add")
        require(
            page.number == len(segment_pages), "a segment's pages are not in order, or not complete"
        )
        segment_pages.append(page.data)
    for segment in segments:
        contents = pages[segment.uid]
        require(len(contents) == segment.pages, "a segment's pages are not complete")
        check_form(segment)
        for data in contents:
            _check_page(segment, data)
    return pages


def check_form(segment: records.Segment) -> None:
    """Check the constraints on a mini segment.

    Raises:
        BadInput: ``invalid_commit``.
    """
    if segment.form == "mini":
        require(segment.pages == 1, "a mini segment has exactly one page")
        require(segment.count <= records.MAX_MINI_RECORDS, "a mini segment covers too many records")


def _check_page(segment: records.Segment, data: bytes) -> None:
    require(
        data[:1] == bytes([SEAL_VERSION]) and len(data) > 1 + TAG_BYTES,
        "a page's bytes cannot be ciphertext of this format",
    )
    require(
        segment.form == "mini" or len(data) == records.PAGE_BYTES,
        f"a page of a paged segment is not {records.PAGE_BYTES} bytes long",
    )


def require(holds: bool, rule: str) -> None:
    """
    Raises:
        BadInput: ``invalid_commit``, naming the rule that does not hold.
    """
    if not holds:
        raise _invalid(rule)


def require_none(reason: CommitFault | None) -> None:
    """
    Raises:
        BadInput: ``invalid_commit``; the commit may not follow, for this reason.
    """
    if reason is not None:
        raise _invalid(reason.value)


def _invalid(rule: str) -> BadInput:
    return BadInput(rule, code="invalid_commit")
