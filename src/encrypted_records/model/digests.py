"""Salted digests that bind stored bytes to the commit that named them (docs/SPEC.md, 7.2.1).

A commit stays permanently, and sealing is deterministic under its key: with an unsalted digest, a
holder of the key could test guesses for the values of a deleted record. The salt is stored with
the bytes and deleted with the last of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from encrypted_records.errors import Altered
from encrypted_records.model.records import (
    Group,
    RowDigests,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
)

DIGEST = 32
#: Number of rows whose digests are hashed together.
RUN = 64
#: Stands for the digest of a row without bytes.
HOLE = bytes(DIGEST)

_NOT_AS_STORED = "the record is not as it was stored"
_RUN_BYTES = RUN * DIGEST
_sha256 = hashlib.sha256
_encoder = msgspec.msgpack.Encoder()


def pack_fields(fields: Sequence[bytes]) -> bytes:
    """A row's ciphertexts in one piece, as they are digested and as the API stores them."""
    return _encoder.encode(fields)


def row_digest(salt: bytes, record_id: bytes, version: int, packed: bytes) -> bytes:
    """
    Args:
        salt: of the row's group.
        packed: the result of :func:`pack_fields`.
    """
    return _sha256(salt + record_id + version.to_bytes(4, "big") + packed).digest()


def row_digests(salt: bytes, rows: Iterable[SealedRow | None]) -> bytes:
    """The digests of consecutive rows of a group, one after the other; None is a hole."""
    pack, sha256 = _encoder.encode, _sha256
    return b"".join(
        [
            HOLE
            if row is None
            else sha256(
                salt + row.record_id + row.version.to_bytes(4, "big") + pack(row.fields)
            ).digest()
            for row in rows
        ]
    )


def packed_digests(salt: bytes, rows: Iterable[tuple[bytes, int, bytes] | None]) -> bytes:
    """:func:`row_digests` of rows (record id, version, packed fields)."""
    sha256, join = _sha256, b"".join
    return join(
        [
            HOLE
            if row is None
            else sha256(join((salt, row[0], row[1].to_bytes(4, "big"), row[2]))).digest()
            for row in rows
        ]
    )


def run_digests(rows: bytes) -> bytes:
    """The digests of runs of 64 rows; the last run may be shorter.

    Args:
        rows: concatenated digests of rows, starting at the first row of a run.
    """
    return b"".join(
        _sha256(rows[at : at + _RUN_BYTES]).digest() for at in range(0, len(rows), _RUN_BYTES)
    )


def group_digest(runs: bytes) -> bytes:
    """A group's ``rows``, from the digests of all its runs."""
    return _sha256(runs).digest()


def digest_rows(salt: bytes, rows: Iterable[SealedRow | None]) -> bytes:
    """A group's ``rows``, from all of its rows."""
    return group_digest(run_digests(row_digests(salt, rows)))


def page_digest(data: bytes) -> bytes:
    return _sha256(data).digest()


def segment_digest(salt: bytes, header: bytes, pages: bytes) -> bytes:
    """A segment's ``digest``.

    Args:
        pages: concatenated digests of the pages, by page number.
    """
    return _sha256(salt + _sha256(header).digest() + pages).digest()


def check_pages(segment: Segment, header: SegmentHeader, pages: bytes) -> None:
    """Check that these are the digests of all pages of a segment.

    Raises:
        Altered: the digests or the header differ from those that the segment's commit names.
    """
    named = segment_digest(header.salt, header.data, pages)
    if len(pages) != DIGEST * segment.pages or named != segment.digest:
        raise Altered(f"the index is not the one that was stored: segment {segment.uid.hex()}")


def check_mini(segment: Segment, header: SegmentHeader, page: bytes) -> None:
    """Check the only page of a mini segment.

    Raises:
        Altered: the page or the header differs from what the segment's commit names.
    """
    check_pages(segment, header, page_digest(page))


def check_page(segment: bytes, number: int, data: bytes, pages: bytes) -> None:
    """Check a page against the digests that :func:`check_pages` has verified.

    Raises:
        Altered: the page is not the stored page.
    """
    if page_digest(data) != pages[number * DIGEST : (number + 1) * DIGEST]:
        raise Altered(
            f"the index is not the one that was stored: segment {segment.hex()}, page {number}"
        )


def check_rows(group: Group, rows: Mapping[int, SealedRow], proofs: Sequence[RowDigests]) -> None:
    """Check rows of a group against its digest.

    Args:
        rows: by ordinal.
        proofs: the digests that the API shows of the group: at least one, and one for each run of
            which some rows are missing here.

    Raises:
        Altered: a row is not the stored row, or the shown digests do not prove that it is.
    """
    if not proofs or any(proof.group != group.uid for proof in proofs):
        raise Altered(f"{_NOT_AS_STORED}: group {group.uid.hex()}")
    salt, runs = proofs[0].salt, proofs[0].runs
    if group_digest(runs) != group.rows:
        raise Altered(f"{_NOT_AS_STORED}: group {group.uid.hex()}")
    shown = {proof.first: proof.rows for proof in proofs}
    for first in sorted({ordinal - ordinal % RUN for ordinal in rows}):
        places = range(first, min(first + RUN, group.count))
        run_rows = [rows.get(at) for at in places]
        named = runs[first // RUN * DIGEST : (first // RUN + 1) * DIGEST]
        digests = row_digests(salt, run_rows)
        if None in run_rows:
            proven = shown.get(first, b"")
            present = [at for at, row in enumerate(run_rows) if row is not None]
            same = all(_at(digests, at) == _at(proven, at) for at in present)
            digests = proven if same and len(proven) == DIGEST * len(run_rows) else b""
        if _sha256(digests).digest() != named:
            last = places.stop - 1
            raise Altered(f"{_NOT_AS_STORED}: group {group.uid.hex()}, rows {first} to {last}")


def _at(digests: bytes, place: int) -> bytes:
    return digests[place * DIGEST : (place + 1) * DIGEST]


def check_row(ref: RowRef, row: SealedRow, rows: bytes, proof: RowDigests) -> None:
    """Check one row against its group's digest.

    Args:
        rows: the ``rows`` of its group.
        proof: the digests that the API shows of the group.

    Raises:
        Altered: the row is not the stored row, or the shown digests do not prove that it is. If a
            row of a run was altered, no row of the run can be proven.
    """
    place = max(0, ref.ordinal - proof.first)
    number = proof.first // RUN
    proven = (
        proof.group == ref.group
        and proof.first % RUN == 0
        and proof.first + place == ref.ordinal
        and place < len(proof.rows) // DIGEST <= RUN
        and group_digest(proof.runs) == rows
        and _sha256(proof.rows).digest() == proof.runs[number * DIGEST : (number + 1) * DIGEST]
    )
    computed = row_digest(proof.salt, row.record_id, row.version, pack_fields(row.fields))
    if computed != proof.rows[place * DIGEST : (place + 1) * DIGEST]:
        raise Altered(f"{_NOT_AS_STORED}: group {ref.group.hex()}, row {ref.ordinal}")
    if not proven:
        first = ref.ordinal - ref.ordinal % RUN
        raise Altered(
            f"{_NOT_AS_STORED}, or one beside it is not: group {ref.group.hex()}, rows"
            f" {first} to {first + RUN - 1}"
        )
