"""The inputs of the vectors about words, and what they give."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.oracle import words as words_of
from tests.reference import definitions as defs
from tests.reference import segments, words
from tests.reference.fields import Value
from tests.reference.keys import tail_key
from tests.vectors.cases import GROUP, ORGANIZATION, ROOT, SCHEMA, people_key

_TEXTS = [
    "",
    " ,.!-",
    "Fever since Monday (M\u00fcller), 38.5\u00b0; can't sleep",
    "fever FEVER f\u00e9ver \uff26\uff45\uff56\uff45\uff52 \ufb01ver",
    "O'Neill\u00a0a_b x-y 3.14 1\u00bd \u0661\u0662 a\u200bb",
    "\u6771\u4eac\u90fd\u306b\u3044\u307e\u3059\u3002\u30ab\u30ca \uff76\uff85 ab\u6771cd",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\u039f\u03a3 \u03bf\u03c2 Stra\u00dfe STRASSE \u0130",
]
_DEFINITION = """{"type": "object", "properties": {
  "note": {"type": "string", "x-index": ["words"]},
  "kind": {"type": "string", "enum": ["a b", "c"], "x-index": ["words"]},
  "age": {"type": "integer", "minimum": 0, "maximum": 9}}}"""
#: Some notes have more words than there is room for, or a character that no Unicode has.
_NOTES = [
    *("Fever since Monday", None, "", "a b c d e f g h i j", "a b c d e f g h i j k"),
    *("fever, no cough. No fever", "\u6771\u4eac \uffff", "word " * 40, "w1 w2 w3 " * 9 + "end"),
]


def cases() -> dict[str, Any]:
    schema, definition = people_key(), defs.load(_DEFINITION)
    every = defs.columns(definition)
    r = hashlib.sha256(b"words").digest()
    rows: list[tuple[int, dict[str, Value]]] = [
        (ordinal, {"note": note, "kind": [None, "a b", "c"][ordinal % 3], "age": None})
        for ordinal, note in enumerate(_NOTES)
    ]
    mini = segments.build_mini(schema, definition, [(GROUP, 0)], rows, r)
    own = every["words of note"]
    tail = tail_key(schema.field(own))
    return {
        "root": ROOT.hex(),
        "kv": 1,
        "organization": ORGANIZATION.hex(),
        "schema": SCHEMA.hex(),
        "texts": [{"text": text, "words": words_of(text)} for text in _TEXTS],
        "rooms": [
            {"class": length, "room": words.room(length)}
            for length in (16, 32, 48, 64, 72, 80, 1024, 65_536, 1_179_648)
        ],
        "definition": _DEFINITION,
        "canonical": defs.canonical_text(definition).decode(),
        "digest": defs.digest(definition).hex(),
        "binding": defs.binding(own).hex(),
        "tail": tail.hex(),
        "keys": [
            {"word": word, "key": words.word_key(tail, word).hex()}
            for word in ("fever", "\u6771", "x" * 100)
        ],
        "group": GROUP.hex(),
        "rows": [data for _, data in rows],
        "randomness": r.hex(),
        "uid": mini.uid.hex(),
        "header": mini.header.hex(),
        "page": mini.page.hex(),
        "index": {
            name: [
                [ordinal, None if key is None else key.hex()]
                for ordinal, key in segments.open_mini(
                    schema, definition, mini.uid, mini.header, mini.page
                )[name]
            ]
            for name in every
        },
    }
