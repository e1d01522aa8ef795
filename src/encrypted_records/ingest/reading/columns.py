"""The type of a column of cells: all cells are read in the same way, or the column stays text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import msgspec

from encrypted_records.ingest.reading import recipe
from encrypted_records.model import field_types

#: Number of distinct values that are tried first. A form that any of them refutes is not tried on
#: all.
_FIRST = 1_000
_DATE_NAME = re.compile(
    r"dat|day|tag|born|birth|geb|fecha|jour|time|zeit|taken|when|dt|_at$|^at$", re.I
)
_LEAST_COMPACT = 3
_LEAST_GROUPED = 3
#: Digits of numbers that are all this long and are not quantities.
_LONG_ID = 15
_MOST = 0.98


@dataclass(frozen=True)
class Decided:
    """The decision about a column. ``ask`` is an option that the column alone does not determine
    (``decimal``, ``date_format`` or ``null``), and ``note`` is then the question; otherwise
    ``note`` may be a remark.
    """

    column: recipe.FileColumn
    ask: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Evidence:
    """Evidence from other columns of the file: its decimal mark, and whether days come before
    months.
    """

    decimal: str | None = None
    day_first: bool | None = None


def decide(source: str, name: str, cells: Mapping[str, int], known: Evidence) -> Decided:
    """
    Args:
        cells: the distinct nonempty cells, with their counts.
    """
    text = recipe.FileColumn(source, name)
    words = {cell for cell in cells if cell.strip().lower() in recipe.NULL_WORDS}
    lettered = {word.strip().lower() for word in words if any(map(str.isalpha, word))}
    filled = [cell for cell in cells if cell not in words]
    null = sorted(words - {recipe.ABSENT})
    if not filled:
        return Decided(text, note=_of_words(words, cells))
    if len(lettered - {recipe.ABSENT.lower()}) > 1:
        # "None" and "Null" in the same column are names of people.
        if _typed(text, filled, known) is None:
            return Decided(text, note=_of_words(words, cells))
        return Decided(text, "null", 'several words could mean "no value"')
    found = _typed(text, filled, known)
    if found is None:
        return Decided(text, note=_of_words(words, cells) or _almost(text, filled, cells, known))
    column = found.column
    if column.type != "text":
        column = replace_null(column, null)
    return replace(found, column=column)


def replace_null(column: recipe.FileColumn, null: Sequence[str]) -> recipe.FileColumn:
    return _with(column, null=list(null))


def _with(column: recipe.FileColumn, **members: object) -> recipe.FileColumn:
    return msgspec.structs.replace(column, **members)


def _of_words(words: set[str], cells: Mapping[str, int]) -> str | None:
    count = sum(cells[word] for word in words)
    if not count:
        return None
    some = ", ".join(repr(word) for word in sorted(words)[:3])
    return f"{count:,} cells hold {some}, which are kept as text"


def _typed(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    """The type of cells without words for absent values; None if they are text."""
    first = filled[:_FIRST]
    for find in (_boolean, _compact, _number, _date, _moment, _one_form):
        if len(filled) > _FIRST and find(text, first, known) is None:
            continue
        found = find(text, filled, known)
        if found is not None:
            return found
    return None


def _boolean(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    spelled = {cell.strip().lower(): cell.strip() for cell in filled}
    if set(spelled) <= {"true", "false"}:
        return Decided(_with(text, type="boolean", true="true", false="false"))
    for yes, no in recipe.BOOLEANS:
        single = len(yes) == len(no) == 1 and yes.isascii()
        if set(spelled) == {yes, no} and (not single or (yes, no) in _LETTERS):
            return Decided(_with(text, type="boolean", true=spelled[yes], false=spelled[no]))
    return None


_LETTERS = {("y", "n"), ("t", "f"), ("j", "n")}


def _compact(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    """Days and moments that consist only of digits, and are therefore also numbers."""
    if len(filled) < _LEAST_COMPACT:
        return None
    if _all_read(recipe.instant_reader(recipe.COMPACT_TIME, None, offset=False), filled):
        return Decided(
            _with(text, type=recipe.moment_type(offset=False), format=recipe.COMPACT_TIME)
        )
    named = _DATE_NAME.search(text.name or "") is not None
    if named and _all_read(recipe.date_reader(recipe.COMPACT), filled):
        return Decided(_with(text, type="date", format=recipe.COMPACT))
    return None


def _number(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    if not any(any(map(str.isdigit, cell)) for cell in filled[:50]):
        return None
    forms = _forms(filled)
    if not forms:
        return None
    lengths = {len(cell) for cell in filled}
    if len(filled) > 1 and len(lengths) == 1 and lengths.pop() >= _LONG_ID and _are_digits(filled):
        return Decided(text, note="long numbers, such as those of cards: kept as text")
    if not _exponents_are_numbers(filled):
        return Decided(text, note="such as 1E10: a number or a code; kept as text")
    decimals = {form.decimal for form in forms}
    if len(decimals) > 1 and any(mark in cell for cell in filled for mark in ",."):
        settled = _settle(filled, forms, known)
        if settled is None:
            shown = next(cell for cell in filled if "," in cell or "." in cell)
            return Decided(text, "decimal", f"{shown.strip()}: thousands or decimals?")
        forms = [form for form in forms if form.decimal == settled]
    forms = [form for form in forms if _has_room(filled, form)]
    if not forms:
        return Decided(text, note="too many digits for a number: kept as text")
    form = min(forms, key=lambda form: (len(form.thousands), form.decimal != "."))
    return Decided(
        _with(text, type="number", decimal=form.decimal, thousands=form.thousands, unit=form.unit)
    )


def _forms(filled: Sequence[str]) -> list[recipe.NumberForm]:
    """All forms that read every cell; forms with a thousands separator only if a cell has it."""
    every = "\n".join(filled)
    marked: set[str] = set()
    if any(unit in every for unit in recipe.UNITS):
        marked = {recipe.unit_of(cell) for cell in filled} - {""}
    if len(marked) > 1:
        return []
    unit = next(iter(marked), "")
    forms = []
    for decimal, thousands in product(recipe.DECIMALS, ("", *recipe.THOUSANDS)):
        if decimal == thousands or (thousands and thousands not in every):
            continue
        form = recipe.NumberForm(decimal, thousands, unit)
        if _all_read(recipe.number_reader(form), filled):
            forms.append(form)
    return forms


def _has_room(filled: Sequence[str], form: recipe.NumberForm) -> bool:
    """Whether a field has room for the longest integer part together with the most decimals."""
    if 2 * max(map(len, filled)) <= field_types.MAX_DIGITS:
        return True
    read = recipe.number_reader(form)
    digits = decimals = 0
    for cell in filled:
        before, _, behind = (read(cell) or "").lstrip("-0").partition(".")
        digits, decimals = max(digits, len(before)), max(decimals, len(behind.rstrip("0")))
    return max(digits, 1) + decimals <= field_types.MAX_DIGITS


def _are_digits(filled: Sequence[str]) -> bool:
    return all(cell.isascii() and cell.isdecimal() for cell in filled)


def _exponents_are_numbers(filled: Sequence[str]) -> bool:
    with_exponent = [cell for cell in filled if "e" in cell.lower() and cell.strip()[-1:].isdigit()]
    return not with_exponent or any(
        "." in text or "-" in text.strip()[1:] for text in with_exponent
    )


def _settle(
    filled: Sequence[str], forms: Sequence[recipe.NumberForm], known: Evidence
) -> str | None:
    """Determine the decimal mark, if cells such as ``1,234`` are ambiguous."""
    for mark in recipe.DECIMALS:
        other = "," if mark == "." else "."
        grouped = [cell for cell in filled if other in cell]
        plain = [cell for cell in filled if other not in cell and mark not in cell]
        small = all(
            len([character for character in cell if character.isdigit()]) <= 3 for cell in plain
        )
        # Whole numbers up to 999, and longer numbers with separators.
        if (
            len(grouped) >= _LEAST_GROUPED
            and len(plain) >= _LEAST_GROUPED
            and small
            and not any(mark in cell for cell in filled)
        ):
            return mark
    return known.decimal if known.decimal in {form.decimal for form in forms} else None


def _date(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    formats = [form for form in recipe.DATE_FORMATS if _all_read(recipe.date_reader(form), filled)]
    return _with_format(text, "date", formats, filled, known)


def _with_format(
    text: recipe.FileColumn,
    kind: str,
    formats: list[str],
    filled: Sequence[str],
    known: Evidence,
    **more: object,
) -> Decided | None:
    if not formats:
        return None
    if len(formats) > 1:
        readers = [recipe.date_reader(form) for form in formats]
        if kind == "date" and all(len({read(cell) for read in readers}) == 1 for cell in filled):
            formats = formats[:1]
        elif known.day_first is not None:
            formats = [form for form in formats if form.startswith("dd") == known.day_first][:1]
        else:
            shown = filled[0].strip()
            return Decided(text, "date_format", f"{shown}: {' or '.join(formats)}?")
    return Decided(_with(text, type=kind, format=formats[0], **more)) if formats else None


def _moment(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    if ":" not in filled[0]:
        return None
    for offset in (True, False):
        formats = [
            form
            for form in recipe.DATE_FORMATS
            if _all_read(recipe.instant_reader(form, None, offset=offset), filled)
        ]
        found = _with_format(
            text, recipe.moment_type(offset=offset), formats, filled, known, offset=offset
        )
        if found is not None:
            return found
    return None


def _one_form(text: recipe.FileColumn, filled: Sequence[str], known: Evidence) -> Decided | None:
    kinds = (
        kind
        for kind, read in recipe.ONE_FORM.items()
        if _all_read(read, filled) and any(map(recipe.TYPE_OF[kind].is_evident, filled))
    )
    kind = next(kinds, None)
    return None if kind is None else Decided(_with(text, type=kind))


def _all_read(read: recipe.Reader, filled: Sequence[str]) -> bool:
    return all(read(cell) is not None for cell in filled)


def _almost(
    text: recipe.FileColumn, filled: Sequence[str], cells: Mapping[str, int], known: Evidence
) -> str | None:
    """A remark if nearly all cells are numbers or dates, with an exception."""
    total = sum(cells[cell] for cell in filled)
    readers: dict[str, list[recipe.Reader]] = {
        "numbers": [recipe.number_reader(recipe.NumberForm(mark, "")) for mark in recipe.DECIMALS],
        "dates": [recipe.date_reader(form) for form in recipe.DATE_FORMATS],
    }
    for what, those in readers.items():
        for read in those:
            first, odd = None, 0
            for cell in filled:
                if read(cell) is None:
                    first, odd = first or cell, odd + cells[cell]
                    if odd > (1 - _MOST) * total:
                        break
            else:
                if first is not None:
                    return (
                        f"{total - odd:,} of {total:,} values are {what}, {odd:,} not"
                        f" ({first[:40]!r}); kept as text"
                    )
    return None


def decide_all(
    sources: Sequence[str],
    names: Sequence[str],
    columns: Sequence[Mapping[str, int]],
    *,
    numbers: Collection[int] = (),
    texts: Collection[int] = (),
) -> list[Decided]:
    """Decide all columns of a file. Columns with a certain form resolve ambiguities of others.

    Args:
        numbers: columns that the file stores as numbers, with a decimal point.
        texts: columns that the file stores as texts, which are neither numbers nor booleans.
    """
    alone = []
    for at, (source, name, cells) in enumerate(zip(sources, names, columns, strict=True)):
        found = decide(source, name, cells, Evidence(decimal="." if at in numbers else None))
        if at in texts and (found.column.type in ("number", "boolean") or found.ask == "decimal"):
            found = Decided(recipe.FileColumn(source, name))
        alone.append(found)
    known = _evidence_of(alone, columns)
    return [
        found if found.ask is None else decide(found.column.source, name, cells, known)
        for found, name, cells in zip(alone, names, columns, strict=True)
    ]


def _evidence_of(alone: Sequence[Decided], columns: Sequence[Mapping[str, int]]) -> Evidence:
    decimals: set[str] = set()
    day_first: set[bool] = set()
    for found, cells in zip(alone, columns, strict=True):
        column = found.column
        if found.ask is None and column.type == "number":
            if any(column.decimal in cell for cell in cells):
                decimals.add(column.decimal)
            elif column.thousands in recipe.DECIMALS:
                decimals.add("," if column.thousands == "." else ".")
        slashed = found.ask is None and column.format and "/" in column.format
        if slashed and (column.format or "").startswith(("dd", "mm")):
            day_first.add((column.format or "").startswith("dd"))
    return Evidence(
        decimals.pop() if len(decimals) == 1 else None,
        day_first.pop() if len(day_first) == 1 else None,
    )
