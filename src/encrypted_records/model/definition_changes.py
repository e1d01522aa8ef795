"""Differences between two definitions of a schema that has records, and the history of definitions.

Every stored record keeps the rules of the definition under which it was sealed, and its keys keep
the grid of that definition. Therefore a rule may be loosened and a bound widened at once; a
stricter rule needs a proof that the stored records obey it; a changed type needs all records
sealed again. Stored values are then converted to the field's new type, format or number of
decimals. A value that the new field could not hold exactly is refused, so nothing is lost silently.

A group and a segment keep the definition under which they were made (docs/SPEC.md, section 7.4).
Keys of different bounds are compared on a common grid that covers all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property

from encrypted_records.errors import Conflict, DoesNotOpen, Flaw, InvalidDefinition
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import FieldSpec, Retention, SchemaDefinition, Value
from encrypted_records.model.field_types.base import ValueRefused, as_decimal, text_of
from encrypted_records.model.record_formats import LEFT_OUT, SCHEMA_ENTRY
from encrypted_records.model.strict_json import escape_pointer

#: Reserved prefixes of names, and their meaning in the header of a CSV file.
_RESERVED = {SCHEMA_ENTRY: "names the schema", LEFT_OUT: "is of a column that is not read"}


class Cost(enum.Enum):
    """The cost of a change. The values appear in answers."""

    #: only a commit
    COMMIT = "commit"
    #: a check of the stored records, then a commit
    PROOF = "proof"
    #: every record sealed again
    RESEAL = "reseal"


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """A difference between two definitions: a code, a sentence, and the position in the new
    definition.

    ``field`` is the field's name in the new definition, or in the old one if the field was removed.
    """

    cost: Cost
    code: str
    detail: str
    field: str
    pointer: str

    @property
    def flaw(self) -> Flaw:
        return Flaw(self.code, self.detail, pointer=self.pointer)


def refuse_reserved(names: Iterable[str]) -> None:
    """Refuse new field names that would have another meaning in a CSV header.

    Raises:
        InvalidDefinition: ``reserved_name``, with the position of each.
    """
    flaws = tuple(
        Flaw(
            "reserved_name",
            f"a name that begins with {begin} {meaning} in the header of a CSV file",
            pointer=f"/schema/properties/{escape_pointer(name)}",
        )
        for name in sorted(names)
        for begin, meaning in _RESERVED.items()
        if name.startswith(begin)
    )
    if flaws:
        raise InvalidDefinition("the definition has reserved names", flaws=flaws)


def refuse_changes(changes: Sequence[DefinitionChange], *, proven: bool) -> None:
    """Refuse changes that need records re-encrypted, or, if they are not ``proven``, checked.

    Args:
        proven: whether the stored records were checked against the stricter rules.

    Raises:
        Conflict: ``needs_reencryption``, with the position of each such change.
    """
    refused = {Cost.RESEAL} if proven else {Cost.RESEAL, Cost.PROOF}
    flaws = tuple(change.flaw for change in changes if change.cost in refused)
    if flaws:
        raise Conflict(
            "records were encrypted under the current definition, and this changes how"
            " they are encrypted",
            code="needs_reencryption",
            hint="all records must be re-encrypted for this: use ers schema change --apply, or"
            " POST /api/schemas/<id>/change/ at a proxy",
            flaws=flaws,
        )


def list_changes(old: SchemaDefinition, new: SchemaDefinition) -> list[DefinitionChange]:
    """The differences of ``new``, whose ids follow ``old``, except titles and other annotations."""
    return list(_changes(old, new))


def _changes(old: SchemaDefinition, new: SchemaDefinition) -> Iterator[DefinitionChange]:
    for number, before in old.by_id.items():
        after = new.by_id.get(number)
        if after is None:
            pointer = f"/schema/properties/{escape_pointer(before.name)}"
            detail = "stored records have this field"
            yield DefinitionChange(Cost.RESEAL, "field_removed", detail, before.name, pointer)
            continue
        yield from _changes_of_field(before, after)
    for spec in new.fields.values():
        if spec.id not in old.by_id:
            yield _at(spec, Cost.COMMIT, "field_added", "stored records do not have it")
    yield from _changes_of_root(old, new)
    required = {old.fields[name].id for name in old.required}
    for spec in new.fields.values():
        pointer = f"/schema/required/{escape_pointer(spec.name)}"
        if spec.name in new.required and spec.id not in required:
            detail = "stored records may lack this field"
            yield DefinitionChange(Cost.PROOF, "required_added", detail, spec.name, pointer)
        elif spec.id in required and spec.name not in new.required:
            detail = "records may lack this field from now on"
            yield DefinitionChange(Cost.COMMIT, "required_removed", detail, spec.name, pointer)


def _changes_of_root(old: SchemaDefinition, new: SchemaDefinition) -> Iterator[DefinitionChange]:
    if new.formats != old.formats:
        # A change that gives the field's values another meaning also changes the format.
        detail = f"formats are {'enforced' if new.formats else 'words'} from now on"
        yield DefinitionChange(Cost.COMMIT, "formats_changed", detail, "", "/schema/formats")
    if new.exact != old.exact:
        detail = "numbers with more decimals than their field keeps are"
        detail = f"{detail} {'refused' if new.exact else 'rounded'} from now on"
        yield DefinitionChange(Cost.COMMIT, "rounding_changed", detail, "", "/schema/rounding")
    for names in find_added_sets(old, new):
        detail = f"stored records may have equal values of {', '.join(names)}"
        yield DefinitionChange(Cost.PROOF, "unique_added", detail, names[-1], "/schema/unique")
    for names in find_added_sets(new, old):
        detail = f"records may have equal values of {', '.join(names)} from now on"
        yield DefinitionChange(Cost.COMMIT, "unique_removed", detail, names[-1], "/schema/unique")
    if _retention_of(new) != _retention_of(old):
        detail, field = _retention_texts(new.retention)
        yield DefinitionChange(Cost.COMMIT, "retention_changed", detail, field, "/schema/retention")


def _retention_of(definition: SchemaDefinition) -> tuple[int, int | None] | None:
    """Days, and the id of the field (its name may change)."""
    rule = definition.retention
    if rule is None:
        return None
    return rule.days, None if rule.field is None else definition.fields[rule.field].id


def _retention_texts(rule: Retention | None) -> tuple[str, str]:
    if rule is None:
        return "records no longer expire from now on", ""
    if rule.field is None:
        return f"records expire {rule.days} days after they were first stored", ""
    return f"records expire {rule.days} days after their {rule.field}", rule.field


def find_added_sets(old: SchemaDefinition, new: SchemaDefinition) -> list[tuple[str, ...]]:
    """The unique sets of ``new`` that ``old`` lacks, compared by field id, as names in ``new``."""
    had = {frozenset(old.fields[name].id for name in names) for names in old.unique}
    return [
        names for names in new.unique if frozenset(new.fields[name].id for name in names) not in had
    ]


def _changes_of_field(before: FieldSpec, after: FieldSpec) -> Iterator[DefinitionChange]:
    if after.name != before.name:
        yield _at(after, Cost.COMMIT, "field_renamed", f"it was named {before.name!r}")
    if after.type != before.type:
        detail = f"its values are encrypted as type {before.type}"
        yield _at(after, Cost.RESEAL, "binding_changed", detail, "type")
        return
    if after.format != before.format:
        detail = f"its values are encrypted with {before.format or 'no'} format"
        yield _at(after, Cost.RESEAL, "binding_changed", detail, "format")
        return
    if after.words != before.words:
        detail = "stored records are decrypted for it until they are re-encrypted"
        if before.words:
            detail = "searches for words check every value from now on"
        yield _at(after, Cost.COMMIT, "index_changed", detail, "x-index")
    yield from _changes_of_grid(before, after)
    tightened = set(_find_tightened(before, after))
    for keyword in sorted(tightened):
        yield _at(
            after, Cost.PROOF, "rule_tightened", "stored records may break the new rule", keyword
        )
    for keyword in sorted(set(_find_changed(before, after)) - tightened):
        yield _at(after, Cost.COMMIT, "rule_loosened", _revealed_by_lengths(before, after), keyword)


def _changes_of_grid(before: FieldSpec, after: FieldSpec) -> Iterator[DefinitionChange]:
    """Bounds and decimals: the grid on which a numeric field's values lie."""
    was, is_now = before.number, after.number
    if was is None or is_now is None:
        return
    if is_now.precision < was.precision:
        detail = f"its values are encrypted with {was.precision} decimals"
        yield _at(after, Cost.RESEAL, "binding_changed", detail, "precision")
    elif is_now.precision > was.precision:
        yield _at(after, Cost.COMMIT, "bounds_widened", "values keep more decimals", "precision")
    for keyword, wider, narrower in (
        ("minimum", is_now.minimum < was.minimum, is_now.minimum > was.minimum),
        ("maximum", is_now.maximum > was.maximum, is_now.maximum < was.maximum),
    ):
        if wider:
            yield _at(after, Cost.COMMIT, "bounds_widened", "more values fit", keyword)
        elif narrower:
            detail = "stored records may be outside the new bound"
            yield _at(after, Cost.PROOF, "rule_tightened", detail, keyword)


def _at(spec: FieldSpec, cost: Cost, code: str, detail: str, keyword: str = "") -> DefinitionChange:
    pointer = f"/schema/properties/{escape_pointer(spec.name)}"
    if keyword:
        pointer = f"{pointer}/{keyword}"
    return DefinitionChange(cost, code, detail, spec.name, pointer)


def _revealed_by_lengths(before: FieldSpec, after: FieldSpec) -> str:
    """The effect of a looser rule on the lengths of new rows."""
    if after.field_type.fixed_bytes is not None:
        return "more values fit"
    was, is_now = least_class(before), least_class(after)
    if was == is_now:
        return "more values fit; the lengths of new rows reveal as much as those of old rows"
    sentence = "values of new rows are encrypted at one length"
    if not is_now.only:
        sentence = (
            f"values of new rows longer than {is_now.length - 1} bytes are visible by their length"
        )
    return f"{sentence}; rows that are stored keep their lengths"


def _find_tightened(before: FieldSpec, after: FieldSpec) -> Iterator[str]:
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


def _find_changed(before: FieldSpec, after: FieldSpec) -> Iterator[str]:
    was, is_now = before.string, after.string
    for keyword, old, new in (
        ("minLength", was.min_length, is_now.min_length),
        ("maxLength", was.max_length, is_now.max_length),
        ("pattern", was.pattern, is_now.pattern),
        ("padTo", before.pad_to, after.pad_to),
        ("enum", before.allowed, after.allowed),
    ):
        if old != new:
            yield keyword
    if before.number is not None and after.number is not None:
        for keyword, low, high in (
            ("exclusiveMinimum", before.number.exclusive_minimum, after.number.exclusive_minimum),
            ("exclusiveMaximum", before.number.exclusive_maximum, after.number.exclusive_maximum),
            ("multipleOf", before.number.multiple_of, after.number.multiple_of),
        ):
            if low != high:
                yield keyword


def _at_most(new: int | Decimal | None, old: int | Decimal | None) -> bool:
    return new is None or (old is not None and new <= old)


def _at_least(new: int | Decimal | None, old: int | Decimal | None) -> bool:
    return new is None or (old is not None and new >= old)


def convert(before: FieldSpec, after: FieldSpec, value: Value) -> Value:
    """The value as a record of ``after`` holds it.

    A number becomes a text in its canonical spelling (no exponent, no trailing zeros), and such a
    text becomes a number. Booleans correspond to the texts ``true`` and ``false`` and to the
    numbers 1 and 0. A text becomes a date, a time, an instant or a uuid if it has that form.

    Raises:
        ValueRefused: the value breaks the rules of ``after``, or would change by the conversion.
    """
    if value is None:
        return None
    sent = _as(before, after, value)
    kept = after.accept(sent)
    if after.format is None and not _is_same(sent, kept):
        raise ValueRefused("type", "would lose digits")
    if isinstance(value, str) and not isinstance(sent, str) and text_of(kept) != value:
        raise ValueRefused("type", "is not the one spelling of a number")
    return kept


def _as(before: FieldSpec, after: FieldSpec, value: Value) -> Value:
    """The value in the form in which a caller would send it for ``after``."""
    return value if before.field_type is after.field_type else after.field_type.convert(value)


def _is_same(sent: Value, kept: Value) -> bool:
    number = as_decimal(sent)
    return sent == kept if number is None else number == as_decimal(kept)


#: A key has 64 bits.
MAX_POINTS = 1 << 64


class NotFollowing(ValueError):
    """A definition cannot follow those before it; the text gives the reason."""


@dataclass(frozen=True)
class DefinitionHistory:
    """``present`` is the newest of ``every``, which are by digest, in the order of the log.

    ``usable`` are the digests of the definitions under which records may still be added: each fits
    the rules of all later definitions.
    """

    present: SchemaDefinition
    every: Mapping[bytes, SchemaDefinition]
    usable: frozenset[bytes]

    @classmethod
    def first(cls, definition: SchemaDefinition) -> DefinitionHistory:
        return cls(definition, {definition.digest: definition}, frozenset({definition.digest}))

    def then(self, new: SchemaDefinition, *, proven: bool) -> DefinitionHistory:
        """The history after ``new`` replaces the present definition.

        Args:
            proven: whether no record can have been added since the stored records were checked
                against ``new`` (``exact``), so that it may be stricter than the present definition.

        Raises:
            NotFollowing: ``new`` may not follow.
        """
        if not new.follows(self.present):
            raise NotFollowing("a definition gives a field another id")
        changes = list_changes(self.present, new)
        if any(change.cost is Cost.RESEAL for change in changes):
            raise NotFollowing("a definition changes what seals a field, or leaves one out")
        narrower = any(change.cost is Cost.PROOF for change in changes)
        if narrower and not proven:
            raise NotFollowing("a definition demands more, and records may have come in between")
        others = {
            digest: definition for digest, definition in self.every.items() if digest != new.digest
        }
        kept = frozenset() if narrower else self.usable
        history = DefinitionHistory(
            new, {**others, new.digest: new}, kept | frozenset({new.digest})
        )
        if not history.is_comparable:
            raise NotFollowing("a field's bounds hold more than 2**64 values with those before")
        return history

    def of(self, digest: bytes) -> SchemaDefinition:
        """The definition of this digest.

        Raises:
            DoesNotOpen: the log does not hold it.
        """
        definition = self.every.get(digest)
        if definition is None:
            raise DoesNotOpen("something is of a definition that the log does not hold")
        return definition

    @property
    def renamed(self) -> dict[str, str]:
        """The present names of renamed fields, by each earlier name that no field has now."""
        return {
            spec.name: self.present.by_id[number].name
            for definition in self.every.values()
            for number, spec in definition.by_id.items()
            if number in self.present.by_id and spec.name not in self.present.fields
        }

    @cached_property
    def compared(self) -> SchemaDefinition:
        """The present definition on grids that cover those of all definitions. Keys are compared
        and conditions are read under it; no record is sealed under it.
        """
        fields = {name: self._reach(spec) for name, spec in self.present.fields.items()}
        if fields == self.present.fields:
            return self.present
        return replace(self.present, fields=fields)

    @property
    def is_comparable(self) -> bool:
        """Whether the grids of :attr:`compared` fit into the bits of a key."""
        ranges = (field.number for field in self.compared.fields.values())
        return all(
            range_ is None or range_.highest - range_.lowest < MAX_POINTS for range_ in ranges
        )

    def _reach(self, spec: FieldSpec) -> FieldSpec:
        if spec.number is None:
            return spec
        had = (
            definition.by_id[spec.id].numbers
            for definition in self.every.values()
            if spec.id in definition.by_id
        )
        numbers = [spec.number, *had]
        least = min(field.minimum for field in numbers)
        greatest = max(field.maximum for field in numbers)
        if (least, greatest) == (spec.number.minimum, spec.number.maximum):
            return spec
        return replace(spec, number=replace(spec.number, minimum=least, maximum=greatest))
