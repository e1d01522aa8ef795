"""A row, page or header that was altered or moved is an error, never another answer."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from encrypted_records.crypto import sealing
from encrypted_records.errors import DoesNotOpen, Unsupported
from encrypted_records.index.segments.mini import MiniSegment, build_mini
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass
from encrypted_records.model.records import Group, Page, SealedRow, Segment, SegmentHeader
from tests.index.world import World
from tests.reference.msgpack import pack

TEXT = (
    '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"},'
    ' "n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)
#: Where the sealed columns of a page begin and end, for two rows.
_TEXTS, _NUMBERS = 17 + 4 + 2 * (4 + 64), 17 + 4 + 2 * (4 + 8)
ENDS = [0, _TEXTS, 2 * _TEXTS, 2 * _TEXTS + _NUMBERS]
ALTERED = [0, 1, 17, -17, -1]
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def world() -> World:
    """Two segments of one shape, and rows whose fields have equal lengths."""
    world = World(TEXT)
    world.ingest([{"a": "one", "b": "two", "n": 1}, {"a": "x", "b": "y", "n": 2}])
    world.ingest([{"a": "uno", "b": "due", "n": 1}, {"a": "v", "b": "w", "n": 2}])
    return world


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def segment_and_page(world: World, at: int = 0) -> tuple[Segment, Page]:
    segment = world.ledger.snapshot().segments[at]
    return segment, world.pages[segment.uid, 0]


def header_of(world: World, at: int = 0) -> SegmentHeader:
    return world.headers[segment_and_page(world, at)[0].uid]


def read_all(
    world: World, segment: Segment, page: Page, header: SegmentHeader | None = None
) -> None:
    header = header or world.headers[segment.uid]
    opened = MiniSegment(world.key, world.definition, segment, header, page)
    for name in world.definition.fields:
        opened.column(name)


def test_untouched_segments_open(world: World) -> None:
    for at in range(2):
        read_all(world, *segment_and_page(world, at))


@pytest.mark.parametrize("at", ALTERED)
def test_an_altered_header_does_not_open(world: World, at: int) -> None:
    segment, page = segment_and_page(world)
    header = header_of(world)
    altered = replace(header, data=flipped(header.data, at))
    with pytest.raises(DoesNotOpen):
        read_all(world, segment, page, altered)


@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("at", ALTERED)
def test_an_altered_page_does_not_open(world: World, column: int, at: int) -> None:
    segment, page = segment_and_page(world)
    assert len(page.data) == ENDS[-1]
    place = ENDS[column] + at if at >= 0 else ENDS[column + 1] + at
    with pytest.raises(DoesNotOpen):
        read_all(world, segment, replace(page, data=flipped(page.data, place)))


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b""])
def test_a_page_of_another_length_does_not_open(world: World, change: object) -> None:
    segment, page = segment_and_page(world)
    with pytest.raises(DoesNotOpen, match="length"):
        read_all(world, segment, replace(page, data=change(page.data)))  # type: ignore[operator]


def test_the_page_of_another_segment_does_not_open(world: World) -> None:
    segment, _ = segment_and_page(world)
    with pytest.raises(DoesNotOpen):
        read_all(world, segment, segment_and_page(world, 1)[1])


def test_the_header_of_another_segment_does_not_open(world: World) -> None:
    segment, page = segment_and_page(world)
    with pytest.raises(DoesNotOpen):
        read_all(world, segment, page, header_of(world, 1))


def test_the_column_of_another_field_does_not_open(world: World) -> None:
    segment, page = segment_and_page(world)
    one, other, rest = (page.data[start:end] for start, end in pairwise(ENDS))
    with pytest.raises(DoesNotOpen):
        read_all(world, segment, replace(page, data=other + one + rest))


def test_a_segment_of_another_schema_or_keyring_version_does_not_open(world: World) -> None:
    for other in (World(TEXT), World(TEXT)):
        with pytest.raises(DoesNotOpen):
            segment, page = segment_and_page(world)
            MiniSegment(other.key, world.definition, segment, header_of(world), page)


def test_a_segment_that_states_other_groups_or_counts_does_not_open(world: World) -> None:
    segment, page = segment_and_page(world)
    (uid, _), *_ = segment.groups
    changes: list[dict[str, object]] = [
        {"groups": [(bytes(16), 0)]},
        {"groups": [(uid, 1)]},
        {"groups": [(uid, 0), (bytes(16), 2)]},
        {"count": 1},
        {"count": 3},
    ]
    for change in changes:
        with pytest.raises(DoesNotOpen, match="states"):
            MiniSegment(
                world.key, world.definition, replace(segment, **change), header_of(world), page
            )


@pytest.mark.parametrize(
    "header",
    [
        [2, "mini", [], [1], [], [], [1]],
        [1, "paged", [], [1], [], [], [1]],
        [1, "mini", [], [1], [], []],
        [1, "mini", [], [1], [], [], [1], 0],
        [1, "mini", [], [1], [], [], []],
        [1, "mini", [], [1], [], [], [1, 1]],
        [1, "mini", [], [99], [], [], [1]],
        [1, "mini", [], ["a"], [], [], [1]],
        7,
    ],
    ids=str,
)
def test_a_header_of_another_form_is_refused(world: World, header: object) -> None:
    with pytest.raises(DoesNotOpen):
        open_header(world, header, count=0)


@pytest.mark.parametrize(
    "runs",
    [[[1, 1], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [1, 1]], [[0, 2], [5, 0]], [[2**32 - 2, 2]]],
    ids=str,
)
def test_a_header_whose_rows_no_segment_has_is_refused(world: World, runs: object) -> None:
    open_header(world, [1, "mini", [], [], [[0, 2]], [], []], count=2)
    with pytest.raises(DoesNotOpen, match="rows"):
        open_header(world, [1, "mini", [], [], runs, [], []], count=2)


def test_a_mini_of_more_rows_than_a_mini_has_is_refused(world: World) -> None:
    with pytest.raises(DoesNotOpen, match="more rows"):
        open_header(world, [1, "mini", [], [], [[0, 2**31]], [], []], count=2**31)


def open_header(world: World, header: object, *, count: int) -> None:
    """Sealed under the right key, as a newer version or a hostile key holder would."""
    uid = bytes(range(16))
    sealed = sealing.seal_header(
        world.key.meta(uid), pack(header), schema_context=sealing.context_of(world.key), segment=uid
    )
    segment = Segment(uid, "mini", 1, count, 0, [], 1, bytes(32), bytes(32))
    header = SegmentHeader(uid, bytes(32), sealed)
    MiniSegment(world.key, world.definition, segment, header, Page(uid, 0, b""))


@pytest.mark.parametrize("kind", [0, 2, 255])
def test_a_column_of_a_kind_that_is_not_known_is_unsupported(world: World, kind: int) -> None:
    with pytest.raises(Unsupported, match="kind"):
        open_header(world, [1, "mini", [], [1], [], [], [kind]], count=0)


def test_an_empty_mini_opens_to_no_rows(world: World) -> None:
    """What a merge leaves of segments whose rows are all dead."""
    world = World(TEXT)
    world.ingest([{"a": "x"}])
    world.ingest([{"a": "y"}])
    world.kill([(0, 0), (1, 0)])
    world.merge()
    (opened,) = world.opened()
    assert opened.count == 0
    assert world.ask({"field": "a", "op": "is_null", "value": False}) == (set(), set())
    world.ingest([{"a": "z"}])
    world.merge()
    assert world.ask({"field": "a", "op": "ge", "value": ""})[0] == {(2, 0)}


#: None of them is stated of any field here: texts are of class 32 and above, numbers of 8.
OTHER_CLASSES = [LeastClass(16, 0), LeastClass(16, 1), LeastClass(48, 0), LeastClass(48, 1)]


def stating(group: Group, at: int, other: LeastClass) -> Group:
    classes = list(group.classes)
    classes[at] = other
    return replace(group, classes=classes)


@pytest.fixture(scope="module")
def group(world: World) -> Group:
    return next(iter(world.ledger.snapshot().groups.values())).group


def opened(world: World, group: Group, ordinal: int, row: SealedRow) -> object:
    return sealing.open_row(world.key, world.definition, group, ordinal, row).data


def test_a_row_opens_in_its_place_and_in_no_other(world: World, group: Group) -> None:
    first, second = (world.rows[group.uid, ordinal] for ordinal in range(2))
    assert opened(world, group, 0, first) == {"a": "one", "b": "two", "n": 1}
    other_group = replace(group, uid=bytes(16))
    moved: list[tuple[Group, int, SealedRow]] = [
        (group, 1, first),
        (group, 0, second),
        (other_group, 0, first),
        (group, 0, replace(first, record_id=second.record_id)),
        (group, 0, replace(first, version=2)),
        (group, 0, replace(first, fields=[first.fields[at] for at in (1, 0, 2)])),
        (group, 0, replace(first, fields=[second.fields[0], *first.fields[1:]])),
        (group, 0, replace(first, fields=first.fields[:2])),
        (group, 0, replace(first, fields=[*first.fields, first.fields[0]])),
        (replace(group, fields=["b", "a", "n"]), 0, first),
        (replace(group, fields=["a", "b", "unknown"]), 0, first),
        *((stating(group, at, other), 0, first) for at in range(3) for other in OTHER_CLASSES),
        (replace(group, classes=group.classes[:2]), 0, first),
        (replace(group, classes=[*group.classes, NUMBER_CLASS]), 0, first),
        (replace(group, classes=group.classes[::-1]), 0, first),
    ]
    for place in moved:
        with pytest.raises(DoesNotOpen):
            opened(world, *place)


@pytest.mark.parametrize("field", range(3))
@pytest.mark.parametrize("at", ALTERED)
def test_an_altered_field_does_not_open(world: World, group: Group, field: int, at: int) -> None:
    row = world.rows[group.uid, 0]
    fields = list(row.fields)
    fields[field] = flipped(fields[field], at)
    with pytest.raises(DoesNotOpen):
        opened(world, group, 0, replace(row, fields=fields))


def test_equal_data_sealed_twice_has_no_byte_string_in_common(world: World) -> None:
    """Uids are fresh, so that nobody sees that two ingests brought the same records."""
    world = World(TEXT)
    for _ in range(2):
        world.ingest([{"a": "x", "b": "x", "n": 5}, {"a": "x"}])
    sealed = [field for row in world.rows.values() for field in row.fields]
    assert len(set(sealed)) == len(sealed)
    one, other = world.ledger.snapshot().segments
    assert world.pages[one.uid, 0].data != world.pages[other.uid, 0].data
    assert world.headers[one.uid].data != world.headers[other.uid].data


def test_built_segments_name_what_they_replace_in_the_header(world: World) -> None:
    inputs = [bytes(range(16)), bytes(16)]
    built = build_mini(
        world.key,
        world.definition,
        groups=[],
        column_of={},
        rows=world.opened()[0].rows[:0],
        inputs=inputs,
    )
    plain = sealing.open_header(
        world.key.meta(built.segment.uid),
        built.header.data,
        schema_context=sealing.context_of(world.key),
        segment=built.segment.uid,
    )
    assert plain == pack([1, "mini", [], [], [], inputs, []])
