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
    SealedRow,
    Segment,
)
from encrypted_records.model.shapes import SEAL_VERSION, TAG_BYTES, is_sealed_field


@dataclass(frozen=True)
class Checked:
    """A commit that is sound in itself.

    ``rows`` holds each group's rows by ordinal, ``pages`` each segment's pages by number.
    """

    commit: Commit
    body: CommitBody
    digest: bytes
    rows: dict[bytes, list[SealedRow]] = field(repr=False)
    pages: dict[bytes, list[bytes]] = field(repr=False)

    def new_rows(self) -> Iterator[SealedRow]:
        for group in self.body.groups:
            yield from self.rows[group.uid]


def check(upload: CommitUpload) -> Checked:
    """A commit whose parts agree with each other.

    Raises:
        Malformed: its body is not of this format.
        BadInput: ``invalid_commit``; the message names the rule.
    """
    body = wire.decode_commit_body(upload.commit)
    _require(
        wire.content_digest(upload.rows, upload.pages) == body.content,
        "the rows and pages are not those that the commit was made for",
    )
    _check_lists(body)
    return Checked(
        commit=upload.commit,
        body=body,
        digest=wire.commit_digest(upload.commit),
        rows=_rows(body.groups, upload),
        pages=_pages(body.segments, upload.pages),
    )


def check_sealed(checked: Checked, definition: SchemaDefinition) -> None:
    """Check names and shapes against the definition that the commit names.

    Raises:
        BadInput: ``invalid_commit``, or ``not_sealed`` for bytes that no sealing produces.
    """
    for group in checked.body.groups:
        names = group.fields
        _require(len(set(names)) == len(names), "a group names a field twice")
        _require(
            all(name in definition.fields for name in names),
            "a group names a field that the schema does not have",
        )
        _require(definition.required <= set(names), "a group leaves out a field that is required")
        kinds: list[FieldType] = [definition.fields[name].type for name in names]
        for row in checked.rows[group.uid]:
            _require(row.version >= 1, "a record's version is below 1")
            _require(len(row.fields) == len(kinds), "a row has not one value per field")
            if not all(map(is_sealed_field, row.fields, kinds)):
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
            _require(uid not in covered, "two segments cover one group")
            _require(given == base, "the bases of a segment's groups are not contiguous")
            covered.add(uid)
            base += size.count
            dead += size.dead
        _require(
            segment.count + segment.purged == base and segment.purged <= dead,
            "a segment's counts are not those of its groups",
        )
    _require(len(covered) == len(groups), "a group is covered by no segment")


def _check_lists(body: CommitBody) -> None:
    _require(body.of_one_key, "a group or segment is of another key version than the commit")
    _require(
        bool(body.groups or body.killed or body.replaced),
        "a commit must add groups, end rows or replace segments",
    )
    for found, what in (
        ([group.uid for group in body.groups], "a group"),
        ([segment.uid for segment in body.segments], "a segment"),
        (body.replaced, "a replaced segment"),
        ([(ref.group, ref.ordinal) for ref in body.killed], "an ended row"),
    ):
        _require(len(set(found)) == len(found), f"{what} is named twice")


def _rows(groups: Sequence[Group], upload: CommitUpload) -> dict[bytes, list[SealedRow]]:
    rows: dict[bytes, list[SealedRow]] = {group.uid: [] for group in groups}
    for batch in upload.rows:
        own = rows.get(batch.group)
        if own is None:
            raise _invalid("rows of a group that the commit does not add")
        _require(batch.first == len(own), "a group's rows are not in order, or not complete")
        own.extend(batch.rows)
    for group in groups:
        _require(len(rows[group.uid]) == group.count, "a group's rows are not complete")
    return rows


def _pages(segments: Sequence[Segment], sent: Sequence[Page]) -> dict[bytes, list[bytes]]:
    pages: dict[bytes, list[bytes]] = {segment.uid: [] for segment in segments}
    for page in sent:
        own = pages.get(page.segment)
        if own is None:
            raise _invalid("pages of a segment that the commit does not add")
        _require(page.number == len(own), "a segment's pages are not in order, or not complete")
        own.append(page.data)
    for segment in segments:
        found = pages[segment.uid]
        _require(len(found) == segment.pages, "a segment's pages are not complete")
        for data in found:
            _require(
                data[:1] == bytes([SEAL_VERSION]) and len(data) > 1 + TAG_BYTES,
                "a page's bytes cannot be ciphertext of this format",
            )
        if segment.form == "mini":
            _require(segment.pages == 1, "a mini segment has exactly one page")
            _require(segment.count <= MAX_MINI_RECORDS, "a mini segment covers too many records")
        else:
            _require(
                all(len(data) == PAGE_BYTES for data in found),
                f"a page of a paged segment is not {PAGE_BYTES} bytes long",
            )
    return pages


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise _invalid(rule)


def _invalid(rule: str) -> BadInput:
    return BadInput(rule, code="invalid_commit")
