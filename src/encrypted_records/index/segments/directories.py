"""The directories of a paged segment that one reader has: they say what each page number stands
for. A directory is decoded once all of its pages are here; what stays is its outline.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from encrypted_records.crypto.format import PAGE_DATA
from encrypted_records.crypto.keys import IndexKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory
from encrypted_records.index.columns.outline import Outline
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.segments.headers import PagedHeader
from encrypted_records.index.segments.opened_header import OpenedHeader, PageRole
from encrypted_records.index.segments.zones import Zone, decode_zone, encode_zone


class SegmentDirectories:
    """Safe to use from several threads."""

    def __init__(self, opened: OpenedHeader) -> None:
        self.opened = opened
        self._lock = threading.Lock()
        #: opened directory pages, until their directory is complete
        self._parts: dict[int, bytes] = {}
        self._complete: dict[str, Outline] = {}

    def __getitem__(self, field: str) -> Outline:
        """The directory of a field, all of whose pages are here."""
        return self._complete[field]

    def get(self, field: str) -> Outline | None:
        """The same, if all of its pages are here."""
        return self._complete.get(field)

    def use(self, field: str, complete: Outline) -> None:
        """Take a directory that another reader of this segment, in this view, had decoded.

        Raises:
            DoesNotOpen: as :meth:`OpenedHeader.claim`.
        """
        numbers = complete.numbers
        # The header may have been opened again since.
        if len(numbers) and self.opened.owner(int(numbers[0])) != field:
            self.opened.claim(field, numbers)
        with self._lock:
            self._complete[field] = complete

    @property
    def header(self) -> PagedHeader:
        return self.opened.header

    @property
    def zones(self) -> Mapping[str, Zone]:
        return self.opened.zones

    @property
    def rooms(self) -> Mapping[str, int]:
        """Of columns of words, for how many entries they have room."""
        return self.opened.rooms

    @property
    def rebases(self) -> Mapping[str, Rebase]:
        """Of the fields whose keys lie on another grid."""
        return self.opened.rebases

    def has_field(self, name: str) -> bool:
        """Whether the segment has such a column; it does not if that is younger."""
        return name in self.opened.numbers

    def page_key(self, name: str) -> IndexKey:
        """The key of the pages of a field and of its directory."""
        return self.opened.page_key(name)

    @property
    def packed(self) -> bool:
        return bool(self.header.packed)

    def role(self, number: int) -> PageRole | None:
        """What a page number stands for, as far as the directories that are here say it."""
        own = self.opened.directory_page(number)
        if own is not None:
            return own
        name = self.opened.owner(number)
        complete = None if name is None else self._complete.get(name)
        index = None if complete is None else complete.index_of(number)
        return None if name is None or index is None else PageRole(name, PAGE_DATA, index)

    def field_of(self, number: int) -> str | None:
        """The field of whose directory this is a page, if it is one's."""
        own = self.opened.directory_page(number)
        return None if own is None else own.field

    def missing(self, names: Iterable[str]) -> set[int]:
        """The pages of these fields' directories that are not here."""
        wanted = [name for name in names if self.has_field(name) and name not in self._complete]
        if not wanted:
            return set()
        # Another thread may have brought the last page, and be decoding them: that is waited for.
        with self._lock:
            return {
                number
                for name in wanted
                if name not in self._complete
                for number in self.opened.numbers[name].tolist()
                if number not in self._parts
            }

    def without_own(self, numbers: Iterable[int]) -> set[int]:
        """Those of some page numbers that are of no directory page which is here."""
        return {number for number in numbers if not self._has(number)}

    def _has(self, number: int) -> bool:
        own = self.opened.directory_page(number)
        return own is not None and (own.field in self._complete or number in self._parts)

    def put(self, number: int, content: bytes) -> None:
        """Keep an opened directory page.

        Raises:
            DoesNotOpen: with it, the directory is complete and not one of this segment.
        """
        name = self.field_of(number)
        assert name is not None
        with self._lock:
            if name not in self._complete:
                self._parts[number] = content
                self._assemble(name)

    def _assemble(self, name: str) -> None:
        """Decode the field's directory, once all of its pages are here."""
        opened = self.opened
        pages = opened.numbers[name].tolist()
        if any(number not in self._parts for number in pages):
            return
        # Out of here first: of a directory that cannot be decoded, all pages are missing again.
        parts = [self._parts.pop(number) for number in pages]
        complete = directory.decode(
            b"".join(parts),
            kind := opened.specs[name].kind,
            count=opened.rooms.get(name, opened.segment.count),
            pages=opened.segment.pages,
            packed=self.packed,
        )
        zone = encode_zone(complete.firsts, complete.lasts, kind)
        if decode_zone(zone, kind) != opened.stated[name]:
            raise DoesNotOpen("a segment's header states other keys than its directories")
        if name in opened.rebases:
            complete = opened.rebases[name].directory(complete)
        opened.claim(name, complete.numbers)
        self._complete[name] = Outline.of(complete)
