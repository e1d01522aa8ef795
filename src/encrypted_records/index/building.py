"""Build a segment of any size, column by column (docs/SPEC.md, section 6).

Columns are handed over one at a time and only their pages are kept: a segment of a million rows
never has two of its columns in memory. Nothing can be sealed before the last column is in, since
the segment's uid, from which its keys come, covers everything that they will seal.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA, PAGE_DIRECTORY, PAGE_DUMMY
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index import directory, pages
from encrypted_records.index.columns import Column, Ordinals
from encrypted_records.index.directory import Directory
from encrypted_records.index.packing import MAX_ENTRIES
from encrypted_records.index.paged import (
    PagedHeader,
    encode_numbers,
    groups_digest,
    rows_digest,
)
from encrypted_records.index.segments import Built, build_mini
from encrypted_records.model.definition import FieldType, SchemaDefinition
from encrypted_records.model.records import MAX_MINI_RECORDS, Page, Segment
from encrypted_records.model.shapes import padded_length

#: Up to this many rows nothing is compressed, and sizes depend on their number and types alone.
MAX_PLAIN_RECORDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Up to how many rows a segment is a mini, and is not packed; entries in one page.

    Readers take segments built with any limits up to these.
    """

    mini: int = MAX_MINI_RECORDS
    plain: int = MAX_PLAIN_RECORDS
    entries: int = MAX_ENTRIES


STANDARD = Limits()


@dataclass(frozen=True, slots=True)
class Shell:
    """All of a segment but its columns.

    Args:
        groups: (uid, base) of each group covered.
        rows: the local ordinals indexed, ascending.
        purged: how many dead rows of the groups are left out.
        inputs: uids of the segments this one replaces.
    """

    groups: Sequence[tuple[bytes, int]]
    rows: Ordinals
    purged: int = 0
    inputs: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class _Cut:
    """A column as contents of pages; ``slots`` is how many pages it accounts for."""

    name: str
    contents: list[bytes]
    directory: Directory
    directory_pages: int
    slots: int


class _Plain(NamedTuple):
    """A page before it is sealed: its field, its kind, its content."""

    name: str
    kind: int
    content: bytes


def _cut(name: str, column: Column, kind: FieldType, *, packed: bool, most: int) -> _Cut:
    rows = len(column.ordinals)
    cuts = list(pages.cut(column, kind, packed=packed, most=most))
    found = directory.build(column, [one.end for one in cuts], rows)
    if packed:
        size = len(directory.encode(found, kind, packed=True))
        own = -(-size // pages.CAPACITY)
        slots = own + len(cuts)
    else:
        planned = directory.plan(kind, rows, most)
        own, slots = planned.directory, planned.directory + planned.data
    return _Cut(name, [one.content for one in cuts], found, own, slots)


class Builder:
    """Takes a column per field of the definition, then gives the segment.

    Its form is the one that its number of rows asks for.
    """

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        shell: Shell,
        limits: Limits = STANDARD,
    ) -> None:
        self._key = key
        self._definition = definition
        self._shell = shell
        self._limits = limits
        self._packed = len(shell.rows) > limits.plain
        self._small: dict[str, Column] = {}
        self._cuts: list[_Cut] = []

    def add(self, name: str, column: Column) -> None:
        """The column of a field, over exactly the shell's rows."""
        if len(self._shell.rows) <= self._limits.mini:
            self._small[name] = column
        else:
            kind = self._definition.fields[name].type
            self._cuts.append(
                _cut(name, column, kind, packed=self._packed, most=self._limits.entries)
            )

    def finish(self) -> Built:
        """The segment, sealed. The builder is spent."""
        segment, pages = self.sealed()
        return Built(segment, tuple(pages))

    def sealed(self) -> tuple[Segment, Iterator[Page]]:
        """As :meth:`finish`; each page is sealed when it is taken, and held by its taker alone."""
        if len(self._shell.rows) > self._limits.mini:
            return self._paged()
        mini = build_mini(
            self._key,
            self._definition,
            groups=self._shell.groups,
            found=self._small,
            rows=self._shell.rows,
            purged=self._shell.purged,
            inputs=self._shell.inputs,
        )
        return mini.segment, iter(mini.pages)

    def _paged(self) -> tuple[Segment, Iterator[Page]]:
        key, shell = self._key, self._shell
        total = padded_length(sum(one.slots for one in self._cuts))
        plain, directories = self._placed(total)
        header = msgspec.msgpack.encode(
            PagedHeader(
                format=1,
                form="paged",
                groups=groups_digest(shell.groups),
                fields=[one.name for one in self._cuts],
                rows=rows_digest(shell.rows, len(shell.rows) + shell.purged),
                packed=1 if self._packed else 0,
                directories=directories,
                inputs=list(shell.inputs),
            )
        )
        uid = key.uids.uid(_digest(header, plain))
        where = sealing.place(key)
        segment = Segment(
            uid=uid,
            form="paged",
            key_version=key.version,
            count=len(shell.rows),
            purged=shell.purged,
            groups=list(shell.groups),
            pages=total,
            header=sealing.seal_header(key.meta(uid), header, schema_place=where, segment=uid),
        )
        return segment, self._sealed(uid, plain)

    def _placed(self, total: int) -> tuple[list[_Plain], list[bytes]]:
        """Every page by its number, and the numbers of each field's directory."""
        numbers = iter(_permutation(total))
        plain = [_Plain(self._cuts[0].name, PAGE_DUMMY, b"")] * total
        directories: list[bytes] = []
        for one in self._cuts:
            own = _take(numbers, one.directory_pages)
            one.directory.numbers[:] = _take(numbers, len(one.contents))
            kind = self._definition.fields[one.name].type
            encoded = directory.encode(one.directory, kind, packed=self._packed)
            for number, at in zip(own, count(0, pages.CAPACITY)):
                part = encoded[at : at + pages.CAPACITY]
                plain[number] = _Plain(one.name, PAGE_DIRECTORY, part)
            for number, content in zip(one.directory.numbers, one.contents, strict=True):
                plain[number] = _Plain(one.name, PAGE_DATA, content)
            one.contents.clear()
            directories.append(encode_numbers(own))
        return plain, directories

    def _sealed(self, uid: bytes, plain: list[_Plain]) -> Iterator[Page]:
        """Every page, sealed; contents are let go on the way."""
        where = sealing.place(self._key)
        fields = self._definition.fields
        keys = {one.name: self._key.field(fields[one.name]).index(uid) for one in self._cuts}
        for number, (name, kind, content) in enumerate(plain):
            plain[number] = _Plain(name, kind, b"")
            data = sealing.seal_page(
                keys[name],
                kind,
                number,
                pages.frame(content),
                schema_place=where,
                segment=uid,
                name=name.encode(),
            )
            yield Page(uid, number, data)


def _permutation(total: int) -> NDArray[np.intp]:
    """All page numbers in an order that nobody else can know."""
    drawn = np.frombuffer(os.urandom(8 * total), np.uint64)
    return np.argsort(drawn, kind="stable")


def _take(numbers: Iterator[np.intp], count: int) -> Ordinals:
    return np.fromiter((next(numbers) for _ in range(count)), np.uint32, count)


def _digest(header: bytes, plain: Sequence[_Plain]) -> bytes:
    """Over all that the segment's keys will seal.

    Each page enters in the order of numbers; header and directories say of which field it is.
    """
    state = hashlib.sha256()
    for part in chain((header,), (pages.frame(one.content) for one in plain)):
        state.update(len(part).to_bytes(4, "big"))
        state.update(part)
    return state.digest()
