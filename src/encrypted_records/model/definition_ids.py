"""Ids of the fields of a definition for which all records are sealed again."""

from __future__ import annotations

from dataclasses import replace

from encrypted_records.model.definition import SchemaDefinition


def with_ids_for_types(new: SchemaDefinition, before: SchemaDefinition) -> SchemaDefinition:
    """``new``, which follows ``before``, where each field of another type or format than there is a
    field of its own: what is sealed of it has other lengths, and so another id."""
    had = before.by_id
    other = {
        name
        for name, spec in new.fields.items()
        if spec.id in had and spec.field_type is not had[spec.id].field_type
    }
    added = {name for name, spec in new.fields.items() if spec.id not in had}
    numbers = enumerate(sorted(other | added), before.next_id)
    ids = {name: number for number, name in numbers}
    fields = {name: replace(spec, id=ids.get(name, spec.id)) for name, spec in new.fields.items()}
    return replace(new, fields=fields, next_id=before.next_id + len(ids))
