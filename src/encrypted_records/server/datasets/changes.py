"""Which changes a definition can take once records were sealed under it.

Type, bounds and precision are fixed into each field's keys (constraint 7 of the interface), and
every stored record satisfies the definition it was sealed under. So a field may be added if it
is optional, and a rule may be loosened; whatever would leave a stored record unreadable or in
breach needs all records sealed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from encrypted_records.errors import Conflict, Flaw
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.definition_parser import escape_pointer


def refuse_breaking(old: SchemaDefinition, new: SchemaDefinition) -> None:
    """Let pass what leaves every stored record readable and valid.

    Raises:
        Conflict: ``needs_reencryption``, with every place that stands in the way.
    """
    flaws = tuple(_breaking(old, new))
    if flaws:
        raise Conflict(
            "records were sealed under the present definition, and it changes what seals them",
            code="needs_reencryption",
            hint="all records must be re-encrypted for this: make a new schema with the new"
            " definition and ingest the records into it",
            flaws=flaws,
        )


def _breaking(old: SchemaDefinition, new: SchemaDefinition) -> Iterator[Flaw]:
    for name, before in old.fields.items():
        place = f"/schema/properties/{escape_pointer(name)}"
        after = new.fields.get(name)
        if after is None:
            yield Flaw("field_removed", "stored records hold this field", pointer=place)
        elif after.binding != before.binding:
            yield Flaw(
                "binding_changed",
                "type, minimum, maximum and precision are fixed into the field's keys",
                pointer=place,
            )
        else:
            for keyword in _tightened(before, after):
                yield Flaw(
                    "rule_tightened",
                    "stored records may break the new rule",
                    pointer=f"{place}/{keyword}",
                )
    for name in sorted(new.required - old.required):
        yield Flaw(
            "required_added",
            "stored records may lack this field",
            pointer=f"/schema/required/{escape_pointer(name)}",
        )


def _tightened(before: FieldSpec, after: FieldSpec) -> Iterator[str]:
    was, is_now = before.string, after.string
    if not _at_most(is_now.min_length, was.min_length):
        yield "minLength"
    if not _at_least(is_now.max_length, was.max_length):
        yield "maxLength"
    if is_now.pattern is not None and is_now.pattern != was.pattern:
        yield "pattern"
    if before.number is not None and after.number is not None:
        low, high = after.number.exclusive_minimum, after.number.exclusive_maximum
        if not _at_most(low, before.number.exclusive_minimum):
            yield "exclusiveMinimum"
        if not _at_least(high, before.number.exclusive_maximum):
            yield "exclusiveMaximum"
        step = after.number.multiple_of
        if step is not None and step != before.number.multiple_of:
            yield "multipleOf"
    if after.allowed is not None and (
        before.allowed is None or not before.allowed <= after.allowed
    ):
        yield "enum"


def _at_most(new: int | Decimal | None, old: int | Decimal | None) -> bool:
    return new is None or (old is not None and new <= old)


def _at_least(new: int | Decimal | None, old: int | Decimal | None) -> bool:
    return new is None or (old is not None and new >= old)
