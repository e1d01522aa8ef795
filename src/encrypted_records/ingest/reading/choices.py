"""Readings that are not only detected: the caller states something, or an earlier reading is kept.

The caller's statements about how a file is read override detection. A later file is read like the
earlier file, or each difference is reported. A difference that changes no value is accepted: title
lines, the order of columns, UTF-8 instead of a guessed charset. The sender decides about other
differences, which are reported with the statement that accepts them. A file whose cells fit the
kept reading but suggest another reading also differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from encrypted_records.ingest.reading.columns import Decided, Evidence, decide
from encrypted_records.ingest.reading.detect import (
    Detection,
    Wanted,
    container_of,
    detect,
    dialect_of,
    text_of,
)
from encrypted_records.ingest.reading.recipe import (
    DATE_FORMATS,
    DATED,
    DECIMALS,
    MAX_BYTES,
    MOMENTS,
    ONE_FORM,
    THOUSANDS,
    FileColumn,
    NumberForm,
    Recipe,
    Type,
    date_reader,
    instant_reader,
    moment_type,
    number_reader,
    read_recipe,
    reader_of,
    unit_of,
)
from encrypted_records.ingest.reading.text_table import (
    ParsedRow,
    find_charset,
    is_likely,
    refused,
    rows_of,
)
from encrypted_records.ingest.reading.workbook import read_sheet
from encrypted_records.model.samples import ReadingDifference

_Word = Annotated[str, Meta(max_length=100)]


class SaidOfColumn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``null`` are further words for absent values; ``leave_out`` drops the column."""

    type: Type | None = None
    format: _Word | None = None
    decimal: Literal[".", ","] | None = None
    true: _Word | None = None
    false: _Word | None = None
    null: list[_Word] = []
    name: _Word | None = None
    leave_out: bool = False


class ReadingChoices(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``columns`` are by field name; ``decimal``, ``format`` and ``null`` apply to all columns
    without other statements. ``reading`` is an earlier file's reading, by which this file is to be
    read."""

    encoding: _Word | None = None
    delimiter: Literal[",", ";", "\t", "|"] | None = None
    header_row: Annotated[int, Meta(ge=0, le=1000)] | None = None
    below: Annotated[int, Meta(ge=0, le=1000)] | None = None
    sheet: Annotated[str, Meta(max_length=1000)] | None = None
    decimal: Literal[".", ","] | None = None
    format: _Word | None = None
    null: list[_Word] = []
    time_zone: str | None = None
    round: bool = False
    reading: Recipe | None = None
    columns: dict[str, SaidOfColumn] = {}


#: Options without meaning for a file in a container.
_UNUSED = {
    "csv": ("sheet",),
    "json": ("encoding", "delimiter", "header_row", "below"),
    "ndjson": ("encoding", "delimiter", "header_row", "below", "sheet"),
    "workbook": ("encoding", "delimiter"),
}
NOTHING = ReadingChoices()
NOTHING_OF_COLUMN = SaidOfColumn()


def read_said(body: bytes) -> ReadingChoices:
    """
    Raises:
        InvalidRecords: ``reading``; the options are invalid.
    """
    try:
        if len(body) > MAX_BYTES:
            raise msgspec.ValidationError(f"more than {MAX_BYTES >> 20} MiB")
        return msgspec.json.decode(body, type=ReadingChoices)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused(
            "the request's description of the reading cannot be read", str(error)[:200]
        ) from None


def notes_on_unused(said: ReadingChoices, container: str) -> list[str]:
    """Notes on the options that do not apply to a file."""
    unused = [member for member in _UNUSED[container] if getattr(said, member) is not None]
    return [f"not used, because the file has none: {', '.join(unused)}"] if unused else []


def detect_as(
    sample: bytes, said: ReadingChoices, *, whole: bool, texts: Collection[str] = ()
) -> Detection:
    """Detect like :func:`detect`, with the caller's statements.

    Args:
        texts: names of columns that stay text unless ``said`` states otherwise.

    Raises:
        InvalidRecords: ``reading``; also if most cells of a column cannot be read as stated.
        TooLarge: a quote does not close.
    """
    wanted = Wanted(said.encoding, said.delimiter, said.header_row, said.below, said.sheet)
    found = detect(sample, whole=whole, wanted=wanted)
    require_columns(found, said)
    recipe = msgspec.structs.replace(found.recipe, time_zone=said.time_zone, round=said.round)
    columns = [
        Decided(FileColumn(column.column.source, column.column.name))
        if column.column.name in texts
        else column
        for column in found.decided
    ]
    decided = [
        follow(column, said, column.column.name or "", list(cells))
        for column, cells in zip(columns, found.cells, strict=True)
    ]
    recipe = msgspec.structs.replace(recipe, columns=[column.column for column in decided])
    recipe = read_recipe(msgspec.json.encode(recipe))
    decided = [
        _with_unreadable(column, recipe, list(cells))
        for column, cells in zip(decided, found.cells, strict=True)
    ]
    return replace(found, recipe=recipe, decided=decided)


def require_columns(found: Detection, said: ReadingChoices) -> None:
    """
    Raises:
        InvalidRecords: ``reading``; an option names a column that the file does not have.
    """
    names = [column.name or "" for column in found.recipe.columns]
    for name in said.columns:
        if name not in names:
            raise refused(f"the file has no column {name}", f"it has: {', '.join(names[:20])}")


def follow(decided: Decided, said: ReadingChoices, name: str, cells: Sequence[str]) -> Decided:
    """A column by the caller's statements.

    Args:
        name: the column's name in statements.
        cells: its distinct nonempty cells.
    """
    column = decided.column
    own = said.columns.get(name, NOTHING_OF_COLUMN)
    null = [*column.null, *own.null]
    typed = own.type or own.format or own.decimal or own.true or own.false or own.null
    if own.type != "text" and (typed or column.type != "text"):
        null += [word for word in said.null if word in cells]
    column = msgspec.structs.replace(column, null=list(dict.fromkeys(null)))
    ask = decided.ask
    filled = [cell for cell in cells if cell not in column.null and cell.strip()]
    decimal, format_ = own.decimal or said.decimal, (own.format or said.format or "").lower()
    if own.type is not None or own.true or own.format or own.decimal or own.null:
        column, ask = _typed(column, own, decimal, format_, filled), None
    elif ask == "decimal" and decimal:
        column, ask = _number(column, decimal, filled), None
    elif ask == "date_format" and format_:
        column, ask = _dated(column, None, format_, filled), None
    if own.name is not None:
        column = msgspec.structs.replace(column, name=own.name)
    if own.leave_out:
        column, ask = msgspec.structs.replace(column, name=None), None
    return Decided(column, ask, decided.note if ask or column == decided.column else None)


def _typed(
    column: FileColumn,
    own: SaidOfColumn,
    decimal: str | None,
    format_: str,
    filled: Sequence[str],
) -> FileColumn:
    kind = own.type
    if kind == "text":
        return FileColumn(column.source, column.name, null=list(own.null))
    if kind == "boolean" or own.true or own.false:
        return FileColumn(
            *(column.source, column.name, "boolean"),
            true=own.true or "true",
            false=own.false or "false",
            null=column.null,
        )
    if kind == "number" or own.decimal:
        return _number(column, decimal, filled)
    if kind in DATED or own.format:
        return _dated(column, kind, format_, filled)
    if kind is not None and kind in ONE_FORM:
        return FileColumn(column.source, column.name, kind, null=column.null)
    if own.null and column.type == "text" and own.type is None:
        # The remaining cells without those words may have a type.
        again = decide(
            column.source, column.name or "", dict.fromkeys(filled, 1), Evidence()
        ).column
        return msgspec.structs.replace(again, null=column.null)
    return column


def _number(column: FileColumn, decimal: str | None, filled: Sequence[str]) -> FileColumn:
    units = {unit_of(cell) for cell in filled} - {""}
    unit = units.pop() if len(units) == 1 else ""
    forms = [
        NumberForm(mark, thousands, unit)
        for mark in ((decimal,) if decimal else DECIMALS)
        for thousands in ("", *THOUSANDS)
        if thousands != mark
    ]
    form = max(forms, key=lambda form: _count_read(number_reader(form), filled))
    return FileColumn(
        *(column.source, column.name, "number"),
        decimal=form.decimal,  # type: ignore[arg-type] # one of two
        thousands=form.thousands,
        unit=unit,
        null=column.null,
    )


def _dated(column: FileColumn, kind: str | None, format_: str, filled: Sequence[str]) -> FileColumn:
    timed = kind in MOMENTS or (kind is None and any(":" in text for text in filled))
    forms = [
        (form, offset)
        for offset in ((True, False) if timed else (False,))
        for form in ((format_,) if format_ else DATE_FORMATS)
    ]

    def count(form: tuple[str, bool]) -> int:
        days, offset = form
        reader = instant_reader(days, None, offset=offset) if timed else date_reader(days)
        return _count_read(reader, filled)

    form, offset = max(forms, key=count)
    return FileColumn(
        *(column.source, column.name, moment_type(offset=offset) if timed else "date"),
        format=form,
        offset=offset,
        null=column.null,
    )


def _count_read(read: Callable[[str], object], cells: Sequence[str]) -> int:
    return sum(read(cell) is not None for cell in cells)


def _with_unreadable(decided: Decided, recipe: Recipe, cells: Sequence[str]) -> Decided:
    """A column with a note of its cells that cannot be read: their rows are not valid.

    Raises:
        InvalidRecords: ``reading``; they are most of its cells, so the statement is wrong.
    """
    column = decided.column
    read = None if column.name is None else reader_of(column, recipe)
    if read is None:
        return decided
    filled = [cell for cell in cells if cell not in column.null and cell.strip()]
    odd = [cell for cell in filled if read(cell) is None]
    if not odd:
        return decided
    form = f"{column.type} {column.format}" if column.format else column.type
    if 2 * len(odd) >= len(filled):
        raise refused(
            f"{column.name}: {odd[0][:_SHOWN]!r} cannot be read as {form}",
            'name another form, or the words that mean "no value"',
            "columns",
        )
    shown = ", ".join(repr(cell[:_SHOWN]) for cell in odd[:_FEW_WORDS])
    more = ", ..." if len(odd) > _FEW_WORDS else ""
    note = f"rows with values that are not a {form} are not valid: {shown}{more}"
    return replace(decided, note=note)


#: Number of rows, and of characters, in which the row of names is searched.
_HEAD_ROWS = 1000
_HEAD_CHARACTERS = 1 << 20
#: Maximum number of distinct unreadable cells that may be words for absent values.
_FEW_WORDS = 3
#: Maximum number of fields that a difference lists.
_FEW_FIELDS = 10
_SHOWN = 40
_UNICODE = ("utf-8", "utf-16-le", "utf-16-be")
_CONTAINERS = {"csv": "CSV", "json": "JSON", "ndjson": "JSON", "workbook": "a workbook"}
_NAMED = {",": "commas", ".": "points"}


def read_again(
    sample: bytes,
    kept: Recipe,
    said: ReadingChoices,
    *,
    whole: bool,
    fields: Collection[str] | None = None,
    texts: Collection[str] = (),
) -> tuple[Detection, list[ReadingDifference]]:
    """Decide how a file is read, by a kept reading and the caller's statements; also returns the
    differences from the kept reading.

    Args:
        sample: the file's first bytes; all of it if ``whole``.
        fields: of the schema that is to store the file; None if there is none.
        texts: those of them that hold texts. A new column of such a field stays text.

    Raises:
        InvalidRecords: ``reading``; the file cannot be read, or lacks a column that an option
            names.
        TooLarge: a quote does not close.
    """
    differences: list[ReadingDifference] = []
    wanted = _wanted(sample, kept, said, differences, whole=whole)
    found = detect(sample, whole=whole, wanted=wanted)
    if kept.header_row == 0 and found.recipe.header_row and said.header_row is None:
        detail = (
            f"row {found.recipe.header_row} looks like column names, and the previous file had none"
        )
        differences.append(ReadingDifference("names", detail, say={"header_row": 0}))
        found = detect(sample, whole=whole, wanted=replace(wanted, header_row=0))
    require_columns(found, said)
    columns = list(_columns(found, kept, said, differences, fields=fields, texts=texts))
    below = _below(found, kept, said, differences)
    if found.short and not kept.short_rows:
        detail = f"{_rows(found.short)} without the last cells; the previous file had none"
        differences.append(ReadingDifference("short_rows", detail))
    if found.recipe.above != kept.above:
        detail = f"{_rows(found.recipe.above)} above the table instead of {_rows(kept.above)}"
        # Without names that mark the table's beginning, a row of few cells may be its first.
        taken = kept.header_row > 0 or found.recipe.above < kept.above
        say = None if taken else {"header_row": 0}
        differences.append(ReadingDifference("above", detail, taken, say=say))
    recipe = msgspec.structs.replace(
        kept,
        encoding=found.recipe.encoding,
        sheet=found.recipe.sheet,
        container=found.recipe.container,
        delimiter=found.recipe.delimiter,
        quote=found.recipe.quote if found.recipe.delimiter != kept.delimiter else kept.quote,
        empty_quotes="text" if found.recipe.empty_quotes == "text" else kept.empty_quotes,
        header_row=found.recipe.header_row,
        above=found.recipe.above,
        below=below,
        time_zone=said.time_zone or kept.time_zone,
        round=said.round or kept.round,
        columns=columns,
    )
    names = [column.column.name or "" for column in found.decided]
    own = {name: _said_of(column, name, said) for column, name in zip(columns, names, strict=True)}
    told = msgspec.structs.replace(said, columns=own)
    decided = [
        follow(Decided(column), told, name, list(cells))
        for column, name, cells in zip(columns, names, found.cells, strict=True)
    ]
    recipe = msgspec.structs.replace(recipe, columns=[column.column for column in decided])
    recipe = read_recipe(msgspec.json.encode(recipe))
    for column, choice, cells in zip(recipe.columns, found.decided, found.cells, strict=True):
        difference = _differs(column, choice, recipe, list(cells))
        differences += [difference] if difference else []
    return replace(found, recipe=recipe, decided=decided, guessed=()), differences


def _wanted(
    sample: bytes,
    kept: Recipe,
    said: ReadingChoices,
    differences: list[ReadingDifference],
    *,
    whole: bool,
) -> Wanted:
    """The parts of the kept reading that locate the table."""
    container = container_of(sample)
    if container != kept.container.removeprefix("nd"):
        raise refused(
            f"the file is {_CONTAINERS[container]}, and the previous file was"
            f" {_CONTAINERS[kept.container]}"
        )
    sheet = said.sheet or kept.sheet
    if container == "json":
        return Wanted(sheet=sheet)
    if container == "workbook":
        rows = read_sheet(sample, sheet).rows if whole else []
        row = _row_of_names(rows, kept)
        header = row if said.header_row is None else said.header_row
        return Wanted(header_row=header, below=said.below, sheet=sheet)
    encoding = said.encoding or _encoding(sample, kept, differences, whole=whole)
    text = text_of(sample, Wanted(encoding=encoding), whole=whole)
    delimiter, row = _names(text, kept, said, differences)
    header = row if said.header_row is None else said.header_row
    quote = kept.quote if delimiter == kept.delimiter else None
    if quote is not None and _has_other_quotes(text, kept):
        detail = "the quote character is not the one of the previous file"
        differences.append(ReadingDifference("quote", detail))
        quote = None
    return Wanted(encoding, delimiter, header, said.below, quote=quote)


def _has_other_quotes(text: str, kept: Recipe) -> bool:
    """Whether cells have other quotes than in the kept reading. The form of a file without quoted
    cells has ``"``.
    """
    _, _, free = dialect_of(text, Wanted(delimiter=kept.delimiter))
    return free != kept.quote and free in text[:_HEAD_CHARACTERS]


def _said_of(column: FileColumn, name: str, said: ReadingChoices) -> SaidOfColumn:
    """The caller's statements about a column of the kept reading. For numbers and days without a
    separate form, the form stated for all columns overrides the kept form."""
    own = said.columns.get(name, NOTHING_OF_COLUMN)
    if own.type or own.format or own.decimal or own.true or own.false:
        return own
    if column.type == "number" and said.decimal not in (None, column.decimal):
        return msgspec.structs.replace(own, decimal=said.decimal)
    if column.type in DATED and said.format not in (None, column.format):
        return msgspec.structs.replace(own, format=said.format)
    return own


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _encoding(
    sample: bytes, kept: Recipe, differences: list[ReadingDifference], *, whole: bool
) -> str:
    found = find_charset(sample, whole=whole)
    if found.name == kept.encoding:
        return found.name
    if found.name == "utf-8" and sample.isascii() and kept.encoding not in _UNICODE:
        return kept.encoding  # a later part of the file may need it
    if not found.guessed:
        detail = f"the charset is {found.name} instead of {kept.encoding}"
        differences.append(ReadingDifference("encoding", detail, taken=True))
        return found.name
    if kept.encoding not in _UNICODE and is_likely(kept.encoding, sample, found.name):
        try:
            sample[: len(sample) if whole else -4].decode(kept.encoding)
        except UnicodeDecodeError:
            pass
        else:
            return kept.encoding
    words = f": {', '.join(found.words)}" if found.words else ""
    detail = (
        f"the file is not {kept.encoding}, unlike the previous file; it may be {found.name}{words}"
    )
    differences.append(ReadingDifference("encoding", detail, say={"encoding": found.name}))
    return found.name


def _names(
    text: str, kept: Recipe, said: ReadingChoices, differences: list[ReadingDifference]
) -> tuple[str, int | None]:
    """The delimiter, and the number of the row with the names of the kept reading."""
    if said.delimiter is not None:
        return said.delimiter, _names_row(text, said.delimiter, kept)
    row = _names_row(text, kept.delimiter, kept)
    _, free, _ = dialect_of(text, Wanted())
    if free == kept.delimiter or row:
        return kept.delimiter, row
    if kept.header_row == 0 and _width(text, kept.delimiter, kept) == len(kept.columns):
        return kept.delimiter, row
    detail = f"the delimiter is {free!r} instead of {kept.delimiter!r}"
    differences.append(ReadingDifference("delimiter", detail, say={"delimiter": free}))
    return free, _names_row(text, free, kept)


def _names_row(text: str, delimiter: str, kept: Recipe) -> int | None:
    rows = rows_of(text[:_HEAD_CHARACTERS], delimiter, kept.quote, final=True)
    return _row_of_names(rows, kept)


def _row_of_names(rows: Iterable[ParsedRow], kept: Recipe) -> int | None:
    """The first row with most of the names; 0 if the kept reading has no names and nothing above
    its table; None if the names are not found."""
    if kept.header_row == 0:
        return None
    wanted = Counter(column.source for column in kept.columns if column.source)
    least = max(1, (sum(wanted.values()) + 1) // 2)
    for number, row in zip(range(1, _HEAD_ROWS + 1), rows, strict=False):
        if (Counter(row.cells) & wanted).total() >= least:
            return number
    return None


def _width(text: str, delimiter: str, kept: Recipe) -> int:
    widths = [
        len(row.cells)
        for _, row in zip(
            range(_HEAD_ROWS),
            rows_of(text[:_HEAD_CHARACTERS], delimiter, kept.quote, final=True),
            strict=False,
        )
    ]
    return max(set(widths), key=widths.count, default=0)


def _columns(
    found: Detection,
    kept: Recipe,
    said: ReadingChoices,
    differences: list[ReadingDifference],
    *,
    fields: Collection[str] | None,
    texts: Collection[str],
) -> Iterator[FileColumn]:
    """For each column of the file, the column of the kept reading."""
    left = list(kept.columns)
    new: list[tuple[int, str]] = []
    without_field: list[FileColumn] = []
    order: list[FileColumn] = []
    for at, choice in enumerate(found.decided):
        column = choice.column
        own = said.columns.get(column.name or "", NOTHING_OF_COLUMN)
        known = next((other for other in left if other.source == column.source), None)
        if known is None and own.name is not None:
            known = next((other for other in left if other.name == own.name), None)
        if known is not None:
            left.remove(known)
            order.append(known)
            if _has_field(known, fields) or own.leave_out or own.name is not None:
                yield msgspec.structs.replace(known, source=column.source)
            else:
                without_field.append(msgspec.structs.replace(known, source=column.name or ""))
                yield msgspec.structs.replace(known, source=column.source, name=None)
        elif own.name is not None:
            yield FileColumn(column.source, column.name) if own.name in texts else column
        else:
            if not own.leave_out:
                new.append((at, column.name or ""))
            yield msgspec.structs.replace(column, name=None)
    if not order:
        raise refused("the file has none of the columns of the previous file")
    taken_names = {column.name for column in kept.columns}
    free = [name for name in fields or () if name not in taken_names]
    differences.extend(_no_field(column, free) for column in without_field)
    missing = {
        column.source: column
        for column in left
        if column.name is not None and _has_field(column, fields)
    }
    renamed: dict[str, dict[str, Any]] = {}
    for at, name in new:
        before = kept.columns[at] if at < len(kept.columns) else None
        if name in free:
            say: dict[str, Any] = {"columns": {name: {"name": name}}}
            detail = f"the column {name!r} is new, and the schema has a field of this name"
        elif before is not None and before in left and before.source in missing:
            say = {"columns": {name: {"name": before.name}}}
            renamed[before.source] = say
            detail = f"the column {name!r} is new: is it {before.source!r}?"
        else:
            say = {"columns": {name: {"leave_out": True}}}
            detail = f"the column {name!r} is new"
        differences.append(ReadingDifference("new", detail, column=name, say=say))
    for source, column in missing.items():
        detail = f"the column {source!r} is missing"
        say_so = renamed.get(source)
        # A JSON object without the member has no value for it.
        taken = found.recipe.container in ("json", "ndjson")
        differences.append(ReadingDifference("missing", detail, taken, column.name, say_so))
    if order != [column for column in kept.columns if column in order]:
        differences.append(
            ReadingDifference("order", "the columns are in another order", taken=True)
        )


def _has_field(column: FileColumn, fields: Collection[str] | None) -> bool:
    """Whether the schema still has the column's field, if the column has one."""
    return fields is None or column.name is None or column.name in fields


def _no_field(column: FileColumn, free: Sequence[str]) -> ReadingDifference:
    """The difference of a column whose field the schema no longer has; ``free`` are fields that no
    column of the kept reading has.
    """
    detail = f"the schema no longer has the field {column.name!r} of the column {column.source!r}"
    if free:
        detail += f"; fields without a column: {', '.join(free[:_FEW_FIELDS])}"
    say = {"columns": {column.source: {"leave_out": True}}}
    return ReadingDifference("field", detail, column=column.source, say=say)


def _below(
    found: Detection, kept: Recipe, said: ReadingChoices, differences: list[ReadingDifference]
) -> int | None:
    count, before = found.recipe.below or 0, kept.below or 0
    if said.below is not None:
        return said.below
    if not found.whole:
        if kept.below:
            detail = "the file's first bytes do not show whether there are rows below the table"
            differences.append(ReadingDifference("below", detail, say={"below": kept.below}))
        return kept.below or None
    if count != before:
        detail = f"{_rows(count)} below the table instead of {_rows(before)}"
        taken = count < before
        differences.append(ReadingDifference("below", detail, taken, say={"below": count}))
    return count


def _differs(
    column: FileColumn, decided: Decided, recipe: Recipe, cells: Sequence[str]
) -> ReadingDifference | None:
    """The difference of a column whose cells do not fit the reading, or suggest another."""
    read = None if column.name is None else reader_of(column, recipe)
    if read is None:
        return None
    name, free = decided.column.name or "", decided.column
    filled = [cell for cell in cells if cell not in column.null and cell.strip()]
    odd = [cell for cell in filled if read(cell) is None]
    other = _other_form(column, free) if decided.ask is None else None
    if other is not None:
        kind, detail, said = other
        if not odd:
            own = reader_of(free, recipe)
            same = own is None or all(own(cell) in (None, read(cell)) for cell in filled)
            if same:
                return None
            detail += "; its cells fit both"
        say = {"columns": {name: said}}
        return ReadingDifference(kind, f"{name} has {detail}", column=name, say=say)
    if not odd:
        return None
    shown = ", ".join(repr(cell[:_SHOWN]) for cell in odd[:_FEW_WORDS])
    detail = f"{name}: {shown} cannot be read as {column.type}"
    if len(odd) <= _FEW_WORDS and len(odd) < len(filled):
        null = {"columns": {name: {"null": odd}}}
        return ReadingDifference("null", detail, column=name, say=null)
    says: dict[str, dict[str, Any]] = {
        "number": {"decimal": free.decimal},
        "boolean": {"true": free.true, "false": free.false},
    }
    retyped = says.get(column.type, {"format": free.format})
    same_type = {"columns": {name: retyped}} if free.type == column.type else None
    return ReadingDifference("value", detail, column=name, say=same_type)


def _is_dated_alike(kind: str, other: str) -> bool:
    """Whether two column types have days in a format, both with or both without a time."""
    return {kind, other} <= set(DATED) and (kind in MOMENTS) == (other in MOMENTS)


def _other_form(column: FileColumn, free: FileColumn) -> tuple[str, str, dict[str, Any]] | None:
    """The form that the file itself suggests, if it is another form of the same type."""
    match column.type, free.type:
        case "number", "number" if free.decimal != column.decimal:
            detail = (
                f"decimal {_NAMED[free.decimal]}, the kept reading has {_NAMED[column.decimal]}"
            )
            return "decimal", detail, {"decimal": free.decimal}
        case kind, other if _is_dated_alike(kind, other) and free.format != column.format:
            detail = f"days as {free.format}, the kept reading has {column.format}"
            return "date_format", detail, {"format": free.format}
        case "boolean", "boolean" if {free.true, free.false} != {column.true, column.false}:
            detail = (
                f"{free.true} and {free.false}, the kept reading has {column.true} and"
                f" {column.false}"
            )
            return "boolean", detail, {"true": free.true, "false": free.false}
    return None
