"""Parse JSON into raw records: bodies of requests, and uploads of any size.

An upload is an array of record objects, or has an object per line. Records are accepted and
interpreted as by :mod:`encrypted_records.model.strict_json`. The common case is fast: a piece of
the array is cut off after the last ``}`` that a comma follows and decoded as a separate array. A
cut in the wrong place (inside a string, or between the members of a record) leaves brackets or
quotes open, so that it never decodes; then the previous cut is tried. If the fast way cannot
guarantee a property, such as that no object has a key twice, the piece is decoded again, strictly
and record by record.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from typing import Any, Literal

import msgspec

from encrypted_records.errors import Flaw, InvalidRecords, Malformed, TooLarge
from encrypted_records.ingest.blocks import (
    MAX_RECORD_BYTES,
    BadRow,
    RawRecord,
    RecordBlock,
    RecordStart,
    bad_row,
    record_too_large,
)
from encrypted_records.model import record_formats, strict_json
from encrypted_records.model.record_formats import misplaced_members
from encrypted_records.model.strict_json import JsonItems, escape_pointer

MAX_DIRECT_RECORDS = 100
#: Maximum number of names listed per record.
_MOST_UNKNOWN = 10


def parse_records(body: bytes, *, limit: int = MAX_DIRECT_RECORDS) -> list[RawRecord]:
    """A JSON array of 1 to ``limit`` record objects.

    Raises:
        Malformed: not strict JSON.
        TooLarge: more than ``limit`` records, or more than ``strict_json.MAX_VALUES`` values.
        InvalidRecords: not an array of objects with ``schema`` and ``data``.
    """
    strict_json.refuse_many(body)
    items = strict_json.loads(body, halves=True)
    if not isinstance(items, list) or not items:
        detail = "expected a JSON array of at least one record object"
        raise InvalidRecords(detail, flaws=(Flaw("type", detail, pointer=""),))
    if len(items) > limit:
        raise TooLarge(
            f"{len(items)} records in one request; the limit is {limit}",
            code="too_many_records",
            hint="send them in several requests",
        )
    records: list[RawRecord] = []
    errors: list[Flaw] = []
    for row, item in enumerate(items, 1):
        members: dict[str, Any] = item if isinstance(item, dict) else {}
        unknown = [name for name in members if name not in record_formats.RECORD_MEMBERS]
        wrong = list(record_formats.misplaced_members(members))
        problem = shape_problem(item, schema_named=False)
        if unknown or wrong:
            detail = "there is no such member; a record has only schema and data"
            found = [("unknown_member", name, detail) for name in unknown[:_MOST_UNKNOWN]]
            found += [("read_only", name, what) for name, what in wrong]
            errors += [
                Flaw(code, what, f"/{row - 1}/{escape_pointer(name)}", row)
                for code, name, what in found
            ]
        elif problem is not None:
            errors.append(Flaw("record", problem, pointer=f"/{row - 1}", row=row))
        else:
            records.append(RawRecord(row, item["schema"], item["data"]))
    if errors:
        raise InvalidRecords("not every record has the right form", flaws=tuple(errors))
    return records


def shape_problem(item: Any, *, schema_named: bool) -> str | None:
    """The reason why an item is not a record object; None for a record object.

    Args:
        schema_named: whether the request names the schema, so that a record need not.
    """
    if not isinstance(item, dict):
        return "expected an object with schema and data"
    sent = item.keys() - record_formats.READ_ONLY_MEMBERS
    if sent != record_formats.SENT_MEMBERS and not (schema_named and sent == {"data"}):
        return "a record object has exactly schema and data"
    if not isinstance(item["data"], dict):
        return "data must be an object"
    return None


Layout = Literal["array", "lines"]

#: Approximate bytes of a piece in which records are decoded.
BLOCK_BYTES = 128 << 10
#: Number of cuts that are tried before the piece is decoded record by record.
_CUTS = 8
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_COMMA = re.compile(rb"[ \t\r\n]*,")
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')
_ITEMS = JsonItems("record", "upload")
_decoder = msgspec.json.Decoder(list[Any], float_hook=strict_json.decimal)
_REFUSED = (msgspec.DecodeError, Malformed, RecursionError, UnicodeDecodeError)


def layout_of(start: bytes) -> tuple[Layout, RecordStart] | None:
    """Whether an upload is an array or lines, and where its first record may begin; None if
    ``start`` is too short.

    Raises:
        Malformed: it is neither an array nor lines.
    """
    skipped = len(_BOM) if start.startswith(_BOM) else 0
    text = start[skipped:].lstrip(_BLANK)
    if not text:
        return None
    begin = len(start) - len(text)
    if text[:1] == b"[":
        return "array", RecordStart(begin + 1, 1)
    if text[:1] == b"{":
        return "lines", RecordStart(begin, 1)
    raise Malformed("expected a JSON array of record objects, or one record object per line")


class _Buffered(ABC):
    """The common base of both layouts: bytes are buffered until they contain whole records.

    Args:
        start: the position of a record, or of the end of the records.
        schema_named: whether the request names the schema, so that records need not.
        block_bytes: approximate number of bytes that are decoded together.
    """

    def __init__(
        self, start: RecordStart, *, schema_named: bool, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._start = start
        self._schema_named = schema_named
        self._buffer = b""
        self._block_bytes = block_bytes
        self._wait = block_bytes

    def feed(self, data: bytes) -> list[RecordBlock]:
        """
        Raises:
            Malformed: not JSON, so that the beginning of the next record is unknown.
            TooLarge: a record exceeds the maximum size.
        """
        self._buffer += data
        if len(self._buffer) < self._wait:
            return []
        blocks = self._take(final=False)
        # A record without an end must not be read repeatedly.
        self._wait = self._block_bytes if blocks else 2 * len(self._buffer)
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise record_too_large(self._start.row)
        return blocks

    def finish(self) -> list[RecordBlock]:
        """
        Raises:
            Malformed: as :meth:`feed`; also if the upload is truncated.
        """
        return self._take(final=True)

    def drain(self) -> list[RecordBlock]:
        """The records of all bytes so far, which may be truncated.

        Raises:
            Malformed: as :meth:`feed`.
        """
        return self._take(final=False)

    @abstractmethod
    def _take(self, *, final: bool) -> list[RecordBlock]:
        """The complete blocks; with ``final``, all remaining records."""

    def _block(self, size: int, records: list[RawRecord | BadRow]) -> list[RecordBlock]:
        """The block of ``records``, which are the first ``size`` bytes of the buffer."""
        block = RecordBlock(self._start, records)
        self._buffer = self._buffer[size:]
        self._start = RecordStart(self._start.offset + size, self._start.row + len(records))
        return [block] if records else []

    def _record(self, row: int, item: Any) -> RawRecord | BadRow:
        problem = shape_problem(item, schema_named=self._schema_named)
        if problem is not None:
            return bad_row(row, "record", problem)
        for name, what in misplaced_members(item):
            return bad_row(row, "read_only", f"{name} {what}")
        return RawRecord(row, item.get("schema"), item["data"])


class ArrayParser(_Buffered):
    """The records of one array."""

    def __init__(
        self, start: RecordStart, *, schema_named: bool, block_bytes: int = BLOCK_BYTES
    ) -> None:
        super().__init__(start, schema_named=schema_named, block_bytes=block_bytes)
        self._ended = False

    def _take(self, *, final: bool) -> list[RecordBlock]:
        blocks: list[RecordBlock] = []
        while cut := self._cut_off():
            blocks += cut
        if final or not blocks:
            blocks += self._one_by_one(final=final)
        return blocks

    def _cut_off(self) -> list[RecordBlock]:
        """A block of the records that can be decoded at once; no block if no cut works."""
        end = min(len(self._buffer), 2 * self._block_bytes)
        for _ in range(_CUTS):
            end = self._buffer.rfind(b"}", 0, end)
            if end < 0:
                break
            after = _COMMA.match(self._buffer, end + 1)
            if after is None:
                continue
            items = _decode(b"[" + self._buffer[: end + 1] + b"]")
            if items is not None:
                records = [
                    self._record(row, item) for row, item in enumerate(items, self._start.row)
                ]
                return self._block(after.end(), records)
        return []

    def _one_by_one(self, *, final: bool) -> list[RecordBlock]:
        """Decode the whole records in the buffer, and the end of the array, strictly."""
        text = _text(self._buffer, self._start.row)
        records: list[RawRecord | BadRow] = []
        used = 0
        while not self._ended:
            row = self._start.row + len(records)
            step = _ITEMS.step(text, used, row, final=final)
            if step is None:
                break
            if step.item is not None and step.item.fault:
                records.append(bad_row(row, "malformed", step.item.fault))
            elif step.item is not None:
                records.append(self._record(row, step.item.value))
            self._ended, used = step.is_last, step.end
        if self._ended:
            _ITEMS.check_end(text, used)
            used = len(text)
        return self._block(len(text[:used].encode()), records)


class LinesParser(_Buffered):
    """Record objects, one per line. Blank lines are not records."""

    def _take(self, *, final: bool) -> list[RecordBlock]:
        size = len(self._buffer) if final else self._buffer.rfind(b"\n") + 1
        lines = [line.strip(_BLANK) for line in self._buffer[:size].split(b"\n")]
        lines = [line for line in lines if line]
        whole = all(line[:1] == b"{" and line[-1:] == b"}" for line in lines)
        items = _decode(b"[" + b",".join(lines) + b"]") if whole else None
        rows = range(self._start.row, self._start.row + len(lines))
        if items is not None and len(items) == len(lines):
            records = [self._record(row, item) for row, item in zip(rows, items, strict=True)]
        else:
            records = [self._line(row, line) for row, line in zip(rows, lines, strict=True)]
        return self._block(size, records)

    def _line(self, row: int, line: bytes) -> RawRecord | BadRow:
        try:
            return self._record(row, strict_json.loads(line, halves=True))
        except Malformed as error:
            return bad_row(row, "malformed", error.message)


def _decode(text: bytes) -> list[Any] | None:
    """The items of an array of record objects; None if only a strict reader can decide.

    Every member of an object adds a colon after a quote. So if their number equals the number of
    decoded members, no object has the same key twice.
    """
    try:
        items = _decoder.decode(text)
    except _REFUSED:
        return None
    members = 0
    for item in items:
        if type(item) is not dict:
            return None
        members += len(item)
        data = item.get("data")
        if type(data) is dict:
            members += len(data)
    if text.count(b'":') != members or _SPACED_COLON.search(text):
        return None
    return items


def _text(data: bytes, row: int) -> str:
    """The longest prefix of ``data`` without an incomplete UTF-8 character.

    Raises:
        Malformed: the data is not UTF-8.
    """
    try:
        return codecs.utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        raise Malformed(f"not UTF-8, in record {row} or soon after it") from None
