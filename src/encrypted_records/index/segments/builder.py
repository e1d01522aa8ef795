"""Build a segment of any size, column by column (docs/SPEC.md, section 6).

Columns are added one at a time, or as streams, and only their pages are kept: a segment of a
million rows never has two of its columns in memory. Nothing can be sealed before the last column
was added, because the segment's uid, from which its keys are derived, covers all plaintext. Until
then the pages' contents wait in memory, or elsewhere (:class:`.cuts.Contents`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA, PAGE_DIRECTORY, PAGE_DUMMY
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns import directory, pages, words
from encrypted_records.index.columns.column import Column, EntryBlock
from encrypted_records.index.columns.packing import MAX_ENTRIES
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments import cuts
from encrypted_records.index.segments.headers import (
    PagedHeader,
    encode_numbers,
    groups_digest,
    mask_digest,
    rows_digest,
    seal_header,
)
from encrypted_records.index.segments.mini import Built, build_mini
from encrypted_records.model import records
from encrypted_records.model.ciphertext_lengths import class_step, padded_length
from encrypted_records.model.definition import SchemaDefinition, column_spec
from encrypted_records.model.digests import page_digest, segment_digest
from encrypted_records.model.field_types.base import KeyKind

#: Segments of up to this many rows are not compressed; their sizes depend only on row count and
#: types.
MAX_PLAIN_RECORDS = 1 << 16


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """Size limits of segments: the maximum rows of a mini, and of a segment that is not packed
    (``plain``); the maximum entries in one page; and the maximum entries for which the word columns
    of a mini have room.

    Readers accept segments built with these or lower limits.
    """

    mini: int = records.MAX_MINI_RECORDS
    plain: int = MAX_PLAIN_RECORDS
    entries: int = MAX_ENTRIES
    words: int = records.MAX_MINI_WORDS


STANDARD = SegmentLimits()


@dataclass(frozen=True, slots=True)
class Shell:
    """A segment without its columns.

    Args:
        groups: (uid, base) of each group covered.
        rows: the indexed local ordinals, ascending; or a mask over all local ordinals, which takes
            less memory for many.
        purged: the number of dead rows of the groups that are left out.
        inputs: uids of the segments that this segment replaces.
        origin: identifies the content if the segment replaces none; the same when it is built
            again.
    """

    groups: Sequence[tuple[bytes, int]]
    rows: Ordinals | NDArray[np.bool_]
    purged: int = 0
    inputs: Sequence[bytes] = ()
    origin: bytes = b""

    @property
    def count(self) -> int:
        """The number of indexed rows."""
        return int(np.count_nonzero(self.rows)) if self._is_mask else len(self.rows)

    @property
    def listed(self) -> Ordinals:
        """The local ordinals indexed, ascending."""
        rows = np.flatnonzero(self.rows) if self._is_mask else self.rows
        return rows.astype(np.uint32, copy=False)

    @property
    def rows_digest(self) -> bytes:
        if self._is_mask:
            return mask_digest(self.rows.astype(np.bool_, copy=False))
        return rows_digest(self.listed, len(self.rows) + self.purged)

    @property
    def _is_mask(self) -> bool:
        return self.rows.dtype == np.bool_


class SealedSegment(NamedTuple):
    """A new segment, whose pages are consumed in sequence."""

    segment: records.Segment
    header: records.SegmentHeader
    pages: Iterator[records.Page]


class _PagePlace(NamedTuple):
    """The meaning of a page number: a field and a kind, and the location of its content: a number
    of the contents, or the bytes themselves.
    """

    name: str
    kind: int
    content: int | bytes


class Builder:
    """Accepts each column of the definition (:mod:`~encrypted_records.model.definition`), in its
    order, then returns the segment.

    The segment's form depends on its number of rows and the room of its word columns.
    """

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        shell: Shell,
        limits: SegmentLimits = STANDARD,
        contents: cuts.Contents | None = None,
    ) -> None:
        """
        Args:
            contents: stores the contents of pages until they are sealed; in memory if None.
        """
        self._key = key
        self._definition = definition
        self._shell = shell
        self._limits = limits
        self._count = shell.count
        self._contents = cuts.ContentsInMemory() if contents is None else contents
        self._small: dict[str, Column] = {}
        #: the number of entries for which the word columns in ``_small`` have room
        self._room = 0
        self._cuts: list[cuts.Cut] = []

    @property
    def packed(self) -> bool:
        """Whether the segment is packed."""
        return self._count > self._limits.plain

    @property
    def streams(self) -> bool:
        """Whether :meth:`add_stream` accepts the segment's columns."""
        return self._count > self._limits.mini

    def add(self, name: str, column: Column) -> None:
        """Add a column over exactly the shell's rows."""
        kind = column_spec(self._definition, name).kind
        if self._count <= self._limits.mini:
            self._small[name] = column
            self._room += words.count_entries(column) if kind is KeyKind.WORDS else 0
        else:
            self._cut(name, column, kind)

    def add_stream(self, name: str, blocks: Iterator[EntryBlock]) -> None:
        """Add a streamed column like :meth:`add`, to a paged segment: the column is never
        completely in memory.
        """
        kind = column_spec(self._definition, name).kind
        most = self._limits.entries
        cut = cuts.cut_stream(name, blocks, kind, self._contents, packed=self.packed, most=most)
        self._cuts.append(cut)

    def _cut(self, name: str, column: Column, kind: KeyKind) -> None:
        most = self._limits.entries
        cut = cuts.cut(name, column, kind, self._contents, packed=self.packed, most=most)
        self._cuts.append(cut)

    def finish(self) -> Built:
        """Seal the segment. The builder cannot be used again."""
        mini = self._build_mini()
        if mini is not None:
            return mini
        sealed = self._seal_paged()
        return Built(sealed.segment, sealed.header, tuple(sealed.pages))

    def seal(self) -> SealedSegment:
        """Seal the segment like :meth:`finish`; each page is freed after it was consumed."""
        mini = self._build_mini()
        if mini is not None:
            return SealedSegment(mini.segment, mini.header, iter(mini.pages))
        return self._seal_paged()

    def _build_mini(self) -> Built | None:
        """None if the segment is paged."""
        if self._count > self._limits.mini:
            return None
        if self._room > self._limits.words:
            # A page of this size could not be sent, and each query would fetch it.
            for name, column in self._small.items():
                self._cut(name, column, column_spec(self._definition, name).kind)
            return None
        return build_mini(
            self._key,
            self._definition,
            groups=self._shell.groups,
            column_of=self._small,
            rows=self._shell.listed,
            purged=self._shell.purged,
            inputs=self._shell.inputs,
        )

    def _seal_paged(self) -> SealedSegment:
        key, shell = self._key, self._shell
        total = padded_length(self._count_slots())
        places, directories = self._assign_pages(total)
        header = msgspec.msgpack.encode(
            PagedHeader(
                format=1,
                form="paged",
                groups=groups_digest(shell.groups),
                fields=[column_spec(self._definition, cut.name).id for cut in self._cuts],
                rows=shell.rows_digest,
                packed=1 if self.packed else 0,
                directories=directories,
                inputs=list(shell.inputs),
                kinds=[cut.made for cut in self._cuts],
                zones=[cut.zone for cut in self._cuts],
            )
        )
        uid = key.uids.uid(self._digest(header, places))
        sealed = seal_header(key, uid, header)
        if isinstance(self._contents, cuts.ContentsInMemory):
            page_data = list(self._seal_pages(uid, places))
            digests = b"".join(map(page_digest, page_data))
            given = _hand_out(uid, page_data)
        else:
            # Pages are sealed twice, to the same bytes, because the digest of all precedes the
            # first.
            digests = b"".join(map(page_digest, self._seal_pages(uid, places)))
            again = self._seal_pages(uid, places)
            given = (records.Page(uid, number, data) for number, data in enumerate(again))
        segment = records.Segment(
            uid=uid,
            form="paged",
            key_version=key.version,
            count=self._count,
            purged=shell.purged,
            groups=list(shell.groups),
            pages=total,
            digest=segment_digest(sealed.salt, sealed.data, digests),
            definition=self._definition.digest,
        )
        return SealedSegment(segment, sealed, given)

    def _count_slots(self) -> int:
        """The number of pages of all columns; for a packed segment, including dummies drawn by its
        key, so that the total does not reveal to the author of an added row how many pages a secret
        took.

        An API that makes the proxy build the segment again must not get another draw (docs/SPEC.md,
        6.2.1).
        """
        slots = sum(cut.slots for cut in self._cuts)
        if not self.packed:
            return slots
        origin = b"".join(sorted(self._shell.inputs)) or self._shell.origin
        return slots + self._key.uids.draw(origin, class_step(slots))

    def _assign_pages(self, total: int) -> tuple[list[_PagePlace], list[bytes]]:
        """Every page by its number, and the numbers of each field's directory."""
        numbers = iter(_permutation(total))
        places = [_PagePlace(self._cuts[0].name, PAGE_DUMMY, b"")] * total
        directories: list[bytes] = []
        for cut in self._cuts:
            page_numbers = _take(numbers, cut.directory_pages)
            cut.directory.numbers[:] = _take(numbers, len(cut.contents))
            kind = column_spec(self._definition, cut.name).kind
            encoded = directory.encode(cut.directory, kind, packed=self.packed)
            for number, at in zip(page_numbers, count(0, pages.CAPACITY)):
                part = encoded[at : at + pages.CAPACITY]
                places[number] = _PagePlace(cut.name, PAGE_DIRECTORY, part)
            for number, content in zip(cut.directory.numbers, cut.contents, strict=True):
                places[number] = _PagePlace(cut.name, PAGE_DATA, content)
            directories.append(encode_numbers(page_numbers))
        return places, directories

    def _content(self, place: _PagePlace) -> bytes:
        content = place.content
        return content if isinstance(content, bytes) else self._contents.read(content)

    def _digest(self, header: bytes, places: Sequence[_PagePlace]) -> bytes:
        """The digest of all plaintext that the segment's keys will seal.

        Pages enter in the order of their numbers; header and directories name each page's field.
        """
        state = hashlib.sha256()
        for part in chain((header,), (pages.frame(self._content(place)) for place in places)):
            state.update(len(part).to_bytes(4, "big"))
            state.update(part)
        return state.digest()

    def _seal_pages(self, uid: bytes, places: Sequence[_PagePlace]) -> Iterator[bytes]:
        """Seal every page, and free its content in memory."""
        where = sealing.context_of(self._key)
        specs = {cut.name: column_spec(self._definition, cut.name) for cut in self._cuts}
        keys = {name: self._key.field(spec).index(uid) for name, spec in specs.items()}
        for number, place in enumerate(places):
            content = self._content(place)
            if isinstance(self._contents, cuts.ContentsInMemory) and isinstance(place.content, int):
                self._contents.free(place.content)
            yield sealing.seal_page(
                keys[place.name],
                place.kind,
                number,
                pages.frame(content),
                schema_context=where,
                segment=uid,
                field=specs[place.name].id_bytes,
            )


def _hand_out(uid: bytes, sealed: list[bytes]) -> Iterator[records.Page]:
    """Every page; once yielded, only the caller holds it."""
    for number, data in enumerate(sealed):
        sealed[number] = b""
        yield records.Page(uid, number, data)


def _permutation(total: int) -> NDArray[np.intp]:
    """All page numbers in a random order that only this process knows."""
    drawn = np.frombuffer(runtime.random_bytes(8 * total), np.uint64)
    return np.argsort(drawn, kind="stable")


def _take(numbers: Iterator[np.intp], count: int) -> Ordinals:
    return np.fromiter((next(numbers) for _ in range(count)), np.uint32, count)
