"""Whoever has the key and writes to the API's database: what they alter is not sealed anew.

Every byte that is altered here opens. Only the digests that commits state tell that it is another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from encrypted_records.client.api import Api
from encrypted_records.crypto import sealing, values
from encrypted_records.crypto.format import PAGE_DATA, PAGE_MINI
from encrypted_records.errors import Altered
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import pages
from encrypted_records.index.columns.column import Column
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.digests import DIGEST, page_digest
from encrypted_records.model.ids import from_text
from encrypted_records.model.records import PageDigests, Segment
from encrypted_records.proxy.write.merge_scheduler import Lanes
from tests.e2e.database import Database, Row, database_of
from tests.support.paged_segments import roles_of
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
}
#: More than a mini holds.
MANY = 4200
FEW = (Tier(4096, 64), Tier(1 << 16, 1))


@pytest.fixture
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def as_insider(store: Store, folder: Path, act: Callable[[Proxy], Awaitable[None]]) -> None:
    """Act with the user's keys."""
    act_as_second(store, folder, act)


def row_of(database: Database, record: bytes) -> Row:
    (row,) = database.run("SELECT * FROM record_row WHERE record_id = %s", record)
    return row


def page_of(database: Database, segment: bytes, number: int) -> Row:
    (row,) = database.run(
        "SELECT p.* FROM index_page p JOIN index_segment s ON s.id = p.segment_id"
        " WHERE s.uid = %s AND p.number = %s",
        segment,
        number,
    )
    return row


def test_a_change_of_a_field_refuses_a_record_whose_other_fields_were_altered(
    store: Store, tmp_path: Path
) -> None:
    record, other = store.ingest([{"name": "Ada", "n": 1}, {"name": "Bob", "n": 2}])
    (elsewhere,) = store.ingest([{"name": "Cid", "n": 3}])

    async def alter(proxy: Proxy) -> None:
        """The name in the row becomes another, sealed in its place."""
        ledger, spec = proxy.state.ledger, proxy.state.definition.fields["name"]
        group, _ = (group.group for group in ledger.snapshot().groups.values())
        with database_of(store.service) as database:
            row = row_of(database, from_text(record))
            _, n = msgspec.msgpack.decode(row["sealed"], type=list[bytes])
            context = sealing.record_context(
                sealing.context_of(ledger.key), row["record_id"], row["version"]
            )
            plain = values.encode(spec, "Eve", least_class(spec))
            key = ledger.key.field(spec).seal(group.uid)
            name = sealing.seal_field(key, row["ordinal"], context, spec.id_bytes, plain)
            database.change("record_row", row, sealed=msgspec.msgpack.encode([name, n]))

    as_insider(store, with_keyrings(store.service, tmp_path), alter)
    refused = store.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 5}})
    # The digest of its run fits the altered row no more, so its neighbour cannot be proven.
    beside = store.proxy("PATCH", f"/api/records/{other}/", {"data": {"n": 6}})
    for answer in (refused, beside):
        assert (answer.status, answer.json()["code"]) == (422, "altered")
        assert "rows 0 to 63" in answer.json()["detail"]
    assert store.proxy("PATCH", f"/api/records/{elsewhere}/", {"data": {"n": 6}}).status == 200
    # What replaces all of it takes nothing over.
    whole = {"data": {"name": "Ada", "n": 7}}
    assert store.proxy("PUT", f"/api/records/{record}/", whole).status == 200
    assert store.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 8}}).status == 200


def test_a_small_segment_that_was_sealed_anew_in_its_place_answers_nothing(
    store: Store, tmp_path: Path
) -> None:
    store.ingest([{"name": "Ada", "n": 1}, {"name": "Bob", "n": 2}])

    async def alter(proxy: Proxy) -> None:
        """Both numbers in the index belong to the other record."""
        ledger, definition = proxy.state.ledger, proxy.state.definition
        (segment,) = ledger.snapshot().segments
        spec = definition.fields["n"]
        where: dict[str, Any] = {
            "schema_context": sealing.context_of(ledger.key),
            "segment": segment.uid,
            "field": spec.id_bytes,
        }
        key = ledger.key.field(spec).index(segment.uid)
        with database_of(store.service) as database:
            page = page_of(database, segment.uid, 0)
            begin = len(page["data"]) - (1 + 16 + columns.encoded_size(spec.kind, 2))
            old = sealing.open_page(key, PAGE_MINI, 0, page["data"][begin:], **where)
            found = columns.decode(old, spec.kind, 2)
            swapped = Column(found.ordinals[::-1].copy(), found.keys)
            new = sealing.seal_page(key, PAGE_MINI, 0, columns.encode(swapped, spec.kind), **where)
            database.change("index_page", page, data=page["data"][:begin] + new)

    as_insider(store, with_keyrings(store.service, tmp_path), alter)
    answer = fresh(store, tmp_path / "fresh")
    assert answer == "altered"


def fresh(store: Store, folder: Path) -> str:
    """The error that a proxy with an empty memory meets in a search."""
    found: list[str] = []

    async def ask(proxy: Proxy) -> None:
        with pytest.raises(Altered, match="segment") as caught:
            await proxy.count({"field": "n", "op": "eq", "value": 1})
        found.append(caught.value.reason)

    as_insider(store, with_keyrings(store.service, folder), ask)
    return found[0]


def have_the_api_prove(
    monkeypatch: pytest.MonkeyPatch, store: Store, segment: bytes, number: int
) -> None:
    """The API says that the digest of a page is that of the page that it has by now."""
    honest = Api.page_digests

    async def forged(self: Api, schema: bytes, uids: Sequence[bytes], auth: str) -> Any:
        with database_of(store.service) as database:
            present = page_digest(page_of(database, segment, number)["data"])
        begin = number * DIGEST
        return [
            PageDigests(one.segment, one.pages[:begin] + present + one.pages[begin + DIGEST :])
            if one.segment == segment
            else one
            for one in await honest(self, schema, uids, auth)
        ]

    monkeypatch.setattr(Api, "page_digests", forged)


@pytest.mark.parametrize(
    ("edges", "lies"),
    [((1 << 16, 1 << 20), False), ((1000, MANY), False), ((1 << 16, 1 << 20), True)],
    ids=["ordinary", "huge", "with the API's help"],
)
def test_a_merge_refuses_a_large_segment_with_a_page_that_was_sealed_anew(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    edges: tuple[int, int],
    lies: bool,
) -> None:
    store.ingest([{"name": "so that there is a keyring", "n": 0}])
    altered: list[tuple[bytes, int]] = []

    async def alter(proxy: Proxy) -> None:
        for sign in "ab":
            await proxy.ingest([{"name": f"{sign}{at:05}", "n": at % 99} for at in range(MANY)])
        segments = proxy.state.ledger.snapshot().segments
        segment = next(segment for segment in segments if segment.form == "paged")
        with database_of(store.service) as database:
            altered.append((segment.uid, swap_two_names(proxy, database, segment)))

    async def merge(proxy: Proxy) -> None:
        (segment, page), *_ = altered
        before = proxy.state.ledger.version
        named = f"segment {segment.hex()}, page {page}"
        if lies:
            have_the_api_prove(monkeypatch, store, segment, page)
            named = f"segment {segment.hex()}"
        with pytest.raises(Altered, match=named):
            await proxy.merger(*FEW, lanes=Lanes(*edges)).merge_next(proxy.caller, proxy.state)
        assert proxy.state.ledger.version == before
        # The page opens, and so a question that asks for it is answered, wrongly.
        assert await proxy.count({"field": "name", "op": "prefix", "value": "a"}) == MANY

    folder = with_keyrings(store.service, tmp_path)
    as_insider(store, folder, alter)
    as_insider(store, with_keyrings(store.service, tmp_path / "other"), merge)


def swap_two_names(proxy: Proxy, database: Database, segment: Segment) -> int:
    """Have two names of one index page belong to each other's records; the page's number."""
    ledger, definition = proxy.state.ledger, proxy.state.definition
    key, spec = ledger.key, definition.fields["name"]
    where: dict[str, Any] = {
        "schema_context": sealing.context_of(key),
        "segment": segment.uid,
        "field": spec.id_bytes,
    }
    opened = LoadedSegment(
        OpenedHeader(key, definition, segment, ledger.snapshot().header(segment))
    )
    for number in opened.missing_directories(["name"]):
        opened.put(number, page_of(database, segment.uid, number)["data"])
    number = next(
        number
        for number, role in roles_of(opened).items()
        if (role.field, role.kind, role.index) == ("name", PAGE_DATA, 0)
    )
    page = page_of(database, segment.uid, number)
    index = key.field(spec).index(segment.uid)
    content = pages.unframe(sealing.open_page(index, PAGE_DATA, number, page["data"], **where))
    count = len(content) // 68
    ordinals = np.frombuffer(content[: 4 * count], ">u4").copy()
    ordinals[[3, 4]] = ordinals[[4, 3]]
    framed = pages.frame(ordinals.tobytes() + content[4 * count :])
    database.change(
        "index_page", page, data=sealing.seal_page(index, PAGE_DATA, number, framed, **where)
    )
    return number
