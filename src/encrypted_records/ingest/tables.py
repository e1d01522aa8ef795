"""CSV rows by column: what most files hold is accepted a column at a time, in a fifth of the time.

Whatever is out of the ordinary is left to the way by rows, which names what is wrong, row by row.
Both must come to the same end: tests hold one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from encrypted_records.ingest.blocks import Table
from encrypted_records.ingest.parse_csv import as_number
from encrypted_records.model.definition import (
    MAX_STRING_BYTES,
    FieldSpec,
    SchemaDefinition,
    Value,
)
from encrypted_records.model.strict_json import MAX_NUMBER_LENGTH

#: Accepted values of a field, row by row; None where it is absent.
Values = Sequence[Value]


class Columns:
    """Accepted records of one schema, one under the other."""

    def __init__(self, definition: SchemaDefinition) -> None:
        self.definition = definition
        self.count = 0
        self.values: dict[str, list[Value]] = {name: [] for name in definition.fields}

    def add(self, data: Mapping[str, Value]) -> None:
        """One record, absent fields left out."""
        self.count += 1
        for name, values in self.values.items():
            values.append(data.get(name))

    def extend(self, values: Mapping[str, Values], count: int) -> None:
        """``count`` records, columns of absent fields left out."""
        self.count += count
        for name, own in self.values.items():
            own.extend(values.get(name) or [None] * count)


def accepted_columns(definition: SchemaDefinition, table: Table) -> dict[str, Values] | None:
    """The table's values as they are kept; None where a row may be refused."""
    found: dict[str, Values] = {}
    for name, cells in table.columns.items():
        spec = definition.fields.get(name)
        if spec is None:
            return None
        try:
            found[name] = _accepted(spec, cells)
        except ValueError:  # ValueRefused, or of int()
            return None
    for name in definition.required:
        if name not in found or None in found[name]:
            return None
    return found


def _accepted(spec: FieldSpec, cells: Sequence[str | None]) -> Values:
    """
    Raises:
        ValueError: a cell may be none of the field's.
    """
    present: Any = [cell for cell in cells if cell is not None] if None in cells else cells
    together = "".join(present)
    plain = together.isascii()
    if spec.any_text and plain and len(together) <= MAX_STRING_BYTES:
        return cells
    if spec.only_bounds and plain and _integers(present, together):
        numbers = list(map(int, present))
        rules = spec.numbers
        if numbers and not rules.lowest <= min(numbers) <= max(numbers) <= rules.highest:
            raise ValueError
        given = iter(numbers)
        return numbers if present is cells else [c if c is None else next(given) for c in cells]
    if spec.type == "string":
        return [spec.accept(cell) for cell in cells]
    return [cell if cell is None else spec.accept(as_number(cell)) for cell in cells]


def _integers(cells: Sequence[str], together: str) -> bool:
    """Whether all are digits, perhaps behind a minus, so that int() takes them or raises."""
    return together.replace("-", "").isdigit() and max(map(len, cells)) <= MAX_NUMBER_LENGTH
