"""The inputs of the vectors about keys, values and definitions, and what they give."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

from tests.reference import Refused, keys
from tests.reference import definitions as defs
from tests.reference import fields as ref

#: Bytes that look like nothing, the same in every run.
ROOT = hashlib.sha256(b"root of the vectors").digest()
ORGANIZATION = bytes.fromhex("0190a0000000700080000000000000a1")
SCHEMA = bytes.fromhex("0190a0000000700080000000000000b2")
RECORDS = [bytes.fromhex(f"0190a00000007000800000000000c{number:03x}") for number in range(8)]
GROUP = bytes.fromhex("00112233445566778899aabbccddeeff")
SEGMENT = bytes.fromhex("ffeeddccbbaa99887766554433221100")
REQUEST = bytes.fromhex("0198f00d0000" + "7123" + "8123456789abcdef")

PEOPLE = """{
 "type": "object",
 "properties": {
  "age": {"type": "integer", "minimum": 0, "maximum": 120},
  "balance": {"type": "number", "minimum": -1000.5, "maximum": 1e3, "precision": 2},
  "city": {"type": "string"},
  "\\u00dcbel/~ \\"x\\"": {"type": "string"}
 },
 "required": ["city"]
}"""
ODD = '\u00dcbel/~ "x"'


def people() -> defs.Definition:
    return defs.load(PEOPLE)


def people_key(kv: int = 1) -> keys.Schema:
    return keys.schema(ROOT, ORGANIZATION, SCHEMA, kv)


def derivation() -> dict[str, Any]:
    found = []
    for kv in (1, 2, 4_000_000_000):
        schema = people_key(kv)
        fields = []
        for name, field in people().fields.items():
            key = schema.field(name, field)
            fields.append(
                {
                    "name": name,
                    "binding": defs.binding(field).hex(),
                    "K_field": key.hex(),
                    "K_seal": keys.seal_key(key, GROUP).hex(),
                    "K_index": keys.index_key(key, SEGMENT).hex(),
                    "K_tail": keys.tail_key(key).hex(),
                }
            )
        r = hashlib.sha256(b"r").digest()
        found.append(
            {
                "kv": kv,
                "K_schema": schema.key.hex(),
                "key_id": schema.key_id.hex(),
                "K_log": schema.log.hex(),
                "K_uid": schema.uids.hex(),
                "K_meta": schema.meta(SEGMENT).hex(),
                "fields": fields,
                "uid": {
                    "r": r.hex(),
                    "content": b"what the uid's keys seal".hex(),
                    "uid": keys.uid(schema.uids, r, b"what the uid's keys seal").hex(),
                },
                "request": {
                    "key": REQUEST.hex(),
                    "body": b"[]".hex(),
                    "ids": [
                        keys.request_id(schema.uids, REQUEST, b"[]", number).hex()
                        for number in (0, 1, 100)
                    ],
                },
            }
        )
    return {
        "root": ROOT.hex(),
        "fingerprint": keys.fingerprint(ROOT).hex(),
        "organization": ORGANIZATION.hex(),
        "schema": SCHEMA.hex(),
        "definition": PEOPLE,
        "group": GROUP.hex(),
        "segment": SEGMENT.hex(),
        "keys": found,
    }


def bindings() -> list[dict[str, Any]]:
    """Spellings that bind alike stand in one entry; different entries bind differently."""
    number = '{{"type": "number", "minimum": {}, "maximum": {}, "precision": {}}}'
    integer = '{{"type": "integer", "minimum": {}, "maximum": {}}}'
    alike = [
        ['{"type": "string"}', '{"type": "string", "maxLength": 9, "title": "t"}'],
        [number.format(*one) for one in [(1, 10, 1), ("1.0", "10.00", "1.0"), ("1e0", "1E+1", 1)]],
        [number.format(1, 10, 2)],
        [integer.format(1, 10), integer.format("1.0", "0.1e2")],
        [integer.format(*one) for one in [(0, 5), ("-0", "5.0"), ("0e9", 5), ("-0.000", "50e-1")]],
        [integer.format(-(2**63), 2**63 - 1)],
        [number.format("-0.0025", "0.1", 18), number.format("-25e-4", "1e-1", 18)],
        [integer.format(10**40 - 5, 10**40)],
    ]
    found = []
    for spellings in alike:
        digests = {
            defs.binding(defs.load(f'{{"properties": {{"f": {one}}}}}').fields["f"]).hex()
            for one in spellings
        }
        (binding,) = digests
        found.append({"fields": spellings, "binding": binding})
    return found


def definitions() -> list[dict[str, Any]]:
    """Texts with one meaning stand in one entry; different entries have different digests."""
    string = '{"type": "object", "properties": {"a": {"type": "string"%s}}%s}'
    number = (
        '{"type":"object","properties":{"n":{"type":"number","minimum":0,"maximum":1,'
        '"precision":3%s}}}'
    )
    alike = [
        [PEOPLE, PEOPLE.replace("1e3", "1000.0").replace("\n", " ")],
        [string % ("", ""), string % (', "title": "A"', ', "required": [], "$schema": "x"')],
        [string % ("", ', "required": ["a"]')],
        [string % (', "minLength": 2', ""), string % (', "minLength": 2.0', "")],
        [string % (', "maxLength": 2', "")],
        [string % (', "pattern": "-"', "")],
        [string % (', "enum": ["b", "a"]', ""), string % (', "enum": ["a", "b", null, "a"]', "")],
        [string % (', "const": "a"', ""), string % (', "enum": ["a", "b"], "const": "a"', "")],
        [string % (', "enum": ["a"], "const": null', ""), string % (', "enum": [null]', "")],
        [number % ""],
        [number % ', "exclusiveMinimum": 0', number % ', "exclusiveMinimum": -0.0'],
        [number % ', "exclusiveMaximum": 0'],
        [number % ', "multipleOf": 0.25', number % ', "multipleOf": 25e-2'],
        [number % ', "enum": [0.5, 1]', number % ', "enum": [1.0, 5e-1]'],
    ]
    found = []
    for texts in alike:
        (digest,) = {defs.digest(defs.load(text)).hex() for text in texts}
        found.append({"definitions": texts, "digest": digest})
    return found


def padding() -> list[dict[str, int]]:
    sizes = [*range(1, 70), 72, 73, 100, 128, 129, 200, 255, 256, 257, 1000, 1023, 1024, 1025]
    sizes += [4095, 65535, 65537, 10**6, 2**20, 2**20 + 1]
    return [{"size": size, "padded": ref.length_class(size)} for size in sizes]


TEXTS = [
    "",
    "a",
    "Oslo",
    "\x00",
    "\x00\x00",
    "\x01",
    "\x01\x01",
    "\x02",
    "a\x00b\x01c\x02",
    "e\u0301",
    "\u00e9",
    "\u212b",
    "\uac00",
    "\u1100\u1161",
    "\ufb01",
    "\U0001f600",
    "\uffff",
    "x" * 47,
    "x" * 48,
    "x" * 49,
    "x" * 46 + "\u00e9",
    "x" * 47 + "\u00e9",
    "x" * 47 + "e\u0301",
    "\x00" * 24,
    "\x00" * 25,
    "x" * 48 + "tail one",
    "x" * 48 + "tail two",
]


def order_bytes() -> dict[str, Any]:
    schema = people_key()
    field = people().fields["city"]
    key = schema.field("city", field)
    return {
        "K_tail": keys.tail_key(key).hex(),
        "texts": [
            {
                "text": text,
                "order_bytes": ref.order_bytes(text).hex(),
                "index_key": ref.index_key_of(field, key, text).hex(),
            }
            for text in TEXTS
        ],
    }


_FIELDS = {
    "age": '{"type": "integer", "minimum": 0, "maximum": 120}',
    "signed": '{"type": "integer", "minimum": -9223372036854775808, '
    '"maximum": 9223372036854775807}',
    "one": '{"type": "integer", "minimum": 7, "maximum": 7}',
    "tenths": '{"type": "number", "minimum": -5.05, "maximum": 5.05, "precision": 1}',
    "far": '{"type": "number", "minimum": 1000000000000000000000000000000, '
    '"maximum": 1000000000000000000000000001000, "precision": 2}',
    "fine": '{"type": "number", "minimum": 0, "maximum": 1, "precision": 18}',
    "text": '{"type": "string"}',
}
_GOOD: list[tuple[str, str | None]] = [
    ("age", "0"),
    ("age", "120"),
    ("age", None),
    ("signed", "-9223372036854775808"),
    ("signed", "9223372036854775807"),
    ("signed", "-1"),
    ("one", "7"),
    ("tenths", "-5.0"),
    ("tenths", "5.0"),
    ("tenths", "0"),
    ("far", "1000000000000000000000000000500.25"),
    ("fine", "0.000000000000000001"),
    ("fine", "1"),
    ("fine", None),
    ("text", None),
    *(("text", text) for text in ("", "a", "x" * 15, "x" * 16, "x" * 64, "x" * 300)),
    ("text", "\u00e9\x00\x00"),
    ("text", "\x80"),
]
_BAD: list[tuple[str, str, str]] = [
    ("beyond a bound between two grid points", "tenths", "02" + "00" * 7 + "65"),
    ("empty", "age", ""),
    ("a type byte of another type", "age", "02" + "00" * 8),
    ("an unknown type byte", "age", "04" + "00" * 8),
    ("beyond the maximum", "age", "01" + "00" * 7 + "79"),
    ("far beyond the maximum", "age", "01" + "ff" * 8),
    ("too short", "age", "01" + "00" * 7),
    ("too long", "age", "01" + "00" * 9),
    ("absent with a value", "age", "00" * 8 + "01"),
    ("absent as a string's", "age", "00" * 17),
    ("an integer in a number field", "fine", "01" + "00" * 8),
    ("a string in a number field", "fine", "03" + "80" + "00" * 15),
    ("beyond a domain of one value", "one", "01" + "00" * 7 + "01"),
    ("no marker", "text", "03" + "00" * 16),
    ("no marker after text", "text", "03" + "61" * 16),
    ("padding of a larger class", "text", "03" + "6180" + "00" * 30),
    ("a length that is no class", "text", "03" + "6180" + "00" * 13),
    ("bytes after the marker", "text", "03" + "6180" + "00" * 13 + "61"),
    ("invalid UTF-8", "text", "03" + "ff80" + "00" * 14),
    ("half of a surrogate pair", "text", "03" + "eda08080" + "00" * 12),
    ("overlong UTF-8", "text", "03" + "c18180" + "00" * 13),
    ("absent of a larger class", "text", "00" * 33),
    ("absent as a number's", "text", "00" * 9),
    ("absent with a value in it", "text", "00" + "6180" + "00" * 14),
    ("a number's type byte", "text", "01" + "6180" + "00" * 14),
    ("empty, of a string", "text", ""),
]


def values() -> dict[str, Any]:
    specs = {
        name: defs.load(f'{{"properties": {{"f": {text}}}}}').fields["f"]
        for name, text in _FIELDS.items()
    }
    good = []
    for name, spelled in _GOOD:
        field = specs[name]
        text = spelled is None or field["type"] == "string"
        value: ref.Value = spelled if text else Decimal(str(spelled))
        good.append({"field": name, "value": spelled, "plain": ref.plaintext(field, value).hex()})
    bad = []
    for why, name, plain in _BAD:
        try:
            ref.value_of(specs[name], bytes.fromhex(plain))
        except Refused as refused:
            bad.append({"why": why, "field": name, "plain": plain, "error": refused.code})
    assert len(bad) == len(_BAD), "every bad plaintext is refused"
    return {"fields": _FIELDS, "good": good, "bad": bad}
