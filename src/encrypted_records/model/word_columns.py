"""The columns of a definition: one for each field, and one for the words of each whose words are
indexed (docs/SPEC.md, section 5.1).

A column of words is that of a field of its own, which no record has: it has the id of the field of
texts, and another binding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property

from encrypted_records.model.definition import (
    FieldSpec,
    SchemaDefinition,
    length_prefixed,
)
from encrypted_records.model.field_types.base import KeyKind

#: Behind a field's name, which has no such character: the name of the column of its words.
_MARK = "\0words"


class WordsSpec(FieldSpec):
    """The words of a field's texts, in place of the field, to ask for keys and columns of."""

    @cached_property
    def kind(self) -> KeyKind:
        return KeyKind.WORDS

    @cached_property
    def binding(self) -> bytes:
        # Two parts: no field has as many.
        return hashlib.sha256(length_prefixed(b"string", b"words")).digest()


def words_column(name: str) -> str:
    """The name of the column of a field's words."""
    return name + _MARK


def words_spec(spec: FieldSpec) -> WordsSpec:
    """The column of the words of a field of texts."""
    return WordsSpec(words_column(spec.name), spec.type, id=spec.id)


def column_spec(definition: SchemaDefinition, name: str) -> FieldSpec:
    """The field, or the words of a field, whose column has this name."""
    if name.endswith(_MARK):
        return words_spec(definition.fields[name.removesuffix(_MARK)])
    return definition.fields[name]


def columns_of(definition: SchemaDefinition) -> Iterator[FieldSpec]:
    """All columns that a new segment of the definition has, in its order."""
    for spec in definition.fields.values():
        yield spec
        if spec.words:
            yield words_spec(spec)


def same_column(definition: SchemaDefinition, spec: FieldSpec) -> FieldSpec | None:
    """The field of ``spec`` under another definition, by its id; None where it has none."""
    own = definition.by_id.get(spec.id)
    if own is None or not isinstance(spec, WordsSpec):
        return own
    return words_spec(own) if own.kind is KeyKind.TEXT else None
