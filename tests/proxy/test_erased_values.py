"""Trying values with the key against what an API has left of an erased record finds none.

The attacker has the whole database of the API as it is after the erasure, the key, the shape of the
schema, and the place of the record. The record's values are of a small range: all are tried.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from pathlib import Path
from typing import Any

from encrypted_records.crypto import sealing, values
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.model import digests, ids
from encrypted_records.model.ciphertext_lengths import least_class
from encrypted_records.model.definition import SchemaDefinition
from tests.e2e.database import Row, database_of
from tests.support.erasures import seen_through
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "ill": {"type": "integer", "minimum": 0, "maximum": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 20},
    },
}
SECRET = {"ill": 1, "age": 13}
AT = 5


def ask(store: Store, statement: str, *parameters: Any) -> list[Row]:
    with database_of(store.service) as database:
        return database.run(statement, *parameters)


def own_key(store: Store, folder: Path) -> tuple[SchemaKey, SchemaDefinition]:
    async def look(proxy: Proxy) -> tuple[SchemaKey, SchemaDefinition]:
        return proxy.state.ledger.key, proxy.state.definition

    return act_as_second(store, with_keyrings(store.service, folder), look)


def tried(
    key: SchemaKey,
    definition: SchemaDefinition,
    group: Row,
    record_ids: Collection[bytes],
) -> dict[bytes, dict[str, Any]]:
    """By digest, the values that a row of the group at this place would have it for."""
    uid, salt = bytes(group["uid"]), bytes(group["salt"])
    found: dict[bytes, dict[str, Any]] = {}
    for record_id in record_ids:
        context = sealing.record_context(sealing.context_of(key), record_id, 1)
        sealed = {}
        for spec in definition.fields.values():
            every = [*range(21), None] if spec.name == "age" else [0, 1, None]
            plain = values.encode_column(spec, every, least_class(spec))
            for value, one in zip(every, plain, strict=True):
                [field] = sealing.seal_column(
                    key.field(spec).seal(uid),
                    [context],
                    spec.id_bytes,
                    [one],
                    sealing.nonces_of([AT]),
                )
                sealed[spec.name, value] = field
        for ill, age in product((0, 1, None), (*range(21), None)):
            guess = {"ill": ill, "age": age}
            packed = digests.pack_fields(
                [sealed[field.name, guess[field.name]] for field in definition.fields.values()]
            )
            found[digests.row_digest(salt, record_id, 1, packed)] = guess
    return found


def test_a_deleted_value_of_a_small_range_is_not_found_by_trying(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    rows = [{"ill": at % 2, "age": at} for at in range(12)]
    rows[AT] = SECRET
    stored = store.ingest(rows)
    key, definition = own_key(store, tmp_path)
    answer = store.proxy("DELETE", f"/api/records/{stored[AT]}/?erase=true")
    assert seen_through(store, answer)["gone"]
    schema, gone = ids.from_text(store.schema_id), ids.from_text(stored[AT])
    [group] = ask(store, "SELECT * FROM record_group WHERE schema_id = %s", schema)
    [left] = ask(store, "SELECT * FROM erased_row WHERE group_id = %s", group["id"])
    assert left["ordinal"] == AT
    digest = bytes(left["digest"])
    assert tried(key, definition, group, [gone])[digest] == SECRET, "with the id it can be tried"
    own = ask(store, "SELECT record_id FROM record_row WHERE group_id = %s", group["id"])
    known = {bytes(one["record_id"]) for one in own}
    assert len(known) == len(stored) - 1
    for table in ("record_row", "changed_row"):
        assert not ask(store, f"SELECT 1 FROM {table} WHERE record_id = %s", gone)
    assert digest not in tried(key, definition, group, known)
    # Nor is most of it told by the others, which were made in the same millisecond.
    neighbours = {ids.from_text(one) for one in stored} - {gone}
    assert all(neighbour[6:10] != gone[6:10] for neighbour in neighbours)
