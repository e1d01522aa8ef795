"""The inputs of the vectors about definitions, and what they give."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import definitions as defs
from tests.vectors.cases import PEOPLE


def definitions() -> list[dict[str, Any]]:
    """Texts with one meaning stand in one entry; different entries have different digests."""
    string = '{"type": "object", "properties": {"a": {"type": "string"%s}}%s}'
    number = (
        '{"type":"object","properties":{"n":{"type":"number","minimum":0,"maximum":1,'
        '"precision":3%s}}}'
    )
    alike = [
        [PEOPLE, PEOPLE.replace("1e3", "1000.0").replace("\n", " ")],
        [string % ("", ""), string % (', "format": "date"', ', "required": [], "$schema": "x"')],
        [string % ("", ', "required": ["a"]')],
        [string % (', "minLength": 2', ""), string % (', "minLength": 2.0', "")],
        [string % (', "maxLength": 2', "")],
        [string % (', "pattern": "-"', "")],
        [string % (', "padTo": 2', ""), string % (', "padTo": 2e0', "")],
        [string % (', "enum": ["b", "a"]', ""), string % (', "enum": ["a", "b", null, "a"]', "")],
        [string % (', "const": "a"', ""), string % (', "enum": ["a", "b"], "const": "a"', "")],
        [string % (', "enum": ["a"], "const": null', ""), string % (', "enum": [null]', "")],
        [number % "", number[:-1] % "" + ',"rounding":"half-even"}'],
        [number[:-1] % "" + ',"rounding":"refuse"}'],
        [string % ("", ', "rounding": "refuse", "formats": "enforced"')],
        [number % ', "exclusiveMinimum": 0', number % ', "exclusiveMinimum": -0.0'],
        [number % ', "exclusiveMaximum": 0'],
        [number % ', "multipleOf": 0.25', number % ', "multipleOf": 25e-2'],
        [string % (', "format": "date"', ', "formats": "enforced"')],
        [string % ("", ', "formats": "enforced"')],
        [string % ("", ', "unique": [["a"]]')],
        [
            '{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"string"}},'
            f'"unique":{sets}}}'
            for sets in ('[["b","a"],["a"]]', '[["a"],["a","b"]]')
        ],
        [number % ', "enum": [0.5, 1]', number % ', "enum": [1.0, 5e-1]'],
        [
            string % ("", f', "retention": {{"days": {days}}}')
            for days in ("365", "365.0", "3.65e2")
        ],
        [string % ("", ', "retention": {"days": 365}, "unique": [["a"]]')],
        [
            string % (', "format": "date"', f', "formats": "enforced", "retention": {{{rule}}}')
            for rule in ('"field": "a", "days": 1', '"days": 1, "field": "a"')
        ],
    ]
    found = []
    for texts in alike:
        (canonical,) = {defs.canonical_text(defs.load(text)) for text in texts}
        digest = hashlib.sha256(canonical).hexdigest()
        found.append({"definitions": texts, "canonical": canonical.decode(), "digest": digest})
    return found


def successions() -> list[dict[str, Any]]:
    """Definitions that took one another's place: known names keep their ids."""
    text = '{"type": "object", "properties": {%s}}'
    field = '"%s": {"type": "string"}'
    found = []
    for before, after in (("b", "ab"), ("ba", "cabB"), ("a", "a"), ("b", "\u00e9b\u65e5")):
        texts = [text % ", ".join(field % name for name in names) for names in (before, after)]
        followed = defs.follow(texts[1], defs.load(texts[0]))
        found.append({"texts": texts, "canonical": defs.canonical_text(followed).decode()})
    renames: list[tuple[str, str, dict[str, str]]] = [
        ("ab", "cb", {"c": "a"}),
        ("ab", "ba", {"a": "b", "b": "a"}),
        ("ab", "acb", {"c": "a"}),
    ]
    rules = '{"type": "object", "formats": "enforced", "properties": {%s}, "unique": [["%s"]]}'
    given = [
        ([text % ", ".join(field % name for name in one) for one in (before, after)], renamed)
        for before, after, renamed in renames
    ]
    given.append(([rules % (field % name, name) for name in "ab"], {"b": "a"}))
    for texts, renamed in given:
        followed = defs.follow(texts[1], defs.load(texts[0]), renamed)
        canonical = defs.canonical_text(followed).decode()
        entry: dict[str, Any] = {"texts": texts, "renamed": renamed, "canonical": canonical}
        found.append(entry)
    return found


def rebases() -> list[dict[str, Any]]:
    """Index keys of one grid on that of another (section 6.4)."""
    integer = '{"type": "integer", "minimum": %s, "maximum": %s}'
    number = '{"type": "number", "minimum": %s, "maximum": %s, "precision": %d}'
    pairs = [
        (integer % (0, 9), integer % (-3, 9)),
        (integer % (0, 2**63), integer % (-(2**63) + 1, 2**63)),
        (number % ("0.05", "0.95", 1), number % ("0.01", "7", 3)),
        (number % ("-1", "1", 0), number % ("-1.5", "1", 18)),
        (number % ("5", "5", 0), number % ("5", "5", 18)),
    ]
    found = []
    for own, shown in pairs:
        before, after = defs.load_field(own), defs.load_field(shown)
        low, high = defs.grid(before)
        keys = sorted({0, min(1, high - low), (high - low) // 2, high - low})
        moved = [str(defs.rebase(before, after, key)) for key in keys]
        found.append({"own": own, "shown": shown, "keys": list(map(str, keys)), "moved": moved})
    return found
