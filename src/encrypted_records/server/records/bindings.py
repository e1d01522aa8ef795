"""Bindings of rows and pages to their commit: salts, headers, and digests of what was sent. Pure.

The API computes the digests that groups and segments state (docs/SPEC.md, 7.2.1) from the bytes
that it stores, so that no commit names other bytes. Rows are packed only here, once for both the
digest and the storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from encrypted_records.errors import BadInput
from encrypted_records.model import digests, records


@dataclass(frozen=True)
class PackedBatch:
    """Consecutive rows of a group as they are stored, with digests of the rows and of their runs. A
    hole is None.
    """

    group: bytes
    first: int
    rows: list[tuple[bytes, int, bytes] | None] = field(repr=False)
    digests: bytes = field(repr=False)
    runs: bytes = field(repr=False)

    def placed(self, group: int) -> Iterator[tuple[int, int, bytes, int, bytes]]:
        """The rows as the table stores them, for the group with this number."""
        for ordinal, row in enumerate(self.rows, self.first):
            if row is not None:
                record_id, version, packed = row
                # A row that was sent in a part is a view of its body.
                yield group, ordinal, record_id, version, bytes(packed)


@dataclass(frozen=True)
class SaltsAndHeaders:
    """Salts of groups and headers of segments, by uid. They are sent with the rows and pages."""

    salts: Mapping[bytes, bytes]
    headers: Mapping[bytes, records.SegmentHeader]

    @classmethod
    def of(
        cls,
        groups: Iterable[bytes],
        segments: Iterable[bytes],
        salts: Sequence[records.GroupSalt],
        headers: Sequence[records.SegmentHeader],
    ) -> SaltsAndHeaders:
        """
        Raises:
            BadInput: ``invalid_commit``; not exactly one for each of these groups and segments.
        """
        salt_of = {salt.group: salt.salt for salt in salts}
        header_of = {header.segment: header for header in headers}
        _require_same(
            [salt.group for salt in salts], groups, "there must be one salt for each group"
        )
        _require_same(
            [header.segment for header in headers],
            segments,
            "there must be one header for each segment",
        )
        return cls(salt_of, header_of)


def _require_same(given: Collection[bytes], wanted: Iterable[bytes], rule: str) -> None:
    if sorted(given) != sorted(wanted):
        raise BadInput(rule, code="invalid_commit")


def pack(
    group: bytes, first: int, rows: Iterable[records.SealedRow | None], salt: bytes
) -> PackedBatch:
    """Pack rows from ordinal ``first`` on, which begins a run."""
    pack_fields = digests.pack_fields
    packed = [
        None if row is None else (row.record_id, row.version, pack_fields(row.fields))
        for row in rows
    ]
    return _digested(group, first, packed, salt)


def _digested(
    group: bytes, first: int, rows: list[tuple[bytes, int, bytes] | None], salt: bytes
) -> PackedBatch:
    row_digests = digests.packed_digests(salt, rows)
    return PackedBatch(group, first, rows, row_digests, digests.run_digests(row_digests))


def _take_over(batch: records.PackedRowBatch, salt: bytes) -> PackedBatch:
    """Take over rows that were sent packed, unchanged."""
    rows: list[tuple[bytes, int, bytes] | None] = [
        None if row is None else (row.record_id, row.version, row.packed) for row in batch.rows
    ]
    return _digested(batch.group, batch.first, rows, salt)


def bind_groups(
    groups: Sequence[records.Group],
    rows: Mapping[bytes, Sequence[records.SealedRow | None]],
    salts_and_headers: SaltsAndHeaders,
) -> list[PackedBatch]:
    """All rows of a commit's groups.

    Raises:
        BadInput: ``invalid_commit``; a group states another digest.
    """
    batches = [
        pack(group.uid, 0, rows[group.uid], salts_and_headers.salts[group.uid]) for group in groups
    ]
    for group, batch in zip(groups, batches, strict=True):
        require_rows(group, batch.runs)
    return batches


def require_rows(group: records.Group, runs: bytes) -> None:
    """Check that a group states the digest of its rows.

    Raises:
        BadInput: ``invalid_commit``.
    """
    if digests.group_digest(runs) != group.rows:
        raise BadInput("a group states another digest than its rows have", code="invalid_commit")


def bind_segments(
    segments: Sequence[records.Segment],
    pages: Mapping[bytes, Sequence[bytes]],
    salts_and_headers: SaltsAndHeaders,
) -> dict[bytes, list[bytes]]:
    """The digest of each page of a commit's segments.

    Raises:
        BadInput: ``invalid_commit``; a segment states another digest.
    """
    page_digests = {
        segment.uid: [digests.page_digest(data) for data in pages[segment.uid]]
        for segment in segments
    }
    for segment in segments:
        header = salts_and_headers.headers[segment.uid]
        require_pages(segment, header.salt, header.data, b"".join(page_digests[segment.uid]))
    return page_digests


def require_pages(segment: records.Segment, salt: bytes, header: bytes, pages: bytes) -> None:
    """Check that a segment states the digest of its header and pages.

    Raises:
        BadInput: ``invalid_commit``.
    """
    if digests.segment_digest(salt, header, pages) != segment.digest:
        raise BadInput("a segment states another digest than its pages have", code="invalid_commit")


@dataclass(frozen=True)
class BoundPart:
    """A staged part as it is stored; ``digest`` identifies it."""

    salts_and_headers: SaltsAndHeaders
    batches: list[PackedBatch]
    pages: list[bytes]
    digest: bytes


def bind_part(upload: records.PartUpload) -> BoundPart:
    """
    Raises:
        BadInput: ``invalid_commit``; salts or headers are missing, or a batch begins or ends
            within a run.
    """
    part = upload.part
    counts = {group.uid: group.count for group in part.groups}
    salts_and_headers = SaltsAndHeaders.of(
        counts, (segment.uid for segment in part.segments), upload.salts, upload.headers
    )
    for batch in upload.rows:
        _require_runs(batch, counts[batch.group])
    batches = [_take_over(batch, salts_and_headers.salts[batch.group]) for batch in upload.rows]
    pages = [digests.page_digest(page.data) for page in upload.pages]
    return BoundPart(
        salts_and_headers,
        batches,
        pages,
        _part_digest(salts_and_headers, batches, upload.pages, pages),
    )


def _require_runs(batch: records.PackedRowBatch, count: int) -> None:
    end = batch.first + len(batch.rows)
    if batch.first % digests.RUN or (end % digests.RUN and end != count):
        raise BadInput(
            f"a batch begins or ends within a run of {digests.RUN} rows", code="invalid_commit"
        )


def _part_digest(
    salts_and_headers: SaltsAndHeaders,
    batches: Sequence[PackedBatch],
    pages: Sequence[records.Page],
    page_digests: Sequence[bytes],
) -> bytes:
    state = hashlib.sha256()
    for batch in batches:
        state.update(batch.group + salts_and_headers.salts[batch.group])
        state.update(batch.first.to_bytes(4, "big") + len(batch.rows).to_bytes(4, "big"))
        state.update(batch.runs)
    for uid, header in salts_and_headers.headers.items():
        state.update(uid + header.salt + hashlib.sha256(header.data).digest())
    for page, digest in zip(pages, page_digests, strict=True):
        state.update(page.segment + page.number.to_bytes(4, "big") + digest)
    return state.digest()
