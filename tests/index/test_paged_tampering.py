"""A page of a paged segment that was altered or moved is an error, never another answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA, PAGE_DIRECTORY, PAGE_DUMMY
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory, pages
from encrypted_records.index.columns.column import Column
from encrypted_records.index.columns.directory import Directory
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.headers import PagedHeader
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.model.records import PAGE_BYTES, Page, Segment, SegmentHeader
from tests.index.test_tampering import flipped
from tests.index.world import World
from tests.support.paged_segments import roles_of, sealed_page, stored_directory

TEXT = (
    '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"},'
    ' "n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)
NAMES = ("a", "b", "n")
replace = msgspec.structs.replace


def new_world(*, packed: bool) -> World:
    world = World(TEXT, limits=SegmentLimits(mini=0, plain=0 if packed else 65536, entries=7))
    for sign in "+-":
        world.ingest(
            {"a": None if at % 5 == 0 else f"{sign}{at % 2}", "b": f"{sign}{at}", "n": at % 10}
            for at in range(40)
        )
    return world


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "packed"])
def world(request: pytest.FixtureRequest) -> World:
    """Two segments of one shape, ``a`` with few values and absent rows."""
    return new_world(packed=request.param)


def segment_of(world: World, at: int = 0) -> Segment:
    return world.ledger.snapshot().segments[at]


def stored(world: World, at: int = 0) -> list[bytes]:
    segment = segment_of(world, at)
    return [world.pages[segment.uid, number].data for number in range(segment.pages)]


def header_of(world: World, at: int = 0) -> SegmentHeader:
    return world.headers[segment_of(world, at).uid]


def read_all(
    world: World, segment: Segment, sealed: list[bytes], header: SegmentHeader | None = None
) -> LoadedSegment:
    header = header or world.headers[segment.uid]
    opened = LoadedSegment(OpenedHeader(world.key, world.definition, segment, header))
    while missing := opened.missing_columns(NAMES):
        for number in sorted(missing):
            opened.put(number, sealed[number])
    for name in NAMES:
        opened.column(name)
    return opened


def refused(
    world: World,
    segment: Segment,
    sealed: list[bytes],
    match: str | None = None,
    *,
    header: SegmentHeader | None = None,
) -> None:
    with pytest.raises(DoesNotOpen, match=match):
        read_all(world, segment, sealed, header)


def named(world: World, at: int = 0) -> dict[int, tuple[str, int]]:
    """Field and kind of every page that is no dummy."""
    opened = read_all(world, segment_of(world, at), stored(world, at))
    return {number: (role.field, role.kind) for number, role in roles_of(opened).items()}


def test_untouched_segments_open(world: World) -> None:
    for at in range(2):
        read_all(world, segment_of(world, at), stored(world, at))


def test_pages_of_one_size_lie_in_no_order(world: World) -> None:
    assert {len(data) for data in stored(world)} == {PAGE_BYTES}
    kinds = [named(world).get(number, ("", PAGE_DUMMY)) for number in range(len(stored(world)))]
    assert kinds != sorted(kinds)
    assert kinds != [
        named(world, 1).get(number, ("", PAGE_DUMMY)) for number in range(len(stored(world)))
    ]


@pytest.mark.parametrize("at", [0, 1, 2, 3, 17, 300, PAGE_BYTES // 2, -17, -16, -1])
def test_no_altered_byte_of_any_page_opens(world: World, at: int) -> None:
    sealed = stored(world)
    for number in named(world):
        changed = list(sealed)
        changed[number] = flipped(sealed[number], at)
        refused(world, segment_of(world), changed)


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b"", lambda d: d[: len(d) // 2]]
)
def test_a_page_of_another_length_does_not_open(
    world: World, change: Callable[[bytes], bytes]
) -> None:
    sealed = stored(world)
    for number in named(world):
        changed = list(sealed)
        changed[number] = change(sealed[number])
        refused(world, segment_of(world), changed)


def test_no_page_opens_in_the_place_of_another(world: World) -> None:
    """Of the same column or another, of another kind, a dummy, and of another segment."""
    sealed, other = stored(world), stored(world, 1)
    for number in named(world):
        for foreign in [*(sealed[:number] + sealed[number + 1 :]), other[number % len(other)]]:
            changed = list(sealed)
            changed[number] = foreign
            refused(world, segment_of(world), changed)


def test_a_header_of_another_segment_or_altered_does_not_open(world: World) -> None:
    segment = segment_of(world)
    refused(world, segment, stored(world), header=header_of(world, 1))
    header = header_of(world)
    for at in (0, 1, 17, -17, -1):
        altered = replace(header, data=flipped(header.data, at))
        refused(world, segment, stored(world), header=altered)


def test_a_segment_that_states_other_groups_counts_or_pages_does_not_open(world: World) -> None:
    segment = segment_of(world)
    (uid, _), *_ = segment.groups
    changes: list[dict[str, Any]] = [
        {"groups": [(bytes(16), 0)]},
        {"groups": [(uid, 1)]},
        {"groups": [(uid, 0), (bytes(16), 40)]},
        {"count": 39},
        {"count": 41},
        {"count": 39, "purged": 1},
        {"purged": 1000},
        {"pages": 1},
        {"form": "mini"},
    ]
    for change in changes:
        refused(world, replace(segment, **change), stored(world))


def test_a_segment_of_another_schema_does_not_open(world: World) -> None:
    with pytest.raises(DoesNotOpen):
        LoadedSegment(
            OpenedHeader(World(TEXT).key, world.definition, segment_of(world), header_of(world))
        )


def test_a_page_that_no_directory_names_is_none(world: World) -> None:
    opened = LoadedSegment(
        OpenedHeader(world.key, world.definition, segment_of(world), header_of(world))
    )
    dummy = next(number for number in range(len(stored(world))) if number not in named(world))
    with pytest.raises(DoesNotOpen, match="names"):
        opened.put(dummy, stored(world)[dummy])


# --- behind the seal: what a hostile holder of the key could write -------------------------------


class Forger:
    """Changes what is sealed and seals it again, under the right keys."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.segment = segment_of(world)
        self.sealed = stored(world)
        self.opened = read_all(world, self.segment, self.sealed)
        self.packed = bool(self.opened.directories.header.packed)

    def header(self, **changes: Any) -> SegmentHeader:
        return self.sealed_header(replace(self.opened.directories.header, **changes))

    def sealed_header(self, header: Any) -> SegmentHeader:
        plain = msgspec.msgpack.encode(header)
        uid = self.segment.uid
        sealed = sealing.seal_header(
            self.world.key.meta(uid),
            plain,
            schema_context=sealing.context_of(self.world.key),
            segment=uid,
        )
        return replace(header_of(self.world), data=sealed)

    def page(self, name: str, kind: int, number: int, content: bytes) -> None:
        spec, place = self.world.definition.fields[name], (self.segment.uid, kind, number)
        self.sealed[number] = sealed_page(self.world.key, spec, *place, content)

    def found(self, name: str) -> Directory:
        """The directory as it was built."""
        spec, key = self.world.definition.fields[name], self.world.key
        return stored_directory(key, spec, self.opened, stored(self.world).__getitem__)

    def directory(self, name: str, **changes: Any) -> None:
        found = self.found(name)
        fields = {slot: getattr(found, slot) for slot in Directory.__slots__} | changes
        kind = self.world.definition.fields[name].kind
        encoded = directory.encode(Directory(**fields), kind, packed=self.packed)
        first, *rest = (
            number
            for number, role in roles_of(self.opened).items()
            if (role.field, role.kind) == (name, PAGE_DIRECTORY)
        )
        self.page(name, PAGE_DIRECTORY, first, encoded)
        for number in rest:
            self.page(name, PAGE_DIRECTORY, number, b"")

    def column(self, name: str, column: Column) -> None:
        """Other entries, cut as the column was, with a directory that agrees."""
        kind = self.world.definition.fields[name].kind
        found = self.found(name)
        cuts = list(pages.cut(column, kind, packed=self.packed, most=7))
        assert [cut.end for cut in cuts] == found.ends.tolist()
        for number, one in zip(found.numbers, cuts, strict=True):
            self.page(name, PAGE_DATA, int(number), one.content)
        built = directory.build(column, [cut.end for cut in cuts], len(column.ordinals))
        self.directory(name, firsts=built.firsts, lasts=built.lasts, starts=built.starts)

    def refused(self, match: str | None = None) -> None:
        refused(self.world, self.segment, self.sealed, match)


@pytest.fixture
def forger(world: World) -> Forger:
    return Forger(world)


def test_the_forger_changes_nothing_by_itself(forger: Forger) -> None:
    for name in NAMES:
        forger.directory(name)
        forger.column(name, forger.opened.column(name))
    read_all(forger.world, forger.segment, forger.sealed, forger.header())


def test_a_header_of_another_form_is_refused(forger: Forger) -> None:
    good = forger.opened.directories.header
    assert isinstance(good, PagedHeader)
    changes: list[dict[str, Any]] = [
        {"format": 2},
        {"form": "mini"},
        {"groups": bytes(32)},
        {"fields": ["a", "b", "unknown"]},
        {"fields": ["a", "b", "a"]},
        {"fields": ["a", "b"]},
        {"rows": bytes(32)},
        {"packed": 1 - good.packed},
        {"packed": 2},
        {"directories": good.directories[:2]},
        {"directories": [*good.directories[:2], b""]},
        {"directories": [*good.directories[:2], good.directories[2][:-1]]},
        {"directories": [*good.directories[:2], good.directories[0]]},
        {"directories": [*good.directories[:2], b"\xff\xff\xff\xff"]},
        {"kinds": [1, 1]},
        {"zones": good.zones[:2]},
        {"zones": [*good.zones[:2], good.zones[2][:-1]]},
        {"zones": [*good.zones[:2], good.zones[2][8:] + good.zones[2][:8]]},
        {"zones": [good.zones[1], *good.zones[1:]]},
    ]
    for change in changes:
        refused(forger.world, forger.segment, forger.sealed, header=forger.header(**change))
    for other in ([1, "paged"], 7):
        header = forger.sealed_header(other)
        refused(forger.world, forger.segment, forger.sealed, header=header)


def test_a_directory_that_contradicts_itself_is_refused(forger: Forger) -> None:
    found = forger.found("a")
    assert found.listed
    assert found.absent
    keys = found.firsts
    changes: list[dict[str, Any]] = [
        {"absent": 0},
        {"absent": found.absent - 1},
        {"absent": 41},
        {"ends": found.ends + 1},
        {"ends": found.ends[::-1]},
        {"ends": np.where(found.ends == found.ends[2], found.ends[1], found.ends)},
        {"numbers": np.zeros_like(found.numbers)},
        {"numbers": found.numbers + 10_000},
        {"firsts": found.lasts, "lasts": found.firsts},
        {"firsts": keys[::-1], "lasts": found.lasts[::-1]},
        {"starts": found.starts + 1},
        {"starts": found.starts[::-1]},
        {"starts": found.starts * 100},
        {"runs": found.runs[::-1]},
        {"runs": np.array([b"+", b"+1"], found.runs.dtype)},
        {"runs": found.runs[:0], "starts": found.starts[:0]},
    ]
    for change in changes:
        forger.directory("a", **change)
        forger.refused("director")


def test_a_directory_of_other_keys_than_its_pages_is_refused(forger: Forger) -> None:
    found = forger.found("b")
    assert not found.listed
    shifted = found.firsts.copy()
    shifted[1] = found.lasts[0]
    forger.directory("b", firsts=shifted)
    forger.refused("other keys")
    shifted = found.lasts.copy()
    shifted[0] = found.firsts[1]
    forger.directory("b", lasts=shifted)
    forger.refused("other keys")


def test_a_directory_that_lists_other_values_than_its_pages_is_refused(forger: Forger) -> None:
    """The page's outermost keys agree, what lies between does not."""
    found = forger.found("a")
    moved = found.starts.copy()
    moved[1] += 1 if (found.starts[1] + 1) % 7 else -1
    forger.directory("a", starts=moved)
    forger.refused()


def test_directories_that_exchange_two_pages_are_refused(forger: Forger) -> None:
    for name in NAMES:
        numbers = forger.found(name).numbers.copy()
        numbers[-2:] = numbers[[-1, -2]]
        forger.directory(name, numbers=numbers)
        forger.refused()
        forger.directory(name)


def test_a_page_of_rows_that_the_groups_lack_is_refused(forger: Forger) -> None:
    column = forger.opened.column("b")
    ordinals = column.ordinals.copy()
    ordinals[3] = 40
    forger.column("b", Column(ordinals, column.keys))
    forger.refused("rows that its segment lacks")


def test_a_column_of_other_rows_than_its_segment_is_refused(forger: Forger) -> None:
    column = forger.opened.column("b")
    ordinals = column.ordinals.copy()
    ordinals[3] = ordinals[20]
    forger.column("b", Column(ordinals, column.keys))
    forger.refused("other rows")


def test_entries_of_one_value_out_of_order_between_pages_are_refused(forger: Forger) -> None:
    for name in ("a", "n"):
        column = forger.opened.column(name)
        found = forger.found(name)
        ends = found.ends.astype(int)
        keys = [None] * column.absent + column.keys.tolist()
        edge = next(end for end in ends[:-1] if keys[end - 1] == keys[end])
        ordinals = column.ordinals.copy()
        ordinals[[edge - 1, edge]] = ordinals[[edge, edge - 1]]
        forger.column(name, Column(ordinals, column.keys))
        forger.refused("order")
        forger.column(name, column)


def test_a_page_altered_in_store_fails_the_question_that_needs_it(world: World) -> None:
    segment = segment_of(world)
    before = dict(world.pages)
    try:
        for number, (name, _) in named(world).items():
            page = before[segment.uid, number]
            world.pages = before | {
                (segment.uid, number): Page(segment.uid, number, flipped(page.data, 99))
            }
            # In two halves: a range that all rows are in takes no page.
            value = {"a": "+1", "b": "+2", "n": 5}[name]
            with pytest.raises(DoesNotOpen):
                world.ask(
                    {
                        "or": [
                            {"field": name, "op": "lt", "value": value},
                            {"field": name, "op": "ge", "value": value},
                            {"field": name, "op": "is_null"},
                        ]
                    }
                )
    finally:
        world.pages = before
