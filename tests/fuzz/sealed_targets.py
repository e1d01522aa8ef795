"""Parsers of sealed things: from outside, and behind the seal, as if by a hostile key holder."""

from __future__ import annotations

import struct

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyroaring import BitMap

from encrypted_records.crypto import recovery, sealing, values
from encrypted_records.crypto.format import ARGON2_MEMORY_KIB, ARGON2_PASSES, PAGE_MINI
from encrypted_records.crypto.sealing import open_row
from encrypted_records.errors import Altered, DoesNotOpen, Malformed, Unsupported
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.mini import MiniSegment
from encrypted_records.model import digests, wire
from encrypted_records.model.ciphertext_lengths import LeastClass, least_class
from encrypted_records.model.definition import Value, words_spec
from encrypted_records.model.queries import parse_query
from encrypted_records.model.records import Group, Page, RowDigests, RowRef, SealedRow
from tests.fuzz import known
from tests.fuzz.known import DEFINITION, KEY, NAMES, SEGMENT, replace
from tests.fuzz.mutations import msgpack, raw
from tests.fuzz.target import Target
from tests.reference.keys import expand
from tests.reference.loading import vectors

FIELDS, VALUES, KEYRING = (vectors(f"{name}.json") for name in ("fields", "values", "keyring"))
PLACE = {
    name: bytes.fromhex(value)
    for name, value in FIELDS["place"].items()
    if name in ("group", "record")
}
ORDINAL, VERSION = FIELDS["place"]["ordinal"], FIELDS["place"]["version"]
_WHERE = sealing.context_of(KEY)
QUESTIONS = [
    parse_query({"where": {"field": name, "op": op, "value": value}}, DEFINITION).where
    for name, value in (("age", 41), ("balance", 0), ("city", "Oslo"), ("city", "x" * 60))
    for op in ("eq", "ge", "lt", "ne")
]


def _chosen(data: bytes) -> tuple[str, bytes]:
    """The first byte names a field, the rest is for it."""
    return NAMES[(data[0] if data else 0) % len(NAMES)], data[1:]


def _stated(data: bytes) -> LeastClass:
    """What the group of the field states: what its definition asks for, or something else."""
    name, _ = _chosen(data)
    others = [LeastClass(length, only) for length in (8, 32, 48, 88, 96) for only in (0, 1)]
    every = [least_class(DEFINITION.fields[name]), *others]
    return every[(data[0] if data else 0) // len(NAMES) % len(every)]


def _of(name: str, data: bytes) -> bytes:
    return bytes((NAMES.index(name),)) + data


# --- fields ------------------------------------------------------------------------------------


def _open(name: str, stated: LeastClass, sealed: bytes) -> Value:
    ids, named = [DEFINITION.fields[name].id], DEFINITION.digest
    group = Group(PLACE["group"], KEY.version, 100, ids, [stated], named, bytes(32))
    row = SealedRow(PLACE["record"], VERSION, [sealed])
    return open_row(KEY, DEFINITION, group, ORDINAL, row).data.get(name)


def a_sealed_field(data: bytes) -> None:
    name, sealed = _chosen(data)
    _open(name, _stated(data), sealed)


def the_plaintext_of_a_field(data: bytes) -> None:
    """A value has one plaintext and no other is taken for it."""
    name, plain = _chosen(data)
    stated = _stated(data)
    spec = DEFINITION.fields[name]
    record = sealing.record_context(_WHERE, PLACE["record"], VERSION)
    key = KEY.field(spec).seal(PLACE["group"])
    found = _open(name, stated, sealing.seal_field(key, ORDINAL, record, spec.id_bytes, plain))
    assert values.encode(spec, found, stated) == plain


# --- segments ----------------------------------------------------------------------------------


def _use(header: bytes, page: bytes) -> None:
    """What a proxy does with a segment that opens: it asks, and it merges."""
    sealed = replace(known.HEADER, data=header)
    opened = MiniSegment(KEY, DEFINITION, SEGMENT, sealed, Page(SEGMENT.uid, 0, page))
    every = BitMap(opened.rows)
    for where in QUESTIONS:
        found = Condition.of(where, KEY, DEFINITION).match(opened)
        assert found.certain <= found.possible <= every
    merged = merge(KEY, DEFINITION, [opened], known.snapshot())
    assert merged.segment.count == opened.count


def _column_size(name: str) -> int:
    return columns.encoded_size(DEFINITION.fields[name].kind, SEGMENT.count)


def _sealed_column(name: str, plain: bytes) -> bytes:
    return sealing.seal_page(
        KEY.field(DEFINITION.fields[name]).index(SEGMENT.uid),
        PAGE_MINI,
        0,
        plain,
        schema_context=_WHERE,
        segment=SEGMENT.uid,
        field=DEFINITION.fields[name].id_bytes,
    )


def _columns() -> dict[str, bytes]:
    """The vectors' columns in the order of the page."""
    opened = known.opened()
    return {
        name: columns.encode(opened.column(name), DEFINITION.fields[name].kind) for name in NAMES
    }


COLUMNS = _columns()
HEADER = sealing.open_header(
    KEY.meta(SEGMENT.uid), known.HEADER.data, schema_context=_WHERE, segment=SEGMENT.uid
)


def a_page(data: bytes) -> None:
    _use(known.HEADER.data, data)


def a_column(data: bytes) -> None:
    """What is accepted is sorted, and the one encoding of what it says."""
    name, plain = _chosen(data)
    kind = DEFINITION.fields[name].kind
    found = columns.decode(plain, kind, SEGMENT.count)
    assert columns.encode(found, kind) == plain
    assert np.all(found.keys[:-1] <= found.keys[1:])


WORDS = words.build(
    KEY.field(words_spec(DEFINITION.fields["city"])),
    ["a b c", None, "b", "a b c d e f g h i j k l m", "x" * 99],
    LeastClass(32, 0),
)


def a_column_of_words(data: bytes) -> None:
    rows, room = words.rows_of(WORDS), words.count_entries(WORDS)
    assert words.encode(words.decode(data, rows, room)) == data


def a_column_behind_its_seal(data: bytes) -> None:
    """Of the right length, which alone is let in."""
    name, plain = _chosen(data)
    size = _column_size(name)
    changed = COLUMNS | {name: plain[:size].ljust(size, b"\0")}
    page = b"".join(_sealed_column(each, content) for each, content in changed.items())
    _use(known.HEADER.data, page)


def a_header(data: bytes) -> None:
    _use(data, known.PAGE.data)


def a_header_behind_its_seal(data: bytes) -> None:
    key = KEY.meta(SEGMENT.uid)
    header = sealing.seal_header(key, data, schema_context=_WHERE, segment=SEGMENT.uid)
    _use(header, known.PAGE.data)


def what_proves_a_row(data: bytes) -> None:
    """Nothing but what was stored proves it."""
    told = wire.decode_single(b"ERS1\x0f" + len(data).to_bytes(4, "big") + data, RowDigests)
    digests.check_row(RowRef(known.GROUP.uid, 1), ROW, known.GROUP.rows, told)
    assert told == PROOF


SALT = known.UPLOAD.salts[0].salt
ROW = known.UPLOAD.rows[0].present[1]
_OWN = digests.row_digests(SALT, known.UPLOAD.rows[0].present)
PROOF = RowDigests(known.GROUP.uid, SALT, 0, _OWN, digests.run_digests(_OWN))


# --- keyring files -----------------------------------------------------------------------------

FILE, MACHINE_KEY, OWNER = (
    bytes.fromhex(KEYRING["machine_key"]["good"][name]) for name in ("file", "machine_key", "owner")
)
#: Magic, version, wrapping, nonce.
_HEAD = FILE[: 10 + 1 + 1 + 12]
PHRASE = KEYRING["passphrase"]["good"]
COMMITMENT = FILE[len(_HEAD) : len(_HEAD) + 32]
_FILE_KEY = AESGCM(expand(MACHINE_KEY, b"file", _HEAD))
ROOTS = _FILE_KEY.decrypt(_HEAD[-12:], FILE[len(_HEAD) + 32 :], _HEAD + OWNER)


def a_keyring_file(data: bytes) -> None:
    assert recovery.unwrap(data, recovery.MachineKey(MACHINE_KEY), OWNER).roots


def a_keyring_file_with_a_passphrase(data: bytes) -> None:
    memory, passes = struct.unpack(">II", data[12:20].ljust(8, b"\0"))
    if memory in ARGON2_MEMORY_KIB and passes in ARGON2_PASSES and memory * passes > 2**16:
        return  # allowed, and slow on purpose
    assert recovery.unwrap(data, recovery.Passphrase(PHRASE["passphrase"]), OWNER).roots


def the_root_keys_of_a_keyring_file(data: bytes) -> None:
    sealed = _FILE_KEY.encrypt(_HEAD[-12:], data, _HEAD + OWNER)
    file = _HEAD + COMMITMENT + sealed
    keyring = recovery.unwrap(file, recovery.MachineKey(MACHINE_KEY), OWNER)
    assert sorted(keyring.roots) == list(range(1, keyring.newest + 1))
    assert keyring.schema(KEY.organization, KEY.schema).newest.version == keyring.newest


# -----------------------------------------------------------------------------------------------

_SEALED = [_of(one["field"], bytes.fromhex(one["sealed"])) for one in FIELDS["good"]]
_PLAIN = [
    _of(name, bytes.fromhex(one["plain"]))
    for one in VALUES["bad"]
    for name in (("city",) if len(one["plain"]) != 18 else ("age", "balance"))
] + [
    _of(name, values.encode(spec := DEFINITION.fields[name], value, least_class(spec)))
    for record in known.records()
    for name, value in record.data.items()
]
_OSLO = _of("city", b"\x03Oslo\x80".ljust(89, b"\0"))

TARGETS = [
    Target(a_sealed_field, (DoesNotOpen,), _SEALED, raw),
    Target(the_plaintext_of_a_field, (DoesNotOpen,), [_OSLO, *_PLAIN], raw),
    Target(a_page, (DoesNotOpen,), [known.PAGE.data], raw),
    Target(a_column, (DoesNotOpen,), [_of(*item) for item in COLUMNS.items()], raw),
    Target(a_column_of_words, (DoesNotOpen,), [words.encode(WORDS)], raw),
    Target(a_column_behind_its_seal, (DoesNotOpen,), [_of(*item) for item in COLUMNS.items()], raw),
    Target(a_header, (DoesNotOpen,), [known.HEADER.data], raw),
    Target(a_header_behind_its_seal, (DoesNotOpen, Unsupported), [HEADER], msgpack),
    Target(
        what_proves_a_row,
        (Altered, Malformed),
        [msgspec.msgpack.encode(PROOF)],
        msgpack,
    ),
    Target(a_keyring_file, (DoesNotOpen, Unsupported), [FILE], raw),
    Target(
        a_keyring_file_with_a_passphrase,
        (DoesNotOpen, Unsupported),
        [bytes.fromhex(PHRASE["file"])],
        raw,
    ),
    Target(the_root_keys_of_a_keyring_file, (DoesNotOpen, Unsupported), [ROOTS], raw),
]
