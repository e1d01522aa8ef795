"""Section 6.2: paged segments, built and read entry by entry.

The zstd frames that it writes are not compressed (RFC 8878, 3.1.1.2.2: blocks of type raw), so
that vectors do not change with a library.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import zstandard

from tests.reference import does_not_open, words
from tests.reference.definitions import Definition, Field, field_id, lengths, u32
from tests.reference.definitions import columns as columns_of
from tests.reference.fields import Value, decrypt, encrypt, index_key_of, length_class
from tests.reference.keys import Schema, index_key, mac, uid
from tests.reference.msgpack import pack
from tests.reference.segments import PLAIN, key_width, named

DIRECTORY, DATA, DUMMY = 2, 3, 4
CAPACITY = 16365

#: An entry of a column: a local ordinal and its index key, None where absent.
Entry = tuple[int, bytes | None]


@dataclass(frozen=True)
class Paged:
    uid: bytes
    header: bytes
    pages: list[bytes]
    #: per page number: field, kind, content
    contents: list[tuple[str, int, bytes]]


def raw_frame(data: bytes) -> bytes:
    """``data`` as a zstd frame of one raw block, with a window of 128 KiB and no size."""
    assert len(data) < 1 << 17
    block = (len(data) << 3 | 1).to_bytes(3, "little")
    return (0xFD2FB528).to_bytes(4, "little") + b"\x00" + b"\x38" + block + data


def unpacked(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 24)


def entries(field: Field, key: bytes, rows: Sequence[tuple[int, Value]]) -> list[Entry]:
    """The column: absent rows, then the others by key and ordinal, keys zero-padded."""
    width = key_width(field)
    absent: list[Entry] = [(ordinal, None) for ordinal, value in sorted(rows) if value is None]
    present = sorted(
        (index_key_of(field, key, value).ljust(width, b"\x00"), ordinal)
        for ordinal, value in rows
        if value is not None
    )
    return absent + [(ordinal, one) for one, ordinal in present]


def divided(column: list[Entry], size: int) -> Iterator[list[Entry]]:
    absent = [entry for entry in column if entry[1] is None]
    for part in (absent, column[len(absent) :]):
        for at in range(0, len(part), size):
            yield part[at : at + size]


def planes(numbers: list[int], width: int) -> bytes:
    return b"".join(
        bytes(number >> (8 * place) & 0xFF for number in numbers) for place in range(width)
    )


def from_planes(data: bytes, count: int, width: int) -> list[int]:
    assert len(data) == count * width
    return [
        sum(data[place * count + at] << (8 * place) for place in range(width))
        for at in range(count)
    ]


def steps(ordinals: list[int]) -> list[int]:
    found = []
    before = 0
    for ordinal in ordinals:
        step = (ordinal - before + 2**31) % 2**32 - 2**31
        found.append(2 * step if step >= 0 else -2 * step - 1)
        before = ordinal
    return found


def from_steps(folded: list[int]) -> list[int]:
    found = []
    at = 0
    for one in folded:
        at = (at + (one // 2 if one % 2 == 0 else -(one + 1) // 2)) % 2**32
        found.append(at)
    return found


def content(field: Field, page: list[Entry], packed: bool) -> bytes:
    ordinals = [ordinal for ordinal, _ in page]
    keys = [key for _, key in page if key is not None]
    if not packed:
        return b"".join(map(u32, ordinals)) + b"".join(keys)
    folded = planes(steps(ordinals), 4)
    if not keys:
        return raw_frame(folded)
    distinct = sorted(set(keys))
    counts = planes([keys.count(key) - 1 for key in distinct], 2)
    return raw_frame(u32(len(distinct)) + folded + counts + packed_keys(field, distinct))


def packed_keys(field: Field, distinct: list[bytes]) -> bytes:
    if field["type"] != "string":
        numbers = [int.from_bytes(key, "big") for key in distinct]
        lower = [0, *numbers[:-1]]
        return planes([one - other for one, other in zip(numbers, lower, strict=True)], 8)
    shared, own = [], []
    before = b""
    for key in (key.rstrip(b"\x00") for key in distinct):
        same = 0
        while same < min(len(key), len(before)) and key[same] == before[same]:
            same += 1
        shared.append(same)
        own.append(key[same:])
        before = key
    return bytes(shared) + bytes(map(len, own)) + b"".join(own)


def read_content(
    field: Field, data: bytes, count: int, *, present: bool, packed: bool
) -> list[Entry]:
    width = key_width(field)
    if packed:
        data = unpacked(data)
    if not present:
        ordinals = (
            from_steps(from_planes(data, count, 4))
            if packed
            else [int.from_bytes(data[4 * at : 4 * at + 4], "big") for at in range(count)]
        )
        return [(ordinal, None) for ordinal in ordinals]
    if not packed:
        assert len(data) == count * (4 + width)
        return [
            (
                int.from_bytes(data[4 * at : 4 * at + 4], "big"),
                data[4 * count + width * at : 4 * count + width * (at + 1)],
            )
            for at in range(count)
        ]
    distinct = int.from_bytes(data[:4], "big")
    ordinals = from_steps(from_planes(data[4 : 4 + 4 * count], count, 4))
    at = 4 + 4 * count
    counts = [plane + 1 for plane in from_planes(data[at : at + 2 * distinct], distinct, 2)]
    keys = read_packed_keys(field, data[at + 2 * distinct :], distinct)
    repeated = [key for key, times in zip(keys, counts, strict=True) for _ in range(times)]
    return list(zip(ordinals, repeated, strict=True))


def read_packed_keys(field: Field, data: bytes, distinct: int) -> list[bytes]:
    if field["type"] != "string":
        total = 0
        found = []
        for step in from_planes(data, distinct, 8):
            total += step
            found.append(total.to_bytes(8, "big"))
        return found
    shared, own, at = data[:distinct], data[distinct : 2 * distinct], 2 * distinct
    found, before = [], b""
    for same, length in zip(shared, own, strict=True):
        before = before[:same] + data[at : at + length]
        at += length
        found.append(before.ljust(64, b"\x00"))
    assert at == len(data)
    return found


def most_listed(count: int) -> int:
    return min(4096, count // 16)


def directory(
    field: Field,
    column: list[Entry],
    parts: list[list[Entry]],
    numbers: list[int],
    packed: bool,
    room: int,
) -> bytes:
    keys = [key for _, key in column if key is not None]
    distinct = sorted(set(keys))
    listed = len(distinct) <= most_listed(room)
    ends = [sum(len(part) for part in parts[: at + 1]) for at in range(len(parts))]
    own = [[key for _, key in part if key is not None] for part in parts]
    rest = u32(len(column) - len(keys)) + u32(len(distinct) + 1 if listed else 0)
    rest += b"".join(map(u32, ends))
    rest += b"".join(one[0] for one in own if one) + b"".join(one[-1] for one in own if one)
    if listed:
        rest += b"".join(u32(keys.index(key)) for key in distinct) + b"".join(distinct)
    head = u32(len(parts)) + b"".join(map(u32, numbers))
    return head + (raw_frame(rest) if packed else rest)


def slots(field: Field, count: int, size: int) -> tuple[int, int]:
    """Data and directory pages of a column in a segment that is not packed."""
    width = key_width(field)
    data = -(-count // min(size, CAPACITY // (4 + width))) + 1
    total = 12 + data * (8 + 2 * width) + most_listed(count) * (4 + width)
    return data, -(-total // CAPACITY)


def build_paged(
    schema: Schema,
    definition: Definition,
    groups: list[tuple[bytes, int]],
    rows: list[tuple[int, dict[str, Value]]],
    covered: int,
    r: bytes,
    order: Sequence[int],
    *,
    size: int,
    packed: bool,
    origin: bytes = b"",
) -> Paged:
    """A segment of at most ``size`` entries a page, over (local ordinal, data) pairs.

    ``order`` is a permutation from which numbers are taken, for each field those of its directory
    and then those of its data pages; it may be longer than needed.
    """
    every = columns_of(definition)
    columns: dict[str, list[Entry]] = {
        name: [*words.entries(definition, field, schema.field(field), rows)]
        if field["type"] == "words"
        else entries(
            field,
            schema.field(field),
            [(ordinal, data.get(name)) for ordinal, data in rows],
        )
        for name, field in every.items()
    }
    room = {name: places(field, columns[name]) for name, field in every.items()}
    parts = {name: list(divided(column, size)) for name, column in columns.items()}
    planned, own = 0, {}
    for name, field in every.items():
        if packed:
            zeros = [0] * len(parts[name])
            length = len(directory(field, columns[name], parts[name], zeros, packed, room[name]))
            own[name] = -(-length // CAPACITY)
            planned += own[name] + len(parts[name])
        else:
            data, own[name] = slots(field, room[name], size)
            planned += own[name] + data
    total = length_class(planned + (drawn(schema, origin, planned) if packed else 0))
    numbers = iter([number for number in order if number < total])
    contents = [(next(iter(definition.fields)), DUMMY, b"")] * total
    directories = []
    for name, field in every.items():
        mine = [next(numbers) for _ in range(own[name])]
        theirs = [next(numbers) for _ in parts[name]]
        encoded = directory(field, columns[name], parts[name], theirs, packed, room[name])
        for at, number in enumerate(mine):
            part = encoded[at * CAPACITY : (at + 1) * CAPACITY]
            contents[number] = (name, DIRECTORY, part)
        for number, part_ in zip(theirs, parts[name], strict=True):
            contents[number] = (name, DATA, content(field, part_, packed))
        directories.append(b"".join(map(u32, mine)))
    indexed = {ordinal for ordinal, _ in rows}
    bits = "".join("1" if at in indexed else "0" for at in range(covered))
    mask = int(bits.ljust(-(-covered // 8) * 8, "0"), 2).to_bytes(-(-covered // 8), "big")
    ids = [field_id(field) for field in every.values()]
    kinds = [
        PLAIN if field["type"] != "words" else [2, room[name]] for name, field in every.items()
    ]
    header = pack(
        [
            *(1, "paged", groups_digest(groups)),
            *(ids, hashlib.sha256(mask).digest(), int(packed), directories, []),
            *(kinds, zones(every, columns)),
        ]
    )
    frames = [frame(one) for _, _, one in contents]
    segment = uid(schema.uids, r, lengths(header, *frames))
    pages = [
        encrypt(
            index_key(schema.field(every[name]), segment),
            nonce(kind, number),
            plain,
            context(schema, segment, kind, number, every[name]),
        )
        for number, ((name, kind, _), plain) in enumerate(zip(contents, frames, strict=True))
    ]
    sealed = encrypt(schema.meta(segment), bytes(12), header, schema.place + segment)
    return Paged(segment, sealed, pages, contents)


def places(field: Field, column: list[Entry]) -> int:
    """For how many entries a column has room."""
    if field["type"] != "words":
        return len(column)
    return words.places([(ordinal, key) for ordinal, key in column if key is not None])


def zones(every: dict[str, Field], columns: dict[str, list[Entry]]) -> list[bytes]:
    """Each column's least and greatest key; the other way round where none is present."""
    found = []
    for name, field in every.items():
        width = key_width(field)
        keys = [key for _, key in columns[name] if key is not None]
        found.append(min(keys) + max(keys) if keys else b"\xff" * width + bytes(width))
    return found


def drawn(schema: Schema, origin: bytes, slots: int) -> int:
    """The dummies of a packed segment."""
    found = mac(schema.uids, b"dummies" + hashlib.sha256(origin).digest())
    e = int(math.log2(slots))
    step = 16 if slots <= 64 else 2 ** (e - int(math.log2(e)) - 1)
    return int.from_bytes(found[:8], "big") % step


def groups_digest(groups: list[tuple[bytes, int]]) -> bytes:
    return hashlib.sha256(b"".join(group + u32(base) for group, base in groups)).digest()


def frame(one: bytes) -> bytes:
    return (len(one).to_bytes(2, "big") + one).ljust(CAPACITY + 2, b"\x00")


def nonce(kind: int, number: int) -> bytes:
    return bytes((kind,)) + bytes(7) + u32(number)


def context(schema: Schema, segment: bytes, kind: int, number: int, field: Field) -> bytes:
    return schema.place + segment + nonce(kind, number) + u32(field_id(field))


def open_paged(
    schema: Schema,
    definition: Definition,
    segment: bytes,
    header: list[object],
    pages: Sequence[bytes],
) -> dict[str, list[Entry]]:
    """Each field's column, read from every page that its directory names."""
    _, form, _, ids, _, packed, directories, _, kinds, _ = header
    assert form == "paged"
    assert isinstance(ids, list)
    assert isinstance(kinds, list)
    assert isinstance(directories, list)
    found = {}
    for one, kind_of, numbers in zip(ids, kinds, directories, strict=True):
        name, field = named(definition, one, kind_of)
        key = index_key(schema.field(field), segment)

        def page(number: int, kind: int, field: Field = field, key: bytes = key) -> bytes:
            where = context(schema, segment, kind, number, field)
            plain = decrypt(key, nonce(kind, number), pages[number], where)
            end = 2 + int.from_bytes(plain[:2], "big")
            if any(plain[end:]):
                raise does_not_open()
            return plain[2:end]

        data = b"".join(page(number, DIRECTORY) for number in read_u32s(numbers))
        count = int.from_bytes(data[:4], "big")
        places = read_u32s(data[4 : 4 + 4 * count])
        rest = data[4 + 4 * count :]
        if packed:
            rest = unpacked(rest)
        absent = int.from_bytes(rest[:4], "big")
        ends = read_u32s(rest[8 : 8 + 4 * count])
        found[name] = [
            entry
            for before, end, number in zip([0, *ends], ends, places, strict=False)
            for entry in read_content(
                field,
                page(number, DATA),
                end - before,
                present=end > absent,
                packed=bool(packed),
            )
        ]
    return found


def read_u32s(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
