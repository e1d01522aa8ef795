"""The inputs of the vectors about sealed fields, groups, minis and commits, and what they give."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

from tests.reference import definitions as defs
from tests.reference import digests, keys, log, segments
from tests.reference import fields as ref
from tests.reference.msgpack import pack
from tests.vectors.cases import (
    GROUP,
    ODD,
    ORGANIZATION,
    PEOPLE,
    RECORDS,
    ROOT,
    SCHEMA,
    people,
    people_key,
)

_PLACE = {
    "root": ROOT.hex(),
    "kv": 1,
    "organization": ORGANIZATION.hex(),
    "schema": SCHEMA.hex(),
    "definition": PEOPLE,
    "group": GROUP.hex(),
    "ordinal": 3,
    "record": RECORDS[0].hex(),
    "version": 1,
}
_VALUES: list[tuple[str, str | None]] = [
    ("age", "41"),
    ("age", None),
    ("balance", "-1000.5"),
    ("city", "Oslo"),
    ("city", None),
    (ODD, "\u00e9" * 40),
]


def fields() -> dict[str, Any]:
    """Sealed fields: good ones, and each single change of place or content that must not open."""
    schema, definition = people_key(), people()
    good: list[dict[str, Any]] = []
    for name, spelled in _VALUES:
        field = definition.fields[name]
        value: ref.Value = (
            spelled if spelled is None or field["type"] == "string" else Decimal(spelled)
        )
        sealed = ref.seal_field(schema, field, GROUP, 3, RECORDS[0], 1, value)
        good.append(
            {
                "field": name,
                "class": ref.class_of(field),
                "value": spelled,
                "sealed": sealed.hex(),
            }
        )
    city = next(one for one in good if one["value"] == "Oslo")
    bad: list[dict[str, Any]] = [
        {
            "why": why,
            "place": _PLACE | place,
            "field": name,
            "class": ref.class_of(definition.fields[name]),
            "sealed": sealed,
            "error": _CLOSED,
        }
        for why, place, name, sealed in _changes(bytes.fromhex(str(city["sealed"])))
    ]
    bad += [
        {
            "why": why,
            "place": _PLACE,
            "field": "city",
            "class": stated,
            "sealed": city["sealed"],
            "error": _CLOSED,
        }
        for why, stated in _OTHER_CLASSES
    ]
    return {"place": _PLACE, "good": good, "bad": bad}


_CLOSED = "does_not_open"
#: Cities are of class 88, and of no other.
_OTHER_CLASSES = [
    ("in a group that states a greater class", [96, 1]),
    ("in a group that states a greater class, and others", [96, 0]),
    ("in a group that states a lower class", [32, 1]),
    ("in a group where its class would show a length", [32, 0]),
    ("in a group that states a number", [8, 1]),
]


def _changes(sealed: bytes) -> list[tuple[str, dict[str, Any], str, str]]:
    plain = sealed.hex()
    moved = PEOPLE.replace('"maximum": 120', '"maximum": 121')
    age = ref.seal_field(
        people_key(), people().fields["age"], GROUP, 3, RECORDS[0], 1, Decimal(41)
    ).hex()
    found: list[tuple[str, dict[str, Any], str, str]] = [
        ("the tag altered", {}, "city", _flipped(sealed, -1)),
        ("the ciphertext altered", {}, "city", _flipped(sealed, 1)),
        ("the version byte of a later format", {}, "city", "02" + plain[2:]),
        ("the version byte zero", {}, "city", "00" + plain[2:]),
        ("cut short", {}, "city", plain[:-2]),
        ("a byte more", {}, "city", plain + "00"),
        ("nothing but the version byte", {}, "city", "01"),
        ("empty", {}, "city", ""),
        ("read as another field of its type", {}, ODD, plain),
        ("read as a field of another type", {}, "age", plain),
        ("of another record", {"record": RECORDS[1].hex()}, "city", plain),
        ("of another record version", {"version": 2}, "city", plain),
        ("at another ordinal", {"ordinal": 4}, "city", plain),
        ("in another group", {"group": RECORDS[1].hex()}, "city", plain),
        ("in another schema", {"schema": RECORDS[1].hex()}, "city", plain),
        ("in another organization", {"organization": RECORDS[1].hex()}, "city", plain),
        ("organization and schema swapped", _swapped(), "city", plain),
        ("under another keyring version", {"kv": 2}, "city", plain),
        ("under another root", {"root": hashlib.sha256(b"?").hexdigest()}, "city", plain),
        ("after a bound has moved", {"definition": moved}, "age", age),
    ]
    return found


def _flipped(sealed: bytes, at: int) -> str:
    changed = bytearray(sealed)
    changed[at] ^= 0x40
    return changed.hex()


def _swapped() -> dict[str, str]:
    return {"organization": SCHEMA.hex(), "schema": ORGANIZATION.hex()}


def _data(
    age: int | None, balance: str | None, city: str, odd: str | None
) -> dict[str, int | str | None]:
    return {"age": age, "balance": balance, "city": city, ODD: odd}


ROWS: list[tuple[bytes, int, dict[str, int | str | None]]] = [
    (RECORDS[0], 1, _data(41, "12.50", "Oslo", None)),
    (RECORDS[1], 1, _data(None, "-1000.5", "Rome", "x" * 48 + "b")),
    (RECORDS[2], 3, _data(0, None, "", "x" * 48 + "a")),
    (RECORDS[3], 1, _data(120, "1000", "Zu\u0308rich", "x" * 48)),
    (RECORDS[4], 1, _data(41, "12.5", "Z\u00fcrich", "\x00\x01")),
]


def place() -> dict[str, Any]:
    """Where the groups of the vectors are."""
    return {key: _PLACE[key] for key in ("root", "kv", "organization", "schema", "definition")}


def typed(definition: defs.Definition, data: dict[str, int | str | None]) -> dict[str, ref.Value]:
    return {
        name: Decimal(value)
        if value is not None and definition.fields[name]["type"] != "string"
        else value  # type: ignore[misc]
        for name, value in data.items()
    }


#: Of the request that the commit of ``group.json`` stores.
_REQUEST = bytes.fromhex("0190a000000070008000000000000e01")


def group() -> dict[str, Any]:
    """A group, the mini that indexes it, and the commit that brings both."""
    schema, definition = people_key(), people()
    r_group, r_segment = (hashlib.sha256(label).digest() for label in (b"group", b"segment"))
    salt, header_salt = (hashlib.sha256(label).digest() for label in (b"salt", b"header salt"))
    records = [(record, version, typed(definition, data)) for record, version, data in ROWS]
    names = list(definition.fields)
    ids, named = defs.ids(definition), defs.digest(definition)

    uid = ref.group_uid(schema, definition, records, r_group)
    rows: list[tuple[bytes, int, list[bytes]]] = [
        (record, version, sealed)
        for (record, version, _), sealed in zip(
            records, ref.seal_rows(schema, definition, records, uid), strict=True
        )
    ]
    indexed = [(ordinal, data) for ordinal, (_, _, data) in enumerate(records)]
    mini = segments.build_mini(schema, definition, [(uid, 0)], indexed, r_segment)

    batch, page = [uid, 0, rows], [mini.uid, 0, mini.page]
    writer, commit_id = RECORDS[6], RECORDS[7]
    body = pack(
        [
            *(1, commit_id, SCHEMA, schema.key_id, 1, *log.UNSIGNED, defs.digest(definition)),
            defs.canonical_text(definition),
            *(writer, 1, log.EMPTY_LOG, 0, log.EMPTY_LOG),
            [[uid, 1, len(rows), ids, ref.classes(definition), named, digests.group(salt, rows)]],
            [_mini(mini, 1, len(rows), 0, [[uid, 0]], header_salt, named)],
            *([], [], [_REQUEST], 0, [], []),
        ]
    )
    mac = log.commit_mac(schema.log, body)
    digest = log.commit_digest(body, mac)
    return {
        **place(),
        "randomness": {"group": r_group.hex(), "segment": r_segment.hex()},
        "salts": {"group": salt.hex(), "segment": header_salt.hex()},
        "writer": writer.hex(),
        "commit_id": commit_id.hex(),
        "request": _REQUEST.hex(),
        "records": [
            {"record": record.hex(), "version": version, "data": data}
            for record, version, data in ROWS
        ],
        "group": uid.hex(),
        "rows": [[one.hex() for one in sealed] for _, _, sealed in rows],
        "segment": {"uid": mini.uid.hex(), "header": mini.header.hex(), "page": mini.page.hex()},
        "commit": {"body": body.hex(), "mac": mac.hex(), "digest": digest.hex()},
        "log_digest": log.next_log_digest(log.EMPTY_LOG, digest).hex(),
        "digests": {
            "rows": [digests.row(salt, *row).hex() for row in rows],
            "group": digests.group(salt, rows).hex(),
            "segment": digests.segment(header_salt, mini.header, [mini.page]).hex(),
        },
        "upload": log.frames(
            (log.COMMIT, [body, mac, b""]),
            (log.GROUP_SALT, [uid, salt]),
            (log.ROW_BATCH, batch),
            (log.SEGMENT_HEADER, [mini.uid, header_salt, mini.header]),
            (log.PAGE, page),
        ).hex(),
        "index": {
            name: [
                [ordinal, None if key is None else key.hex()]
                for ordinal, key in segments.open_mini(
                    schema, definition, mini.uid, mini.header, mini.page
                )[name]
            ]
            for name in names
        },
        "field_keys": {
            name: keys.index_key(schema.field(field), mini.uid).hex()
            for name, field in definition.fields.items()
        },
    }


def _mini(
    mini: segments.Mini,
    kv: int,
    count: int,
    purged: int,
    groups: list[list[Any]],
    salt: bytes,
    named: bytes,
) -> list[Any]:
    """A segment as a commit states it."""
    digest = digests.segment(salt, mini.header, [mini.page])
    return [mini.uid, "mini", kv, count, purged, groups, 1, digest, named]


#: The root key that the keyring of the vectors was rotated to.
NEXT_ROOT = hashlib.sha256(b"root after a rotation").digest()
_NEXT_ROWS: list[tuple[bytes, int, dict[str, int | str | None]]] = [
    (RECORDS[5], 1, _data(7, None, "Oslo", "x" * 48 + "b")),
    (RECORDS[0], 2, _data(42, "12.50", "Bergen", "x" * 48 + "b")),
]


def rotation() -> dict[str, Any]:
    """The log of ``group.json`` goes on under keyring version 2: an update, then a merge."""
    before, definition = group(), people()
    first = people_key()
    schema = keys.schema(NEXT_ROOT, ORGANIZATION, SCHEMA, 2)
    labels = (b"second group", b"second segment", b"merged segment")
    randomness = [hashlib.sha256(label).digest() for label in labels]
    salt, *salts = (hashlib.sha256(label + b" salt").digest() for label in labels)
    records = [(record, n, typed(definition, data)) for record, n, data in _NEXT_ROWS]
    ids, named = defs.ids(definition), defs.digest(definition)
    uid = ref.group_uid(schema, definition, records, randomness[0])
    rows: list[tuple[bytes, int, list[bytes]]] = [
        (record, version, sealed)
        for (record, version, _), sealed in zip(
            records, ref.seal_rows(schema, definition, records, uid), strict=True
        )
    ]
    added = [(ordinal, data) for ordinal, (_, _, data) in enumerate(records)]
    mini = segments.build_mini(schema, definition, [(uid, 0)], added, randomness[1], tails=first)

    old_uid, old_segment = bytes.fromhex(before["group"]), bytes.fromhex(before["segment"]["uid"])
    base = len(ROWS)
    kept = [(at, typed(definition, data)) for at, (_, _, data) in enumerate(ROWS) if at != 0]
    merged = segments.build_mini(
        schema,
        definition,
        [(old_uid, 0), (uid, base)],
        [*kept, *((base + at, data) for at, data in added)],
        randomness[2],
        inputs=[old_segment, mini.uid],
        tails=first,
    )

    batch, page, merged_page = (
        [uid, 0, rows],
        [mini.uid, 0, mini.page],
        [merged.uid, 0, merged.page],
    )
    head = bytes.fromhex(before["log_digest"])
    digest = bytes.fromhex(before["commit"]["digest"])
    commits = []
    over_both = [[old_uid, 0], [uid, base]]
    stages: list[tuple[list[Any], list[tuple[int, list[Any]]]]] = [
        (
            [
                [
                    [
                        uid,
                        2,
                        len(rows),
                        ids,
                        ref.classes(definition),
                        named,
                        digests.group(salt, rows),
                    ]
                ],
                [_mini(mini, 2, len(rows), 0, [[uid, 0]], salts[0], named)],
                *([[old_uid, [[0, 1]]]], [], [], 0, [], []),
            ],
            [
                (log.GROUP_SALT, [uid, salt]),
                (log.ROW_BATCH, batch),
                (log.SEGMENT_HEADER, [mini.uid, salts[0], mini.header]),
                (log.PAGE, page),
            ],
        ),
        (
            [
                [],
                [_mini(merged, 2, base - 1 + len(rows), 1, over_both, salts[1], named)],
                *([], [old_segment, mini.uid], [], 0, [], []),
            ],
            [
                (log.SEGMENT_HEADER, [merged.uid, salts[1], merged.header]),
                (log.PAGE, merged_page),
            ],
        ),
    ]
    for version, (changes, frames) in enumerate(stages, start=2):
        body = pack(
            [
                *(1, _COMMIT_IDS[version], SCHEMA, schema.key_id, 2, *log.UNSIGNED),
                *(defs.digest(definition), b""),
                *(RECORDS[6], version, digest, version - 1, head),
                *changes,
            ]
        )
        mac = log.commit_mac(schema.log, body)
        digest = log.commit_digest(body, mac)
        head = log.next_log_digest(head, digest)
        commits.append(
            {
                "commit_id": _COMMIT_IDS[version].hex(),
                "upload": log.frames((log.COMMIT, [body, mac, b""]), *frames).hex(),
                "digest": digest.hex(),
                "log_digest": head.hex(),
            }
        )
    return {
        "roots": {"1": ROOT.hex(), "2": NEXT_ROOT.hex()},
        "randomness": [one.hex() for one in randomness],
        "salts": [salt.hex(), *(salt.hex() for salt in salts)],
        "records": [
            {"record": record.hex(), "version": version, "data": data}
            for record, version, data in _NEXT_ROWS
        ],
        "commits": commits,
        "index": {
            name: [[at, None if key is None else key.hex()] for at, key in column]
            for name, column in segments.open_mini(
                schema, definition, merged.uid, merged.header, merged.page
            ).items()
        },
    }


_COMMIT_IDS = {
    number: bytes.fromhex(f"0190a000000070008000000000000d{number:02x}") for number in (2, 3)
}
