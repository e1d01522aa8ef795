"""Nothing in the log holds a value, sealed or not: it stays for good, a deleted record does not.

The attacker has the API's whole database, the key, and all that was stored of the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.model import digests
from encrypted_records.model.ids import from_text
from encrypted_records.model.records import SealedRow
from tests.e2e.database import Row, database_of
from tests.support.erasures import seen_through
from tests.support.eventually import eventually
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 10**9},
    },
}
#: More than a mini holds; the secret is the greatest of all, so it stands in the segment's header.
MANY, KEPT = 4200, 3900
SECRET = {"name": "zz the one that is deleted", "n": 271_828_182}
#: What stands in a commit beside its definition: uids, digests, ids of keys.
LENGTHS = {16, 32, 8}


@dataclass(frozen=True)
class Before:
    """All that was stored of a segment, and the key."""

    key: SchemaKey
    segment: Row
    pages: list[bytes]


def rows_of(service: Service, statement: str, *parameters: Any) -> list[Row]:
    with database_of(service) as database:
        return database.run(statement, *parameters)


def fill(store: Store, folder: Path) -> SchemaKey:
    async def ingest(proxy: Proxy) -> SchemaKey:
        await proxy.ingest([SECRET, *({"name": f"n{at:05}", "n": at} for at in range(MANY))])
        return proxy.state.ledger.key

    return act_as_second(store, with_keyrings(store.service, folder), ingest)


def look(store: Store, key: SchemaKey) -> Before:
    chosen = "SELECT * FROM index_segment WHERE form = 'paged' AND schema_id = %s"
    (segment,) = rows_of(store.service, chosen, from_text(store.schema_id))
    pages = rows_of(
        store.service,
        "SELECT data FROM index_page WHERE segment_id = %s ORDER BY number",
        segment["id"],
    )
    return Before(key, segment, [bytes(page["data"]) for page in pages])


def delete_and_merge(store: Store) -> None:
    """Delete the secret and enough beside it, merge, and let what was replaced go."""
    where = {"field": "n", "op": "ge", "value": KEPT}
    path = f"/api/records/delete/?confirm={MANY - KEPT + 1}"
    answer = store.proxy("POST", path, {"schema": store.schema, "where": where})
    assert answer.status == 200, answer.body
    while not store.proxy("POST", f"{store.schema}merge/", {}).json()["done"]:
        pass
    old = "schema_id = %s AND superseded_at IS NOT NULL"
    with database_of(store.service) as database:
        long_ago = "'2020-01-01 00:00:00+00:00'"
        schema = from_text(store.schema_id)
        database.run(f"UPDATE index_segment SET superseded_at = {long_ago} WHERE {old}", schema)
    left = f"SELECT id FROM index_segment WHERE {old} AND (pages > 0 OR length(header) > 0)"
    eventually(lambda: not rows_of(store.service, left, schema), "what is old is erased")


def log_of(store: Store) -> list[bytes]:
    chosen = "SELECT body FROM commit_log WHERE schema_id = %s ORDER BY version"
    return [
        bytes(row["body"]) for row in rows_of(store.service, chosen, from_text(store.schema_id))
    ]


def bytes_in(item: Any) -> Iterator[bytes]:
    """Every byte string anywhere in a decoded commit."""
    if isinstance(item, bytes):
        yield item
    elif isinstance(item, list):
        for one in item:
            yield from bytes_in(one)


def guesses(before: Before, salt: bytes) -> Iterator[bytes]:
    """What the log might hold of a segment under some salt, or none."""
    header, pages = bytes(before.segment["header"]), before.pages
    every = b"".join(map(digests.page_digest, pages))
    yield digests.segment_digest(salt, header, every)
    yield hashlib.sha256(salt + header).digest()
    yield hashlib.sha256(salt + b"".join(pages)).digest()
    yield hashlib.sha256(salt + every).digest()
    for page in pages:
        yield hashlib.sha256(salt + page).digest()


def test_nothing_in_the_log_holds_a_value_of_a_record_that_was_deleted(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first", "n": 0}])
    before = look(store, fill(store, tmp_path))
    uid, salt = (bytes(before.segment[name]) for name in ("uid", "salt"))
    plain = sealing.open_header(
        before.key.meta(uid),
        bytes(before.segment["header"]),
        schema_context=sealing.context_of(before.key),
        segment=uid,
    )
    values = [SECRET["n"].to_bytes(8, "big"), SECRET["name"].encode()]  # type: ignore[attr-defined]
    for value in values:
        assert value in plain, "the header is what a log must not hold"
    assert next(guesses(before, salt)) in log_items(store), "with its salt, the log proves it"

    delete_and_merge(store)

    log, items = log_of(store), log_items(store)
    for body in log:
        for value in [*values, plain, bytes(before.segment["header"]), salt, *before.pages]:
            assert value not in body
        assert b"zz the" not in body
    definitions = {msgspec.msgpack.decode(body)[9] for body in log}
    assert {len(item) for item in items - definitions} <= LENGTHS
    # Nothing is left by which the log's digest of what is gone could be tried.
    left = [
        bytes(row["salt"])
        for table in ("record_group", "index_segment")
        for row in rows_of(service, f"SELECT salt FROM {table}")
    ]
    assert salt not in left
    for known in {b"", bytes(32), *left}:
        assert items.isdisjoint(guesses(before, known))
    assert rows_of(service, "SELECT number FROM index_page WHERE data = %s", before.pages[0]) == []
    assert store.search(None, count=True, limit=0)["count"] == KEPT + 1


def rows_in(store: Store, group: Row) -> list[SealedRow]:
    chosen = "SELECT * FROM record_row WHERE group_id = %s ORDER BY ordinal"
    return [
        SealedRow(
            bytes(row["record_id"]),
            row["version"],
            msgspec.msgpack.decode(row["sealed"], type=list[bytes]),
        )
        for row in rows_of(store.service, chosen, group["id"])
    ]


def test_a_record_whose_group_is_gone_is_not_found_by_trying(service: Service) -> None:
    """Even by who has the record as it was sealed, and every other row of its group."""
    store = new_store(service, DEFINITION)
    store.ingest([{"name": f"n{at}", "n": at} for at in range(5)] + [SECRET])
    schema = from_text(store.schema_id)
    (group,) = rows_of(service, "SELECT * FROM record_group WHERE schema_id = %s", schema)
    salt, rows = bytes(group["salt"]), rows_in(store, group)
    assert len(rows) == 6
    assert digests.digest_rows(salt, rows) in log_items(store), "with its salt, the log proves it"
    kept = [{"name": "kept", "n": 7}]
    store.ingest(kept)

    gone = {"schema": store.schema, "where": {"field": "name", "op": "ne", "value": "kept"}}
    answer = store.proxy("POST", "/api/records/delete/?confirm=6", gone)
    assert answer.status == 200, answer.body
    assert seen_through(store, store.proxy("POST", f"{store.schema}erasure/"))["gone"]

    left = [
        bytes(row["salt"])
        for table in ("record_group", "index_segment")
        for row in rows_of(service, f"SELECT salt FROM {table}")
    ]
    assert salt not in left
    items = log_items(store)
    for known in {b"", bytes(32), *left}:
        packed = digests.row_digests(known, rows)
        runs = digests.run_digests(packed)
        single = {packed[at : at + 32] for at in range(0, len(packed), 32)}
        assert items.isdisjoint({*single, runs, digests.group_digest(runs)})
    assert all(salt not in body for body in log_of(store))
    assert [one["data"] for one in store.everything()] == kept


def log_items(store: Store) -> set[bytes]:
    return {one for body in log_of(store) for one in bytes_in(msgspec.msgpack.decode(body))}
