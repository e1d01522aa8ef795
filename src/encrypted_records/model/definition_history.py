"""The definitions under which what is stored of a schema was sealed, and what compares their keys.

A group and a segment are of the definition under which they were made, and stay so (docs/SPEC.md,
section 7.4). Keys of different bounds are brought onto one grid to be compared: the one that
reaches over all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.definition_changes import Cost, list_changes

#: A key has 64 bits.
MAX_POINTS = 1 << 64


class NotFollowing(ValueError):
    """A definition cannot come after those before it; the text says why."""


@dataclass(frozen=True)
class DefinitionHistory:
    """``present`` is the newest of ``every``, which are by digest, in the order of the log.

    ``usable`` are the digests of those under which something may still be added: each fits the
    rules of all that came after it.
    """

    present: SchemaDefinition
    every: Mapping[bytes, SchemaDefinition]
    usable: frozenset[bytes]

    @classmethod
    def first(cls, definition: SchemaDefinition) -> DefinitionHistory:
        return cls(definition, {definition.digest: definition}, frozenset({definition.digest}))

    def then(self, new: SchemaDefinition, *, proven: bool) -> DefinitionHistory:
        """The history once ``new`` has taken the place of the present definition.

        Args:
            proven: whether nothing can have been added since ``new`` was compared with what is
                stored (``exact``), so that it may demand more than the present one.

        Raises:
            NotFollowing: it may not.
        """
        if not new.follows(self.present):
            raise NotFollowing("a definition gives a field another id")
        changes = list_changes(self.present, new)
        if any(change.cost is Cost.RESEAL for change in changes):
            raise NotFollowing("a definition changes what seals a field, or leaves one out")
        narrower = any(change.cost is Cost.PROOF for change in changes)
        if narrower and not proven:
            raise NotFollowing("a definition demands more, and records may have come in between")
        every = {
            digest: definition for digest, definition in self.every.items() if digest != new.digest
        }
        kept = frozenset() if narrower else self.usable
        history = DefinitionHistory(new, {**every, new.digest: new}, kept | frozenset({new.digest}))
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

    @cached_property
    def compared(self) -> SchemaDefinition:
        """The present definition, on grids that hold what any of them holds: keys are compared,
        and conditions read, under this one. It seals nothing."""
        fields = {name: self._reach(spec) for name, spec in self.present.fields.items()}
        if fields == self.present.fields:
            return self.present
        return replace(self.present, fields=fields)

    @property
    def is_comparable(self) -> bool:
        """Whether a key has bits enough for the grids of :attr:`compared`."""
        every = (field.number for field in self.compared.fields.values())
        return all(
            range_ is None or range_.highest - range_.lowest < MAX_POINTS for range_ in every
        )

    def _reach(self, spec: FieldSpec) -> FieldSpec:
        if spec.number is None:
            return spec
        had = (
            definition.by_id[spec.id].numbers
            for definition in self.every.values()
            if spec.id in definition.by_id
        )
        every = [spec.number, *had]
        least = min(field.minimum for field in every)
        greatest = max(field.maximum for field in every)
        if (least, greatest) == (spec.number.minimum, spec.number.maximum):
            return spec
        return replace(spec, number=replace(spec.number, minimum=least, maximum=greatest))
