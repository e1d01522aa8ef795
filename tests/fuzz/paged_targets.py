"""Parsers of paged segments: contents of pages, and whole segments behind their seal."""

from __future__ import annotations

import msgspec
import numpy as np
import zstandard

from encrypted_records.crypto import sealing
from encrypted_records.crypto.format import PAGE_DATA, PAGE_DIRECTORY
from encrypted_records.errors import DoesNotOpen, Unsupported
from encrypted_records.index.columns import directory, pages
from encrypted_records.index.columns.column import Edge, KeyRange, stored_key_type
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.model.records import Segment, SegmentHeader
from tests.fuzz.mutations import msgpack, raw
from tests.fuzz.sealed_targets import QUESTIONS
from tests.fuzz.target import Target
from tests.reference.paged import raw_frame, unpacked
from tests.reference.test_paged_segments import DEFINITION, KEY, VECTOR, header, sealed, segment

NAMES = list(DEFINITION.fields)
FORMS = ("plain", "packed")
STORED = {form: sealed(form) for form in FORMS}
WHERE = sealing.context_of(KEY)
COUNT = len(VECTOR["rows"])
replace = msgspec.structs.replace


def _contents(form: str, kind: int) -> list[bytes]:
    """What a target takes: the field, then a content; packed ones as they are when unpacked."""
    found = []
    for page in VECTOR[form]["pages"]:
        if page["kind"] == kind and page["content"]:
            content = bytes.fromhex(page["content"])
            found.append(bytes((NAMES.index(page["field"]),)) + content)
    return found


def _chosen(data: bytes) -> tuple[str, bytes]:
    return NAMES[(data[0] if data else 0) % len(NAMES)], data[1:]


def a_data_page(data: bytes) -> None:
    """Whatever is accepted is in order."""
    name, content = _chosen(data)
    kind = DEFINITION.fields[name].kind
    width = stored_key_type(kind).itemsize
    _in_order(content, name, len(content) // (4 + width), packed=False)


def a_packed_data_page(data: bytes) -> None:
    name, content = _chosen(data)
    _in_order(raw_frame(content), name, 8, packed=True)


def a_compressed_page(data: bytes) -> None:
    """Bytes that zstd may or may not take."""
    name, content = _chosen(data)
    _in_order(content, name, 8, packed=True)


def _in_order(content: bytes, name: str, count: int, *, packed: bool) -> None:
    kind = DEFINITION.fields[name].kind
    block = pages.open_block(content, kind, count, present=True, packed=packed)
    assert len(block.ordinals) == count
    assert np.all(block.keys[:-1] < block.keys[1:])
    assert len(block.expand()) == count


def a_directory(data: bytes) -> None:
    """What is accepted has one encoding, and places every edge among its pages."""
    name, content = _chosen(data)
    kind = DEFINITION.fields[name].kind
    found = directory.decode(content, kind, count=COUNT, pages=32, packed=False)
    assert directory.encode(found, kind, packed=False) == content
    outline = Outline.of(found)
    assert outline.present + outline.absent == COUNT
    for key in (*found.firsts, *found.lasts, *found.runs):
        at = key.item()
        near = outline.pages(KeyRange(Edge(at, "left"), Edge(at, "right")))
        assert 0 <= near.start <= near.stop <= len(found.ends)


def _filled(form: str) -> list[int]:
    """The numbers of the pages that hold something."""
    return [at for at, page in enumerate(VECTOR[form]["pages"]) if page["content"]]


def a_page_behind_its_seal(data: bytes) -> None:
    """The first two bytes say of which segment which page is replaced by the others."""
    which, place, content = *data.ljust(2, b"\0")[:2], data[2 : 2 + pages.CAPACITY]
    form = FORMS[which % 2]
    number = _filled(form)[place % len(_filled(form))]
    page = VECTOR[form]["pages"][number]
    uid = segment(form).uid
    changed = list(STORED[form])
    changed[number] = sealing.seal_page(
        KEY.field(DEFINITION.fields[page["field"]]).index(uid),
        page["kind"],
        number,
        pages.frame(content),
        schema_context=WHERE,
        segment=uid,
        field=DEFINITION.fields[page["field"]].id_bytes,
    )
    _read(
        LoadedSegment(OpenedHeader(KEY, DEFINITION, segment(form), header(form))),
        changed,
        [page["field"]],
    )


def a_paged_header_behind_its_seal(data: bytes) -> None:
    found = segment("plain")
    changed = sealing.seal_header(
        KEY.meta(found.uid), data, schema_context=WHERE, segment=found.uid
    )
    _use(found, replace(header("plain"), data=changed), STORED["plain"])


def _use(found: Segment, sealed_header: SegmentHeader, stored: list[bytes]) -> None:
    """What a proxy does with a segment that opens: it asks, and it reads whole columns."""
    opened = LoadedSegment(OpenedHeader(KEY, DEFINITION, found, sealed_header))
    for where in QUESTIONS[::5]:
        condition = Condition.of(where, KEY, DEFINITION)
        for _ in range(2):
            for number in condition.missing(opened):
                opened.put(number, stored[number])
        assert not condition.missing(opened)
        answer = condition.match(opened)
        assert answer.certain <= answer.possible <= opened.everything
    _read(opened, stored, NAMES)


def _read(opened: LoadedSegment, stored: list[bytes], names: list[str]) -> None:
    for _ in range(2):
        for number in opened.missing_columns(names):
            opened.put(number, stored[number])
    for name in names:
        # A field that the header does not name is absent in every row there ever was.
        assert len(opened.column(name).ordinals) in (opened.count, opened.covered)


HEADER = sealing.open_header(
    KEY.meta(segment("plain").uid),
    header("plain").data,
    schema_context=WHERE,
    segment=segment("plain").uid,
)


def _is_full(seed: bytes) -> bool:
    try:
        a_packed_data_page(seed)
    except DoesNotOpen:
        return False
    return True


#: Pages of as many entries as the targets expect come first.
_UNPACKED = sorted(
    (content[:1] + unpacked(content[1:]) for content in _contents("packed", PAGE_DATA)),
    key=lambda one: not _is_full(one),
)
_COMPRESSED = [
    one[:1] + zstandard.ZstdCompressor(write_content_size=False).compress(one[1:])
    for one in _UNPACKED
]
_PAGES = [
    bytes((which, place)) + bytes.fromhex(VECTOR[form]["pages"][number]["content"])
    for which, form in enumerate(FORMS)
    for place, number in enumerate(_filled(form))
]

TARGETS = [
    Target(a_data_page, (DoesNotOpen,), _contents("plain", PAGE_DATA)[-4:], raw),
    Target(a_packed_data_page, (DoesNotOpen,), _UNPACKED, raw),
    Target(a_compressed_page, (DoesNotOpen,), _COMPRESSED, raw),
    Target(a_directory, (DoesNotOpen,), _contents("plain", PAGE_DIRECTORY), raw),
    Target(a_page_behind_its_seal, (DoesNotOpen,), _PAGES, raw),
    Target(a_paged_header_behind_its_seal, (DoesNotOpen, Unsupported), [HEADER], msgpack),
]
