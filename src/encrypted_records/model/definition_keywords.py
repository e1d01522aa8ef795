"""The keywords of a definition: which are kept without effect, and which are refused.

JSON Schema calls a keyword that it does not know an annotation: it describes, and makes no value
valid or invalid. So those are kept (``faker``, ``unit``, ``x-owner``). A keyword that would change
what is valid, and that nobody here enforces, is refused instead: the user who wrote it relies on
it.
"""

from __future__ import annotations

import unicodedata

from encrypted_records.model.definition import MAX_FIELD_NAME

#: By draft of JSON Schema, from the first to 2020-12: all that change what is valid, or say where
#: more of the schema is.
_JSON_SCHEMA = frozenset(
    # drafts 0 to 3
    "divisibleBy disallow extends maxDecimal maximumCanEqual minimumCanEqual optional requires"
    # drafts 4 to 7
    " additionalItems additionalProperties allOf anyOf const contains dependencies else enum"
    " exclusiveMaximum exclusiveMinimum if items maxItems maxLength maxProperties maximum minItems"
    " minLength minProperties minimum multipleOf not oneOf pattern patternProperties properties"
    " propertyNames $ref required then type uniqueItems"
    # 2019-09 and 2020-12
    " dependentRequired dependentSchemas $dynamicRef maxContains minContains prefixItems"
    " $recursiveRef unevaluatedItems unevaluatedProperties".split()
)
#: Keywords of ours that are in no draft.
_OURS = frozenset({"precision", "padTo"})

ROOT = frozenset(
    "type properties required additionalProperties formats rounding unique retention".split()
)
_FIELD = frozenset({"type", "enum", "const"})
#: Says which further indexes a field has.
INDEX = "x-index"
STRING = _FIELD | {"minLength", "maxLength", "pattern", "padTo", INDEX}
NUMBER = _FIELD | {
    *("minimum", "maximum", "precision", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
}
#: Where formats are enforced, of a field that has one: its format says all that is valid.
FORMATTED = frozenset({"type", "format"})
BOOLEAN = FORMATTED | {"minimum", "maximum"}


def refuse(keyword: str, enforced: frozenset[str]) -> str | None:
    """Why ``keyword`` cannot stand beside those that are ``enforced``; None if it can.

    ``enforced`` is one of the sets above.
    """
    if keyword in enforced:
        return None
    if keyword in _JSON_SCHEMA or keyword in _OURS:
        where = "at the root" if enforced is ROOT else "for a field of this type"
        return f"not supported {where}, and it would change which values are valid"
    if keyword == INDEX:
        return "it is for fields of type string without an enforced format"
    meant = _SPELLINGS.get(_spell(keyword))
    if meant is None and enforced is ROOT:
        meant = _ROOT_SPELLINGS.get(_spell(keyword))
    if meant is not None:
        return f"did you mean {meant}?"
    return None


def _spell(keyword: str) -> str:
    return keyword.replace("_", "").replace("-", "").lower()


#: Every keyword by its letters alone. ``max_length`` is no annotation: who writes it means
#: ``maxLength``, and would not notice that nothing is enforced.
_SPELLINGS = {_spell(keyword): keyword for keyword in _JSON_SCHEMA | _OURS | {INDEX}}
#: At the root, where they are rules. In a field they are annotations, under any spelling.
_ROOT_SPELLINGS = {
    _spell(keyword): keyword for keyword in ("formats", "rounding", "unique", "retention")
}


def name_problem(name: str) -> str | None:
    """The mistake in the name of a field; None where it is right."""
    if not name or len(name) > MAX_FIELD_NAME:
        return f"must have 1 to {MAX_FIELD_NAME} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "holds a control character or half of a surrogate pair"
    return None
