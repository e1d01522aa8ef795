"""The inputs of the vectors about keys, values and definitions, and what they give."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

from tests.reference import Refused, keys
from tests.reference import definitions as defs
from tests.reference import fields as ref
from tests.vectors import format_cases

#: Bytes that look like nothing, the same in every run.
ROOT = hashlib.sha256(b"root of the vectors").digest()
ORGANIZATION = bytes.fromhex("0190a0000000700080000000000000a1")
SCHEMA = bytes.fromhex("0190a0000000700080000000000000b2")
RECORDS = [bytes.fromhex(f"0190a00000007000800000000000c{number:03x}") for number in range(8)]
GROUP = bytes.fromhex("00112233445566778899aabbccddeeff")
SEGMENT = bytes.fromhex("ffeeddccbbaa99887766554433221100")
REQUEST = bytes.fromhex("0198f00d0000" + "7123" + "8123456789abcdef")
QUESTION = b'{"order_by":["-age"],"where":{"field":"age","op":"gt","value":40}}'
#: Names a condition, and what is drawn for it: runs of 16 rows, their draws, and pages.
ASKED = hashlib.sha256(b'["Everything",{}]').digest()
DRAWN = [
    ("run", (16).to_bytes(4, "big") + (70_000).to_bytes(8, "big")),
    ("any", (64).to_bytes(4, "big") + (3).to_bytes(8, "big")),
    ("page", (2**40).to_bytes(8, "big")),
    ("segment", SEGMENT),
    ("left", SEGMENT + (999).to_bytes(4, "big")),
]

PEOPLE = """{
 "type": "object",
 "properties": {
  "age": {"type": "integer", "minimum": 0, "maximum": 120},
  "balance": {"type": "number", "minimum": -1000.5, "maximum": 1e3, "precision": 2},
  "city": {"type": "string", "maxLength": 20},
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
            key = schema.field(field)
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
                "K_ledger": schema.ledger.hex(),
                "K_checkpoint": schema.checkpoint.hex(),
                "K_cover": schema.cover.hex(),
                "draws": [
                    {
                        "question": ASKED.hex(),
                        "kind": kind,
                        "place": place.hex(),
                        "draw": keys.draw(schema, ASKED, kind.encode(), place),
                    }
                    for kind, place in DRAWN
                ],
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
                "question": {
                    "text": QUESTION.decode(),
                    "question": keys.question(schema.uids, QUESTION).hex(),
                },
            }
        )
    return {
        "root": ROOT.hex(),
        "fingerprint": keys.fingerprint(ROOT).hex(),
        "verifier": keys.verifier(ROOT).hex(),
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
    found: list[dict[str, Any]] = []
    for spellings in alike:
        digests = {
            defs.binding(defs.load(f'{{"properties": {{"f": {spelling}}}}}').fields["f"]).hex()
            for spelling in spellings
        }
        (binding,) = digests
        found.append({"fields": spellings, "binding": binding})
    # Under "formats": "enforced".
    for name in FORMATS:
        field = enforced(name)
        text = _FIELDS[name]
        found.append({"fields": [text], "binding": defs.binding(field).hex(), "enforced": True})
    return found


def enforced(name: str) -> defs.Field:
    text = f'{{"formats": "enforced", "properties": {{"f": {_FIELDS[name]}}}}}'
    return defs.load(text).fields["f"]


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
    key = schema.field(field)
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
    "choice": '{"type": "string", "enum": ["", "\u00e9", "a value of thirty-four bytes, so 48"]}',
    "both": '{"type": "string", "enum": ["a", "%s"], "const": "a"}' % ("x" * 99),
    "wide choice": '{"type": "string", "enum": ["a", "b"], "padTo": 100}',
    "nothing": '{"type": "string", "enum": [null]}',
    "short": '{"type": "string", "maxLength": 32}',
    "shortest": '{"type": "string", "maxLength": 0}',
    "most": '{"type": "string", "maxLength": 256}',
    "more": '{"type": "string", "maxLength": 257}',
    "padded": '{"type": "string", "padTo": 40}',
    "padded in place": '{"type": "string", "padTo": 40, "maxLength": 12}',
    "padded below": '{"type": "string", "padTo": 40, "maxLength": 11}',
    "barely padded": '{"type": "string", "padTo": 1}',
    **format_cases.FIELDS,
}
FORMATS = tuple(format_cases.FIELDS)
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
    *(("text", "x" * size) for size in (31, 32, 47, 48)),
    *(("choice", one) for one in (None, "", "\u00e9", "a value of thirty-four bytes, so 48")),
    *(("both", one) for one in (None, "a")),
    *(("wide choice", one) for one in (None, "b")),
    ("nothing", None),
    *(("short", one) for one in (None, "", "x" * 32, "\U0001f600" * 32)),
    *(("shortest", one) for one in (None, "")),
    *(("most", one) for one in (None, "\u00e9" * 256)),
    *(("more", one) for one in (None, "x", "x" * 257)),
    *(("padded", one) for one in (None, "x", "x" * 47, "x" * 48, "x" * 300)),
    *(("padded in place", one) for one in (None, "\U0001f600" * 12, "x")),
    *(("padded below", one) for one in (None, "\U0001f600" * 11, "x")),
    *(("barely padded", one) for one in (None, "x" * 31, "x" * 32)),
    *format_cases.GOOD,
]
#: Of groups that state another class than the definition asks for.
_STATED: list[tuple[str, str | None, ref.Class]] = [
    ("choice", "\u00e9", (144, 1)),
    ("choice", None, (144, 1)),
    ("text", "x", (144, 0)),
    ("text", None, (144, 0)),
    ("text", "x" * 144, (144, 0)),
    ("text", "x", (144, 1)),
    ("short", "x", (32, 0)),
    ("short", "x" * 32, (32, 0)),
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
    ("absent as a string's", "age", "00" * 33),
    ("an integer in a number field", "fine", "01" + "00" * 8),
    ("a string in a number field", "fine", "03" + "80" + "00" * 31),
    ("beyond a domain of one value", "one", "01" + "00" * 7 + "01"),
    ("no marker", "text", "03" + "00" * 32),
    ("no marker after text", "text", "03" + "61" * 32),
    ("padding of a larger class", "text", "03" + "6180" + "00" * 46),
    ("padding of a class below the smallest", "text", "03" + "6180" + "00" * 14),
    ("a length that is no class", "text", "03" + "6180" + "00" * 29),
    ("bytes after the marker", "text", "03" + "6180" + "00" * 29 + "61"),
    ("invalid UTF-8", "text", "03" + "ff80" + "00" * 30),
    ("half of a surrogate pair", "text", "03" + "eda08080" + "00" * 28),
    ("overlong UTF-8", "text", "03" + "c18180" + "00" * 29),
    ("absent of a larger class", "text", "00" * 49),
    ("absent of a class below the smallest", "text", "00" * 17),
    ("absent as a number's", "text", "00" * 9),
    ("absent with a value in it", "text", "00" + "6180" + "00" * 30),
    ("a number's type byte", "text", "01" + "6180" + "00" * 30),
    ("empty, of a string", "text", ""),
    ("a length that shows, of a choice", "choice", "03" + "c3a980" + "00" * 29),
    ("absence that shows, of a choice", "choice", "00" * 33),
    ("a length that shows, of a short one", "short", "03" + "6180" + "00" * 30),
    ("above the only class", "short", "03" + "61" * 144 + "80" + "00" * 15),
    ("a length that shows, of a padded one", "padded", "03" + "6180" + "00" * 30),
    ("absence that shows, of a padded one", "padded", "00" * 33),
    *format_cases.BAD,
]
#: Of groups that state another class than the definition asks for.
_BAD_STATED: list[tuple[str, str, str, ref.Class]] = [
    ("a number in a group that states a string", "age", "01" + "00" * 8, (32, 0)),
    ("a uuid in a group that states a string", "uuid", "07" + "00" * 16, (16, 0)),
    ("a date in a group that states an instant", "date", "04" + "00" * 8, (10, 1)),
    ("absent in a group that states an instant", "text", "00" * 11, (10, 0)),
    ("absent in a group that states a number", "text", "00" * 9, (8, 1)),
    ("of the definition's class, below the group's", "text", "03" + "6180" + "00" * 30, (48, 0)),
    ("of a class above the group's only one", "text", "03" + "61" * 40 + "80" + "00" * 7, (32, 1)),
]


def values() -> dict[str, Any]:
    specs = {
        name: defs.load(f'{{"properties": {{"f": {text}}}}}').fields["f"]
        for name, text in _FIELDS.items()
    } | {name: enforced(name) for name in FORMATS}
    good = []
    usual = [(name, spelled, ref.class_of(specs[name])) for name, spelled in _GOOD]
    for name, spelled, stated in [*usual, *_STATED]:
        field = specs[name]
        text = spelled is None or field["type"] == "string"
        value: ref.Value = spelled if text else _read(name, str(spelled))
        plain = ref.plaintext(field, value, stated).hex()
        good.append({"field": name, "class": stated, "value": spelled, "plain": plain})
    bad = []
    for why, name, plain, stated in [
        *((why, name, plain, ref.class_of(specs[name])) for why, name, plain in _BAD),
        *_BAD_STATED,
    ]:
        try:
            ref.value_of(specs[name], bytes.fromhex(plain), stated)
        except Refused as refused:
            bad.append(
                {"why": why, "field": name, "class": stated, "plain": plain, "error": refused.code}
            )
    assert len(bad) == len(_BAD) + len(_BAD_STATED), "every bad plaintext is refused"
    classes = {name: ref.class_of(field) for name, field in specs.items()}
    enforced_fields = list(FORMATS)
    return {
        "fields": _FIELDS,
        "enforced": enforced_fields,
        "classes": classes,
        "good": good,
        "bad": bad,
    }


def _read(name: str, spelled: str) -> bool | Decimal:
    return spelled == "true" if name == "boolean" else Decimal(spelled)
