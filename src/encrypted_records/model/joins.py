"""Semi-joins: a field compared with the values that a field of another schema has.

A question that has some is read twice. First the reader notes what is asked of other schemas; when
their answers are there it is read again, with what each found in the comparison's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.predicates import Everything, Predicate
from encrypted_records.model.strict_json import escape_pointer

#: Semi-joins within semi-joins.
MAX_JOIN_DEPTH = 3
#: Semi-joins of one question, nested ones among them.
MAX_JOINS = 8
#: Characters of what names a schema: of an absolute URL, or of its name.
_LONGEST_NAME = 2000

_MEMBERS = ("schema", "field", "where")


@dataclass(frozen=True, slots=True)
class Join:
    """``own`` is compared with what ``name`` has in the records of ``schema`` that fit ``where``,
    which is not read yet. ``pointer`` leads to the comparison."""

    pointer: str
    own: FieldSpec
    schema: str
    name: str
    where: Any


@dataclass(slots=True)
class Joins:
    """The semi-joins of one condition, without those nested in them, in its order.

    ``answers`` are by pointer; empty while the question is read for the first time.
    """

    asked: list[Join] = field(default_factory=list)
    answers: dict[str, Predicate] = field(default_factory=dict)

    def read(self, asked: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Predicate:
        """The predicate of a comparison with ``of``; one that anything fits while it has no answer.

        Raises:
            InvalidQuery: with a pointer to the error.
        """
        answer = self.answers.get(pointer)
        if answer is None:
            self.asked.append(_read(asked, spec, pointer))
            return Everything()
        return answer


def refuse_join(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search cannot be asked", flaws=(Flaw(code, detail, pointer=pointer),))


def _read(asked: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Join:
    if asked.get("op") != "in":
        raise refuse_join("op", "of is for in; put it in not for the others", f"{pointer}/op")
    for name in ("value", "fold", "within"):
        if name in asked:
            detail = f"a comparison with of has no {name}"
            raise refuse_join("unknown_member", detail, f"{pointer}/{name}")
    of, at = asked["of"], f"{pointer}/of"
    if not isinstance(of, dict):
        raise refuse_join("type", "expected an object with schema and field", at)
    for name in of:
        if name not in _MEMBERS:
            detail = "of has schema, field and where"
            raise refuse_join("unknown_member", detail, f"{at}/{escape_pointer(name)}")
    schema, wanted = of.get("schema"), of.get("field")
    if not isinstance(schema, str) or not 1 <= len(schema) <= _LONGEST_NAME:
        detail = "expected the schema's path, its id, or its name in this dataset"
        raise refuse_join("type", detail, f"{at}/schema")
    if not isinstance(wanted, str):
        raise refuse_join("type", "expected the name of a field", f"{at}/field")
    return Join(pointer, spec, schema, wanted, of.get("where"))
