"""What a commit must be in itself, whatever the database holds. Pure.

Rules upheld here: the body is what its writer digested; groups, rows, segments and pages are
complete and agree with each other; every field has the version byte and a length that a sealed
field of its type can have. So nothing that is not ciphertext of our format can be stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from encrypted_records.errors import BadInput
from encrypted_records.model import wire
from encrypted_records.model.definition import FieldType, SchemaDefinition
from encrypted_records.model.records import (
    MAX_MINI_RECORDS,
    PAGE_BYTES,
    Commit,
    CommitBody,
    CommitUpload,
    Group,
    Page,
    PartUpload,
    SealedRow,
    Segment,
)
from encrypted_records.model.shapes import SEAL_VERSION, TAG_BYTES, are_sealed_fields


@dataclass(frozen=True)
class Staged:
    """What a commit found stored ahead: the numbers of its groups and segments, by uid."""

    groups: dict[bytes, int]
    segments: dict[bytes, int]


@dataclass(frozen=True)
class Checked:
    """A commit that is sound in itself.

    ``rows`` holds each group's rows by ordinal, ``pages`` each segment's pages by number; of what
    is stored ahead, nothing.
    """

    commit: Commit
    body: CommitBody
    digest: bytes
    rows: dict[bytes, list[SealedRow]] = field(repr=False)
    pages: dict[bytes, list[bytes]] = field(repr=False)
    staged: Staged | None = None

    def new_rows(self) -> Iterator[SealedRow]:
        for rows in self.rows.values():
            yield from rows


def check(upload: CommitUpload) -> Checked:
    """A commit whose parts agree with each other.

    Raises:
        Malformed: its body is not of this format.
        BadInput: ``invalid_commit``; the message names the rule.
    """
    body = wire.decode_commit_body(upload.commit)
    check_content(body, [wire.part_digest(upload.rows, upload.pages)])
    check_lists(body)
    return Checked(
        commit=upload.commit,
        body=body,
        digest=wire.commit_digest(upload.commit),
        rows=_rows(body.groups, upload),
        pages=_pages(body.segments, upload.pages),
    )


def check_bare(commit: Commit) -> Checked:
    """A commit whose rows and pages are stored ahead.

    Raises:
        Malformed, BadInput: as :func:`check`.
    """
    body = wire.decode_commit_body(commit)
    check_lists(body)
    return Checked(commit, body, wire.commit_digest(commit), {}, {})


def check_sealed(checked: Checked, definition: SchemaDefinition) -> None:
    """Check names and shapes against the definition that the commit names.

    Raises:
        BadInput: ``invalid_commit``, or ``not_sealed`` for bytes that no sealing produces.
    """
    for group in checked.body.groups:
        kinds = _kinds(group, definition)
        _check_rows(checked.rows[group.uid], kinds)


def check_part(upload: PartUpload, definition: SchemaDefinition) -> None:
    """Check that a part announces what it brings, and that this is sealed.

    Raises:
        BadInput: ``invalid_commit``; ``not_sealed`` for bytes that no sealing produces.
    """
    part = upload.part
    kinds = {group.uid: _kinds(group, definition) for group in part.groups}
    counts = {group.uid: group.count for group in part.groups}
    segments = {segment.uid: segment for segment in part.segments}
    require(
        len(kinds) == len(part.groups) and len(segments) == len(part.segments),
        "a part names a group or a segment twice",
    )
    for batch in upload.rows:
        require(batch.group in kinds, "rows of a group that the part does not announce")
        require(
            0 < len(batch.rows) <= counts[batch.group] - batch.first,
            "a batch has no rows, or more than its group",
        )
        versions = {row.version for row in batch.rows}
        require(versions == {1}, "a staged row is of another version than 1")
        _check_rows(batch.rows, kinds[batch.group])
    for page in upload.pages:
        segment = segments.get(page.segment)
        if segment is None:
            raise _invalid("pages of a segment that the part does not announce")
        require(page.number < segment.pages, "a page's number is beyond its segment's pages")
        _check_page(segment, page.data)


def _kinds(group: Group, definition: SchemaDefinition) -> list[FieldType]:
    """The types of a group's fields, which are fields of the schema."""
    names = group.fields
    require(len(set(names)) == len(names), "a group names a field twice")
    require(
        all(name in definition.fields for name in names),
        "a group names a field that the schema does not have",
    )
    require(definition.required <= set(names), "a group leaves out a field that is required")
    return [definition.fields[name].type for name in names]


def _check_rows(rows: Sequence[SealedRow], kinds: Sequence[FieldType]) -> None:
    require(all(row.version >= 1 for row in rows), "a record's version is below 1")
    every = [row.fields for row in rows]
    require(set(map(len, every)) <= {len(kinds)}, "a row has not one value per field")
    if not all(map(are_sealed_fields, zip(*every, strict=True), kinds)):
        raise BadInput(
            "a field's bytes cannot be ciphertext of this format",
            code="not_sealed",
            hint="records are sealed by the proxy; send them there",
        )


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows a group has, and how many of them are dead."""

    count: int
    dead: int = 0


def check_cover(segments: Sequence[Segment], groups: Mapping[bytes, Size]) -> None:
    """Check that the segments cover exactly these groups, each once and without gaps.

    A segment may leave rows out, but no more than are dead (docs/SPEC.md, 6.4).

    Raises:
        BadInput: ``invalid_commit``.
    """
    covered: set[bytes] = set()
    for segment in segments:
        base = dead = 0
        for uid, given in segment.groups:
            size = groups.get(uid)
            if size is None:
                raise _invalid("a segment covers a group that is not its to cover")
            require(uid not in covered, "two segments cover one group")
            require(given == base, "the bases of a segment's groups are not contiguous")
            covered.add(uid)
            base += size.count
            dead += size.dead
        require(
            segment.count + segment.purged == base and segment.purged <= dead,
            "a segment's counts are not those of its groups",
        )
    require(len(covered) == len(groups), "a group is covered by no segment")


def check_content(body: CommitBody, parts: Sequence[bytes]) -> None:
    """Check that the commit was made for the parts of these digests.

    Raises:
        BadInput: ``invalid_commit``.
    """
    require(
        wire.content_digest(parts) == body.content,
        "the rows and pages are not those that the commit was made for",
    )


def check_lists(body: CommitBody) -> None:
    """Check that the commit does something, and names nothing twice.

    Raises:
        BadInput: ``invalid_commit``.
    """
    require(body.of_one_key, "a group or segment is of another key version than the commit")
    require(
        bool(body.groups or body.killed or body.replaced),
        "a commit must add groups, end rows or replace segments",
    )
    for found, what in (
        ([group.uid for group in body.groups], "a group"),
        ([segment.uid for segment in body.segments], "a segment"),
        (body.replaced, "a replaced segment"),
        ([(ref.group, ref.ordinal) for ref in body.killed], "an ended row"),
    ):
        require(len(set(found)) == len(found), f"{what} is named twice")


def _rows(groups: Sequence[Group], upload: CommitUpload) -> dict[bytes, list[SealedRow]]:
    rows: dict[bytes, list[SealedRow]] = {group.uid: [] for group in groups}
    for batch in upload.rows:
        own = rows.get(batch.group)
        if own is None:
            raise _invalid("rows of a group that the commit does not add")
        require(batch.first == len(own), "a group's rows are not in order, or not complete")
        own.extend(batch.rows)
    for group in groups:
        require(len(rows[group.uid]) == group.count, "a group's rows are not complete")
    return rows


def _pages(segments: Sequence[Segment], sent: Sequence[Page]) -> dict[bytes, list[bytes]]:
    pages: dict[bytes, list[bytes]] = {segment.uid: [] for segment in segments}
    for page in sent:
        own = pages.get(page.segment)
        if own is None:
            raise _invalid("pages of a segment that the commit does not add")
        require(page.number == len(own), "a segment's pages are not in order, or not complete")
        own.append(page.data)
    for segment in segments:
        found = pages[segment.uid]
        require(len(found) == segment.pages, "a segment's pages are not complete")
        check_form(segment)
        for data in found:
            _check_page(segment, data)
    return pages


def check_form(segment: Segment) -> None:
    """Check what a mini may be.

    Raises:
        BadInput: ``invalid_commit``.
    """
    if segment.form == "mini":
        require(segment.pages == 1, "a mini segment has exactly one page")
        require(segment.count <= MAX_MINI_RECORDS, "a mini segment covers too many records")


def _check_page(segment: Segment, data: bytes) -> None:
    require(
        data[:1] == bytes([SEAL_VERSION]) and len(data) > 1 + TAG_BYTES,
        "a page's bytes cannot be ciphertext of this format",
    )
    require(
        segment.form == "mini" or len(data) == PAGE_BYTES,
        f"a page of a paged segment is not {PAGE_BYTES} bytes long",
    )


def require(holds: bool, rule: str) -> None:
    """
    Raises:
        BadInput: ``invalid_commit``, naming the rule that does not hold.
    """
    if not holds:
        raise _invalid(rule)


def _invalid(rule: str) -> BadInput:
    return BadInput(rule, code="invalid_commit")
