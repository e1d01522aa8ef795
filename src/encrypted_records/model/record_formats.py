"""Records outside: the kinds of their files, charsets, lines of CSV, and objects of JSON.

Lines of CSV (RFC 4180) are in the form that batch uploads read. An absent value is an empty cell,
an empty text is ``""``; the standard library's writer cannot tell them apart. If spreadsheets will
open the file, texts that one would run as a formula get an apostrophe before them, by the rules of
OWASP ("CSV Injection"); such a file differs from the records.

A record object has members that are sent, and those that answers add to them. An answer's record
can be sent back as it is. Its read-only members change nothing; they are refused where they cannot
be what an answer had, so that a field beside ``data`` is not lost in silence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from encrypted_records.errors import Malformed, Unsupported
from encrypted_records.model import ids

if TYPE_CHECKING:
    from encrypted_records.model.definition import Value


_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"


class Format(Enum):
    """A kind of file that holds records. Its value is its name in requests and on the command line.

    ``JSON`` is one array of records, ``NDJSON`` one record per line.
    """

    CSV = "csv"
    JSON = "json"
    NDJSON = "ndjson"

    @property
    def media_type(self) -> str:
        """Without parameters."""
        return _MEDIA_TYPES[self]

    @classmethod
    def of_media_type(cls, media_type: str) -> Format | None:
        """The format whose own media type this is, written exactly so."""
        return _BY_MEDIA_TYPE.get(media_type)

    @classmethod
    def of_name(cls, filename: str) -> Format | None:
        """The format by the suffix of a file's name, case-insensitive."""
        return _SUFFIXES.get(PurePath(filename).suffix.lower())

    @classmethod
    def of_content(cls, start: bytes) -> Format:
        """The format by the first bytes of a file: JSON begins with a bracket, and everything else
        is CSV.
        """
        first = start.removeprefix(_BOM).lstrip(_BLANK)[:1]
        return {b"[": cls.JSON, b"{": cls.NDJSON}.get(first, cls.CSV)

    @classmethod
    def of_file(cls, filename: str, start: bytes) -> Format:
        """The format by a file's name, or else by its first bytes."""
        return cls.of_name(filename) or cls.of_content(start)

    @classmethod
    def of_upload(cls, media_type: str, filename: str) -> Format | None:
        """The format by the upload's metadata; None if neither value names a format.

        Args:
            media_type: with or without parameters; other names in use are known, too.
            filename: counts if the media type is none of these.
        """
        name = media_type.partition(";")[0].strip().lower()
        return cls.of_media_type(name) or _ALIASES.get(name) or cls.of_name(filename)


_MEDIA_TYPES = {
    Format.CSV: "text/csv",
    Format.JSON: "application/json",
    Format.NDJSON: "application/x-ndjson",
}
_BY_MEDIA_TYPE = {media_type: kind for kind, media_type in _MEDIA_TYPES.items()}
#: Other media types that browsers and tools send for these files.
_ALIASES = {
    "application/csv": Format.CSV,
    "application/vnd.ms-excel": Format.CSV,  # what Windows calls *.csv if Excel is installed
    "text/json": Format.JSON,
    "application/x-jsonlines": Format.NDJSON,
    "application/jsonl": Format.NDJSON,
}
_SUFFIXES = {
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
}
#: What an error says to send.
MEDIA_TYPES = ", ".join(_BY_MEDIA_TYPE)


class Charset(Enum):
    """A charset other than UTF-8. The value is its usual name.

    ``UTF_16`` says nothing of the order of bytes: the file's first two do.
    """

    ASCII = "US-ASCII"
    LATIN_1 = "ISO-8859-1"
    LATIN_9 = "ISO-8859-15"
    WINDOWS_1252 = "Windows-1252"
    UTF_16 = "UTF-16"
    UTF_16LE = "UTF-16LE"
    UTF_16BE = "UTF-16BE"


_NAMES: dict[str, Charset | None] = {
    **{charset.value.lower(): charset for charset in Charset},
    "utf-8": None,
    "utf8": None,
    "ascii": Charset.ASCII,
    "latin1": Charset.LATIN_1,
    "latin-1": Charset.LATIN_1,
    "iso8859-1": Charset.LATIN_1,
    "iso_8859-1": Charset.LATIN_1,
    "l1": Charset.LATIN_1,
    "latin9": Charset.LATIN_9,
    "latin-9": Charset.LATIN_9,
    "cp1252": Charset.WINDOWS_1252,
    "x-cp1252": Charset.WINDOWS_1252,
    "utf16": Charset.UTF_16,
}
#: What an error says to send.
_KNOWN = ", ".join(["UTF-8", *(charset.value for charset in Charset)])
_PARAMETER = re.compile(r';\s*charset\s*=\s*(?:"([^"]*)"|([^\s;]*))', re.IGNORECASE)


def charset_named(name: str) -> Charset | None:
    """The charset of that name; None is UTF-8.

    Raises:
        Unsupported: ``unsupported_charset``: none of these.
    """
    known = name.strip().lower()
    if known not in _NAMES:
        raise Unsupported(
            "the declared charset is not supported",
            code="unsupported_charset",
            hint=f"send CSV in one of {_KNOWN}, and JSON in UTF-8",
        )
    return _NAMES[known]


def charset_of(content_type: str) -> Charset | None:
    """The charset that a Content-Type declares; None is UTF-8, and also where it declares none.

    Raises:
        Unsupported: as :func:`charset_named`.
    """
    declared = [quoted or bare for quoted, bare in _PARAMETER.findall(content_type)]
    charsets = {charset_named(name) for name in declared}
    if len(charsets) > 1:
        charset_named("two at once")
    return charsets.pop() if charsets else None


def require_utf8(charset: Charset | None) -> None:
    """JSON is UTF-8 (RFC 8259, section 8.1), of which ASCII is a part.

    Raises:
        Unsupported: ``unsupported_charset``: it is declared to be in another charset.
    """
    if charset not in (None, Charset.ASCII):
        raise Unsupported(
            "JSON must be in UTF-8",
            code="unsupported_charset",
            hint="convert it to UTF-8, and leave out charset= in Content-Type",
        )


#: How the last entry of a header names the schema.
SCHEMA_ENTRY = "schema_id:"
#: How the header names a column that is not read, whatever follows.
LEFT_OUT = "leave_out:"
#: What begins a formula, also in the full width of East Asian writing.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
#: Some programs drop these first and see a formula after them.
_BLANKS = "\\t\\r\\n\\0"
#: The start of a text, or the text after a character that ends a cell for another program, or for
#: the same one in another country. There, quotes can begin a cell as well.
_FORMULA = re.compile(rf'\A(?=[{_SIGNS}{_BLANKS}])|(?<=[,;|\t\r\n])("*)(?=[{_SIGNS}])')


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """The columns of a file of records: one per name, and as many cells in each line.

    Args:
        safe: whether texts are changed so that no spreadsheet runs one.
        spare: whether an empty column follows. Readers skip an empty line, which a record without
            the only field would be.
    """

    names: Sequence[str]
    safe: bool = False
    spare: bool = False

    @classmethod
    def of(cls, names: Sequence[str], required: Collection[str], *, safe: bool) -> CsvColumns:
        """The columns among ``names``; of these, records have the ``required`` ones."""
        return cls(names, safe, spare=len(names) == 1 and names[0] not in required)

    def header(self, schema: str | None = None) -> bytes:
        """The first line.

        Args:
            schema: an id, which becomes the last entry and has no column below it.
        """
        last = [LEFT_OUT] if self.spare else []
        if schema is not None:
            last = [f"{SCHEMA_ENTRY}{schema}"]
        return csv_line([*self.names, *last], safe=self.safe)

    def record(self, data: Mapping[str, Value]) -> bytes:
        """A record's line; absent fields are left out of ``data``."""
        cells = [data.get(name) for name in self.names]
        return csv_line([*cells, None] if self.spare else cells, safe=self.safe)


def csv_line(cells: Iterable[Value], *, safe: bool = False) -> bytes:
    """One CSV line, with its line end.

    Args:
        safe: whether texts are changed so that spreadsheets do not execute them as formulas.
    """
    return (",".join(csv_cell(value, safe=safe) for value in cells) + "\r\n").encode()


def csv_cell(value: Value, *, safe: bool = False) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        # A number has no sign that could be anything else, and stays one.
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if safe:
        return _quoted(guard_formula(value))
    if value and not any(mark in value for mark in '",\r\n'):
        return value
    return _quoted(value)


def guard_formula(text: str) -> str:
    """A text that no spreadsheet runs as a formula."""
    return _FORMULA.sub(r"\1'", text)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


SENT_MEMBERS = frozenset({"schema", "data"})
#: Of a record that is shown; ``rounded`` of one that was changed, ``version`` and ``proven`` of one
#: that a salvage found.
READ_ONLY_MEMBERS = frozenset({"id", "url", "rounded", "version", "proven"})
RECORD_MEMBERS = SENT_MEMBERS | READ_ONLY_MEMBERS


def misplaced_members(
    item: Mapping[str, Any], record: str | None = None
) -> Iterator[tuple[str, str]]:
    """The read-only members of a record object that no answer had, and what is wrong with them.

    Args:
        record: the id of the record that is changed; None where a new one is made.
    """
    named = item.get("id", record)
    if "id" in item and not (named == record if record else _is_id(named)):
        yield "id", "is the id of another record" if record else _GIVEN
    elif "url" in item and not _is_url(item["url"], named):
        yield "url", "is the path of another record"
    if type(item.get("version", 1)) is not int:
        yield "version", _GIVEN
    if type(item.get("proven", True)) is not bool:
        yield "proven", _GIVEN
    if "rounded" in item and not _are_fields(item["rounded"], item.get("data")):
        yield "rounded", _GIVEN


def is_exported_record(item: Mapping[str, Any]) -> bool:
    """Whether an object is a record as this service exports it, whose fields are in ``data``."""
    schema = item.get("schema", "/api/schemas/")
    return (
        isinstance(item.get("data"), Mapping)
        and item.keys() <= RECORD_MEMBERS
        and isinstance(schema, str)
        and "/api/schemas/" in schema
        and not any(misplaced_members(item))
    )


_URL = re.compile(r"\A/api/records/(\w+)/\Z")
_GIVEN = "is set by the service; put values of fields into data"


def _are_fields(value: object, data: object) -> bool:
    names = value if isinstance(value, list) else [None]
    return isinstance(data, Mapping) and all(
        isinstance(name, str) and name in data for name in names
    )


def _is_id(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(ids.from_text(value))
    except Malformed:
        return False


def _is_url(value: object, named: str | None) -> bool:
    if named is not None:
        return value == ids.reference("records", named)
    return isinstance(value, str) and any(map(_is_id, _URL.findall(value)))
