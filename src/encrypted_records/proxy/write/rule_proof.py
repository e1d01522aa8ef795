"""Whether what is stored keeps rules that demand more: from the index, and by opening the rest.

A column has every value that is there: what is least, greatest, absent and distinct needs no
record. Strings are indexed in NFC and shortened, so that one of which the index does not know the
spelling is decided on the opened record.

Whether stored records have equal values of fields that are to become unique.

Equal values have equal index keys, in all segments and under all definitions of a log, so that the
index alone decides. Records are opened only to say what their values are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.index.query.bringing import bring_columns
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.global_dictionary import (
    GlobalDictionary,
    build_global_dictionary,
)
from encrypted_records.index.query.records import BATCH
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, Value
from encrypted_records.model.definition_changes import (
    Cost,
    DefinitionChange,
    convert,
    find_added_sets,
)
from encrypted_records.model.field_types.base import KeyKind, ValueRefused
from encrypted_records.model.predicates import Everything
from encrypted_records.model.queries import MAX_COMPARISONS
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.context import QueryContext

#: So many values that do not fit are named by the search that finds their records.
MOST_NAMED = 100
#: The ASCII characters that are the NFC of others, too: only opened records tell which was sent.
AMBIGUOUS = frozenset("K;`")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An obstacle to a change: the number of records, and a condition that finds them under the
    present definition (of more than ``MOST_NAMED`` values, some of them); None finds all.
    """

    change: DefinitionChange
    records: int
    where: dict[str, Any] | None


async def find_obstacles(
    context: QueryContext,
    new: SchemaDefinition,
    changes: Sequence[DefinitionChange],
    dropped: Collection[str] = (),
) -> list[Obstacle]:
    """The records that break what ``changes`` demand, one entry per field and demand.

    Args:
        dropped: names of fields whose values may be lost.

    Raises:
        ErsError: as :meth:`QueryContext.match_rows`.
    """
    demands = [
        change
        for change in changes
        if change.cost is Cost.PROOF or change.code == "binding_changed"
    ]
    lost = [
        change
        for change in changes
        if change.code == "field_removed" and change.field not in dropped
    ]
    present = context.snapshot.definition
    sets = find_added_sets(present, new)
    asked = {demand.field for demand in demands}.union(*sets)
    names = {
        name: present.by_id[spec.id].name
        for name, spec in ((name, new.fields[name]) for name in asked)
        if spec.id in present.by_id
    }
    wanted = {*names.values(), *(unique.field for unique in lost)}
    parts = await context.match_rows(Everything()) if demands or lost else []
    segments = [part.segment for part in parts]
    await context.run(bring_columns(segments, sorted(wanted), context.space.sizes))
    stored = sum(map(len, parts))
    obstacles: list[Obstacle] = []
    if not stored:
        return obstacles
    for change in lost:
        column = await aside(build_global_dictionary, change.field, parts)
        if held := stored - int(column.counts[0]):
            some = {"not": {"field": change.field, "op": "is_null"}}
            obstacles.append(Obstacle(change, held, some))
    proven: set[str] = set()
    doubled = iter(sets)
    for demand in demands:
        if demand.code == "unique_added":
            own = next(doubled)
            if all(field in names for field in own):  # else no stored record has all of them
                fields = [names[field] for field in own]
                records, where = await find_doubles(context, parts, fields, MOST_NAMED)
                obstacles += [Obstacle(demand, records, where)] if records else []
            continue
        name = names.get(demand.field)
        if name is None:
            obstacles.append(Obstacle(demand, stored, None))
            continue
        column = await aside(build_global_dictionary, name, parts)
        if demand.code == "required_added":
            if absent := int(column.counts[0]):
                obstacles.append(Obstacle(demand, absent, {"field": name, "op": "is_null"}))
        elif demand.field not in proven:
            proven.add(demand.field)
            spec = new.fields[demand.field]
            found = await _find_refused(context, parts, column, name, spec, present.fields[name])
            if found.records:
                obstacles.append(Obstacle(demand, found.records, found.where(name)))
    return obstacles


@dataclass(frozen=True, slots=True)
class _Refused:
    records: int
    named: list[Value]

    def where(self, name: str) -> dict[str, Any]:
        return {"field": name, "op": "in", "value": self.named[:MOST_NAMED]}


async def _find_refused(
    context: QueryContext,
    parts: Sequence[Candidates],
    column: GlobalDictionary,
    name: str,
    spec: FieldSpec,
    present: FieldSpec,
) -> _Refused:
    """The records whose value the field's new rules refuse, or that it would not hold as it is."""
    compared = context.definition.fields[name]

    def takes(value: Value) -> bool:
        return fits(spec, value, present)

    refused, unsure = await aside(_judge_keys, column, compared, takes)
    records = int(column.counts[refused].sum()) if len(refused) else 0
    named = [_value(column, compared, code) for code in refused[:MOST_NAMED].tolist()]
    if not len(unsure):
        return _Refused(records, named)
    rows = np.isin(column.codes, unsure)
    positions = np.sort(column.positions[rows]).tolist()
    for at in range(0, len(positions), BATCH):
        refs = [context.snapshot.ref(position) for position in positions[at : at + BATCH]]
        for record in await context.rows(refs, alone=True):
            value = record.data[name]
            if not takes(value):
                records += 1
                if len(named) < MOST_NAMED and value not in named:
                    named.append(value)
    return _Refused(records, named)


def _judge_keys(
    column: GlobalDictionary, compared: FieldSpec, takes: Callable[[Value], bool]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The codes of values that do not fit, and of those that only an opened record shows."""
    refused: list[int] = []
    unsure: list[int] = []
    for code, key in enumerate(column.keys.tolist(), 1):
        if not column.counts[code]:
            continue
        if not compared.field_type.keys_tell_all:
            unsure.append(code)  # such as the offset in which an instant was written
        elif compared.kind is KeyKind.TEXT and (
            values.is_long(key) or not _is_spelled_once(values.text_of(key))
        ):
            unsure.append(code)
        elif not takes(values.from_key(compared, key)):
            refused.append(code)
    return np.array(refused, np.int64), np.array(unsure, np.int64)


def _is_spelled_once(text: str) -> bool:
    """Whether no other text has this one as its NFC."""
    return text.isascii() and AMBIGUOUS.isdisjoint(text)


def fits(spec: FieldSpec, value: Value, present: FieldSpec | None = None) -> bool:
    """Whether a stored value keeps the rules of ``spec``, to the letter, or becomes a value of it
    without losing anything.

    Args:
        present: the field that it is a value of, where that has another type.
    """
    try:
        if present is not None:
            convert(present, spec, value)
            return True
        return spec.accept(value) == value
    except ValueRefused:
        return False


def _value(column: GlobalDictionary, compared: FieldSpec, code: int) -> Value:
    return values.from_key(compared, column.keys[code - 1].item())


def total(obstacles: Collection[Obstacle]) -> int:
    """The largest number of records that one of these obstacles has."""
    return max((obstacle.records for obstacle in obstacles), default=0)


async def find_doubles(
    context: QueryContext, parts: Sequence[Candidates], names: Sequence[str], most: int
) -> tuple[int, dict[str, Any]]:
    """The number of these records that share their values of all ``names`` with another one, and a
    condition that finds them, or of more than ``most`` different values some of them.

    Args:
        parts: candidates whose columns of ``names`` are here.

    Raises:
        ErsError: as :meth:`QueryContext.rows`.
    """
    count, examples = await aside(_find, parts, names, min(most, MAX_COMPARISONS // len(names)))
    refs = [context.snapshot.ref(position) for position in examples]
    records = await context.rows(refs, alone=True)
    return count, _condition(names, records)


def _find(parts: Sequence[Candidates], names: Sequence[str], most: int) -> tuple[int, list[int]]:
    """The number of rows that share their values, and the positions of one row for each of some
    values.
    """
    columns = [build_global_dictionary(name, parts) for name in names]
    every = [column.codes for column in columns]
    # A record that lacks one of the fields collides with none.
    whole = np.flatnonzero(np.logical_and.reduce([codes > 0 for codes in every]))
    values = reduce(_pair, (codes[whole] for codes in every))
    _, firsts, counts = np.unique(values, return_index=True, return_counts=True)
    shared = counts > 1
    rows = np.sort(whole[firsts[shared]])[:most]
    return int(counts[shared].sum()), columns[0].positions[rows].tolist()


def _pair(first: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each row, equal where both are: below the number of rows, so that it and the
    next ones fit 64 bits."""
    width = int(other.max(initial=0)) + 1
    paired: NDArray[np.int64] = np.unique(first, return_inverse=True)[1].astype(np.int64)
    return paired * width + other


def _condition(names: Sequence[str], records: Sequence[PlainRecord]) -> dict[str, Any]:
    if len(names) == 1:
        values = [record.data[names[0]] for record in records]
        return {"field": names[0], "op": "in", "value": values}
    return {
        "or": [
            {"and": [{"field": name, "op": "eq", "value": record.data[name]} for name in names]}
            for record in records
        ]
    }
