"""Records outside the service: kinds of files, charsets, lines of CSV, and objects of JSON.

Lines of CSV (RFC 4180) have the form that batch uploads read. An absent value is an empty cell, an
empty text is ``""``; the standard library's writer cannot distinguish them. For files that
spreadsheets will open, texts that a spreadsheet would run as a formula get an apostrophe in front,
by the rules of OWASP ("CSV Injection"); such a file differs from the records.

A record object has members that callers send, and read-only members that answers add. An answer's
record can be sent back unchanged. The read-only members change nothing; they are refused if no
answer could have had them, so that a field placed outside ``data`` is not lost silently.
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
        """The media type without parameters."""
        return _MEDIA_TYPES[self]

    @classmethod
    def of_media_type(cls, media_type: str) -> Format | None:
        """The format with exactly this media type; aliases do not count."""
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
            filename: counts if the media type names no format.
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
    "application/vnd.ms-excel": Format.CSV,  # the type of *.csv on Windows if Excel is installed
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
#: The media types that an error lists.
MEDIA_TYPES = ", ".join(_BY_MEDIA_TYPE)


class Charset(Enum):
    """A charset other than UTF-8. The value is its usual name.

    ``UTF_16`` does not fix the byte order: the file's first two bytes do.
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
#: The charsets that an error lists.
_KNOWN = ", ".join(["UTF-8", *(charset.value for charset in Charset)])
_PARAMETER = re.compile(r';\s*charset\s*=\s*(?:"([^"]*)"|([^\s;]*))', re.IGNORECASE)


def charset_named(name: str) -> Charset | None:
    """The charset with that name; None is UTF-8.

    Raises:
        Unsupported: ``unsupported_charset``: the name is unknown.
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
    """The charset that a Content-Type declares; None is UTF-8, or no declaration.

    Raises:
        Unsupported: as :func:`charset_named`.
    """
    declared = [quoted or bare for quoted, bare in _PARAMETER.findall(content_type)]
    charsets = {charset_named(name) for name in declared}
    if len(charsets) > 1:
        charset_named("two at once")
    return charsets.pop() if charsets else None


def require_utf8(charset: Charset | None) -> None:
    """Require UTF-8 for JSON (RFC 8259, section 8.1); ASCII is a part of it.

    Raises:
        Unsupported: ``unsupported_charset``: another charset is declared.
    """
    if charset not in (None, Charset.ASCII):
        raise Unsupported(
            "JSON must be in UTF-8",
            code="unsupported_charset",
            hint="convert it to UTF-8, and leave out charset= in Content-Type",
        )


#: Prefix of the last entry of a header, which names the schema.
SCHEMA_ENTRY = "schema_id:"
#: Prefix of a header's column that is not read.
LEFT_OUT = "leave_out:"
#: Characters that begin a formula, also in the full width of East Asian writing.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
#: Some programs drop these characters first and see a formula after them.
_BLANKS = "\\t\\r\\n\\0"
#: The start of a text, or the position after a character that ends a cell for another program, or
#: for the same program in another country. There, quotes can begin a cell as well.
_FORMULA = re.compile(rf'\A(?=[{_SIGNS}{_BLANKS}])|(?<=[,;|\t\r\n])("*)(?=[{_SIGNS}])')


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """The columns of a file of records: a column per name, and the same number of cells in each
    line.

    Args:
        safe: whether texts are changed so that no spreadsheet runs them as formulas.
        spare: whether an empty column follows. A record without its only field would otherwise be
            an empty line, which readers skip.
    """

    names: Sequence[str]
    safe: bool = False
    spare: bool = False

    @classmethod
    def of(cls, names: Sequence[str], required: Collection[str], *, safe: bool) -> CsvColumns:
        """The columns among ``names``; the ``required`` ones are present in every record."""
        return cls(names, safe, spare=len(names) == 1 and names[0] not in required)

    def header(self, schema: str | None = None) -> bytes:
        """The first line.

        Args:
            schema: an id, which becomes the last entry of the header, without cells below it.
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
    """A CSV line, with its line end.

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
        # A number needs no guard: its sign cannot begin any other formula.
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if safe:
        return _quoted(guard_formula(value))
    if value and not any(mark in value for mark in '",\r\n'):
        return value
    return _quoted(value)


def guard_formula(text: str) -> str:
    """The text, changed if necessary so that no spreadsheet runs it as a formula."""
    return _FORMULA.sub(r"\1'", text)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


SENT_MEMBERS = frozenset({"schema", "data"})
#: Of a record in an answer; ``rounded`` of a changed record, ``version`` and ``proven`` of a record
#: that a salvage found.
READ_ONLY_MEMBERS = frozenset({"id", "url", "rounded", "version", "proven"})
RECORD_MEMBERS = SENT_MEMBERS | READ_ONLY_MEMBERS


def misplaced_members(
    item: Mapping[str, Any], record: str | None = None
) -> Iterator[tuple[str, str]]:
    """The read-only members of a record object that no answer had, and the fault of each.

    Args:
        record: the id of the record that is changed; None for a new record.
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
    """Whether an object is a record as this service exports it, with its fields in ``data``."""
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
