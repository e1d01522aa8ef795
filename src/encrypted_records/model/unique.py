"""Unique fields: values of a record that no other record may have.

A *key* consists of the values of one set of fields, normalized for comparison. A record that lacks
one of these fields has no key of that set, and does not collide with any record.

Length classes of the fields of several groups, combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.definition import SchemaDefinition, Value
from encrypted_records.model.normalization import comparable
from encrypted_records.model.predicates import And, NumberIn, Or, Predicate, TextIn
from encrypted_records.model.records import Group


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """``fields`` are a set's; ``values`` are points of grids, or texts as they are compared."""

    fields: tuple[str, ...]
    values: tuple[int | str, ...]


def keys_of(
    definition: SchemaDefinition,
    data: Mapping[str, Value],
    sets: Sequence[tuple[str, ...]] | None = None,
) -> list[UniqueKey]:
    """The keys of a record, of all sets or of some."""
    found = []
    for fields in definition.unique if sets is None else sets:
        values = [_comparable(definition, name, data.get(name)) for name in fields]
        if None not in values:
            found.append(UniqueKey(fields, tuple(value for value in values if value is not None)))
    return found


def _comparable(definition: SchemaDefinition, name: str, value: Value) -> int | str | None:
    spec = definition.fields[name]
    if spec.is_of_texts:
        return comparable(value) if isinstance(value, str) else None
    return spec.to_point(value)


def find(keys: Iterable[UniqueKey]) -> Predicate | None:
    """The predicate of the records that have one of these keys; None without keys."""
    by_set: dict[tuple[str, ...], set[tuple[int | str, ...]]] = {}
    for key in keys:
        by_set.setdefault(key.fields, set()).add(key.values)
    parts = [part for fields, values in by_set.items() for part in _conditions(fields, values)]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def _conditions(fields: tuple[str, ...], keys: set[tuple[int | str, ...]]) -> Iterator[Predicate]:
    if len(fields) == 1:
        yield _among(fields[0], [values[0] for values in keys])
        return
    for values in keys:
        yield And(tuple(_among(name, [value]) for name, value in zip(fields, values, strict=True)))


def _among(name: str, values: Sequence[int | str]) -> Predicate:
    texts = frozenset(value for value in values if isinstance(value, str))
    if texts:
        return TextIn(name, texts)
    return NumberIn(name, frozenset(value for value in values if isinstance(value, int)))


def greatest_classes(groups: Iterable[Group]) -> Group | None:
    """A group that states for each field the greatest class that it had in one of these: what is
    sealed again gets no lower one. None without any."""
    greatest: dict[int, LeastClass] = {}
    first: Group | None = None
    for group in groups:
        first = first or group
        for number, stated in zip(group.fields, group.classes, strict=True):
            had = greatest.get(number)
            if had is None or had.length < stated.length:
                greatest[number] = stated
    if first is None:
        return None
    return msgspec.structs.replace(first, fields=list(greatest), classes=list(greatest.values()))
