"""An object of rows tells by itself which rows it has, and what is left of erased ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import ObjectAltered
from encrypted_records.model import digests
from encrypted_records.model.digests import DIGEST, HOLE, RUN
from encrypted_records.server.objects import layout
from encrypted_records.server.objects.layout import Row

GROUP, SALT = bytes(range(16)), bytes(32)
ROWS = st.tuples(
    st.binary(min_size=16, max_size=16), st.integers(1, 2**32 - 1), st.binary(max_size=40)
)


def made(first: int, rows: list[Row | None], gone: dict[int, bytes]) -> bytes:
    own = b"".join([HOLE if row is None else digests.row_digest(SALT, *row) for row in rows])
    (one,) = layout.row_objects(GROUP, first, rows, own, gone)
    return one.data


@given(
    st.integers(0, 3).map(lambda run: run * RUN),
    st.lists(st.none() | ROWS, min_size=1, max_size=3 * RUN),
    st.data(),
)
def test_what_lies_in_an_object_is_read_from_its_bytes_alone(
    first: int, rows: list[Row | None], data: st.DataObject
) -> None:
    holes = [at for at, row in enumerate(rows, first) if row is None]
    erased = data.draw(st.sets(st.sampled_from(holes))) if holes else set()
    gone = {at: digests.row_digest(SALT, GROUP, at + 1, b"") for at in erased}
    # Of others of the group there may be more.
    whole = made(first, rows, gone | {first + len(rows): bytes(DIGEST)})
    found = layout.contents_of(whole, "name")
    assert (found.group, found.first, found.rows, found.gone) == (GROUP, first, rows, gone)
    assert layout.head_of(whole) == (True, GROUP, first, len(rows))
    # Cut short, it is none, but where just whole digests are gone.
    cut = data.draw(st.integers(0, len(whole) - 1))
    try:
        part = layout.contents_of(whole[:cut], "name")
    except ObjectAltered:
        return
    assert part.rows == rows and part.gone.items() < gone.items()


def test_an_object_of_pages_and_something_else_have_no_rows() -> None:
    pages = layout.page_object(GROUP, 3, [b"page", b"more"])
    assert layout.head_of(pages) == (False, GROUP, 3, 2)
    assert layout.head_of(b"of somebody else, in the same bucket") is None
    for other in (pages, b"", b"short"):
        with pytest.raises(ObjectAltered):
            layout.contents_of(other, "name")
